"""``mapveil device``: a fleet from a table, its summary, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.authority import NAMED

from ..client.live import Live, live_collector


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_collector(tmp_path_factory.mktemp("collector")) as made:
        yield made


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty people at three rows each."""
    rng = np.random.default_rng(2)
    path = tmp_path_factory.mktemp("table") / "people.csv"
    user = np.repeat([f"u{index}" for index in range(30)], 3)
    lon, lat = rng.uniform(-74.02, -73.91, 90), rng.uniform(40.70, 40.82, 90)
    pd.DataFrame({"user_id": user, "lon": lon, "lat": lat}).to_csv(path, index=False)
    return path


def test_a_table_answers_a_collection(mapveil, live: Live, people: Path, tmp_path: Path) -> None:
    collection = live.open(trust="local", method="grr", devices=30)
    (tmp_path / "key").write_text("5a" * 32)
    done = mapveil(
        *(
            "device",
            "--fleet",
            people,
            "--server",
            live.url,
            "--enrol",
            live.token,
            "--collection",
            collection,
        ),
        *("--state", tmp_path / "fleet", "--key-file", tmp_path / "key", "--json"),
    )
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["states"] == {collection: "done"}
    assert (record["devices"], record["joined"], record["sent"], record["epsilon"]) == (30, 30, 30, "1")
    assert live.engine.collection(collection)["reports"] == 30
    assert len(list((tmp_path / "fleet").glob("device-*.vault"))) == 30
    assert live.token not in done.out + done.err
    # The same devices again: known, and what they spent is remembered.
    again = live.open(trust="local", method="grr", devices=30)
    done = mapveil(
        *(
            "device",
            "--fleet",
            people,
            "--server",
            live.url,
            "--collection",
            again,
            "--budget",
            "3/2",
        ),
        *("--state", tmp_path / "fleet", "--key-file", tmp_path / "key"),
    )
    assert done.code == 1
    assert (
        "30 refused: epsilon must be at most 0.5 (left of 1.5 for this device's lifetime), got 1" in done.out
    )
    live.engine.abort(again, live.actor, "refused by all")


def test_an_aborted_collection_is_exit_1(mapveil, live: Live, people: Path) -> None:
    collection = live.open(devices=30, minimum=25, phase_seconds=2)
    done = mapveil(
        "device",
        "--fleet",
        people,
        "--server",
        live.url,
        "--enrol",
        live.token,
        "--drop",
        "0.7",
        "--authority",
        str(NAMED),
    )
    assert done.code == 1
    assert f"{collection}: aborted" in done.out
    assert "made to drop out" in done.out


def test_a_pending_collection_is_said_to_open_later(mapveil, live: Live, people: Path) -> None:
    pending = live.create(trust="local", method="grr")
    done = mapveil("device", "--fleet", people, "--server", live.url, "--collection", pending)
    live.engine.abort(pending, live.actor, "for this test only")
    assert (done.code, done.out) == (1, "")
    assert "the collection is not open yet; an operator opens it" in done.err


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (("--server", "collector.example"), 2, "https://collector.example"),
        (("--server", "http://collector.example"), 2, "plain HTTP is for this machine only"),
        (("--slow", "half:5"), 2, "0.02:5s"),
        (("--slow", "1.5:5s"), 2, "--slow must be a fraction below 1"),
        (("--drop", "1"), 2, "drop must be"),
        (("--collection", "x"), 2, "32 hexadecimal digits"),
        (("--state", "."), 2, "go together"),
        (("--budget", "0"), 2, "a budget must be an epsilon"),
        (("--least-shard", "2"), 2, "least_shard must be"),
        (
            ("--server", "http://127.0.0.1:9", "--patience", "0.2"),
            1,
            "gave no answer (ConnectionRefusedError)",
        ),
        ((), 1, "no collection is open"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(
    mapveil, live: Live, people: Path, given, code, said
) -> None:
    done = mapveil("device", "--fleet", people, "--server", live.url, *given)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert done.err.count("\n") == 1
