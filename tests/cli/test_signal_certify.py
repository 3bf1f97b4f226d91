"""``mapveil signal certify`` and ``drift``, accounts and last days: from a fit to a map of what was certified."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mapveil.attacks.signal_adversary import BlindGuess
from mapveil.attacks.signal_neighbours import SignalNeighbours

ROWS = 320
REGION = "24.0,35.49,24.06,35.55"


@pytest.fixture(scope="module")
def phones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measurements of four users on four days, with the numbers of cells and of an operator."""
    draw = np.random.default_rng(1)
    users = np.arange(ROWS) % 4
    lat, lon = ([35.51, 24.02] + 0.004 * users[:, None] + draw.normal(size=(ROWS, 2)) * 0.002).T
    table = {"user_id": users, "time": pd.date_range("2024-05-01", periods=ROWS, freq="18min")}
    table |= {"lat": lat, "lon": lon, "rss_dbm": draw.integers(-100, -70, ROWS)}
    table |= {"cell_id": draw.choice([60551, 60561], ROWS), "mnc": draw.choice([1, 5], ROWS)}
    path = tmp_path_factory.mktemp("phones") / "phones.parquet"
    pd.DataFrame(table).to_parquet(path, index=False)
    return path


@pytest.fixture(scope="module")
def fitted(phones: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A codebook with null codes."""
    from mapveil.geo.read_measurements import read_measurements
    from mapveil.obfuscation.export.privatizer_file import write_privatizer
    from mapveil.obfuscation.privatize import fit_privatizer

    path = tmp_path_factory.mktemp("fitted") / "codes.mapveil"
    write_privatizer(fit_privatizer(read_measurements(phones), "codebook", {"size": 20}, rng=1), path)
    return path


def test_fit_states_kinds_and_the_last_day(mapveil, phones: Path, tmp_path: Path) -> None:
    asked = ("--privatizer", "gaussian-noise", "--option", "sigma=0.5", "--days", 7)
    done = mapveil("signal", "fit", phones, *asked, "-o", tmp_path / "n.mapveil", "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["categories"] == ["mnc"]
    assert "cell_id" not in record["features"]
    assert "identifiers: cell_id" in done.err
    assert date.fromisoformat(record["expires"]) > date(2024, 1, 1)


def test_a_map_says_what_was_certified_for_its_reports(
    mapveil, phones: Path, fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Trees take seconds, and are tested with the attacks.
    few = (BlindGuess(), SignalNeighbours(counts=(1, 10), judged=40))
    for module in ("attacks.signal_attack", "evaluation.signal_certificate"):
        monkeypatch.setattr(f"mapveil.{module}.signal_adversaries", lambda **_: few)
    private, made = tmp_path / "private.parquet", tmp_path / "certificate.json"
    done = mapveil("signal", "privatize", fitted, phones, "--user-reports", 50, "-o", private)
    assert done.code == 0, done.err
    assert "120 of 320 rows are left out: a phone's account allows 50 reports" in done.out
    assert "all reports of one user (at most 50) together: epsilon" in done.out
    reports = pd.read_parquet(private)
    assert len(reports) == 200
    assert set(reports.mnc.dropna()) <= {1, 5}
    assert reports.cell_id.isna().all()
    done = mapveil("signal", "certify", fitted, phones, "-o", made)
    assert done.code == 0, done.err
    assert "other users" in done.out
    assert "later days" in done.out
    area = ("--region", REGION, "--tiling", "grid:4x4")
    stated = mapveil("signal", "map", private, *area, "--certificate", made, "-o", tmp_path / "a.csv")
    assert stated.code == 0, stated.err
    assert "on later days of 2024-05-01 to 2024-05-04" in stated.out
    assert "nothing was certified" not in stated.out
    nothing = mapveil("signal", "map", private, *area, "-o", tmp_path / "b.csv")
    assert "nothing was certified for these reports" in nothing.out
    record = json.loads(made.read_text())
    made.write_text(json.dumps({**record, "last": "2024-05-02", "days": 2}))
    other = mapveil("signal", "map", private, *area, "--certificate", made, "-o", tmp_path / "c.csv")
    assert "nothing is certified for these reports: the reports are of 2024-05-01 to 2024-05-03" in other.err
    assert "nothing was certified for these reports" in other.out
    weaker = [*record["adversaries"], "trees (not its full work)"]
    made.write_text(json.dumps({**record, "adversaries": weaker}))
    quick = mapveil("signal", "map", private, *area, "--certificate", made, "-o", tmp_path / "d.csv")
    assert "expected a certificate made without --quick" in quick.err
    assert "nothing was certified for these reports" in quick.out


def test_drift_needs_days_for_its_rate(mapveil, phones: Path, fitted: Path, tmp_path: Path) -> None:
    private = tmp_path / "day.parquet"
    assert mapveil("signal", "privatize", fitted, phones, "-o", private).code == 0
    (tmp_path / "copy.parquet").write_bytes(private.read_bytes())
    few = mapveil("signal", "drift", private, "--before", tmp_path / "copy.parquet")
    assert few.code == 2
    assert "1 days before; a false-alarm rate of 0.05 needs at least 19" in few.err
    twice = mapveil("signal", "drift", private, "--before", private)
    assert "day.parquet: is given twice" in twice.err
    same = mapveil(
        "signal", "drift", private, "--before", tmp_path / "copy.parquet", "--false-alarm", 0.5, "--json"
    )
    assert "copy.parquet: has the same bytes as" in same.err
    # Twice the same day: both are as far from each other, which shows no drift.
    assert json.loads(same.out)["p_value"] == 1


def test_an_expired_privatizer_is_refused(mapveil, phones: Path, fitted: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    from mapveil.obfuscation.export.privatizer_file import read_privatizer, write_privatizer

    old = tmp_path / "old.mapveil"
    write_privatizer(replace(read_privatizer(fitted), expires=date(2024, 5, 31)), old)
    done = mapveil("signal", "privatize", old, phones, "-o", tmp_path / "p.parquet")
    assert done.code == 1
    assert "expired on 2024-05-31" in done.err
    assert not (tmp_path / "p.parquet").exists()
