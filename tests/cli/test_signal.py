"""``mapveil signal``: from a pilot to a privatized file, its attack, the trade-off and a choice; bad input."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from .conftest import NOT_PRIVATE

ROWS = 320


@pytest.fixture(scope="session")
def phones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measurements of four users around places of their own, stronger in the east."""
    draw = np.random.default_rng(1)
    users = np.arange(ROWS) % 4
    lat, lon = ([35.51, 24.02] + 0.004 * users[:, None] + draw.normal(size=(ROWS, 2)) * 0.002).T
    strength = np.round(-100 + 1000 * (lon - 24.0) + draw.normal(0, 3, ROWS)).astype(int)
    path = tmp_path_factory.mktemp("phones") / "phones.csv"
    table = {"user_id": users, "time": pd.date_range("2024-05-01", periods=ROWS, freq="min")}
    table |= {"lat": lat, "lon": lon, "rss_dbm": strength, "speed": draw.normal(size=ROWS), "mast": 7}
    pd.DataFrame(table).to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def noise(phones: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted privatizer."""
    from mapveil.geo.read_measurements import read_measurements
    from mapveil.obfuscation.export.privatizer_file import write_privatizer
    from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian

    path = tmp_path_factory.mktemp("fitted") / "noise.mapveil"
    write_privatizer(LocalGaussian(epsilon=30).fit(read_measurements(phones), rng=1), path)
    return path


def test_the_group_lists_its_commands(mapveil) -> None:
    done = mapveil("signal", "--help")
    assert done.code == 0
    for name in ("fit", "privatize", "attack", "tradeoff", "choose", "map"):
        assert f"  {name} " in done.out
        assert mapveil("signal", name, "--help").code == 0
    assert mapveil("signal", "scramble").code == 2


def test_fit_names_every_privatizer(mapveil) -> None:
    from mapveil.obfuscation.privatizers.privatizer import PRIVATIZERS

    said = "".join(mapveil("signal", "fit", "--help").out.split())  # a line may end within a name
    assert all(row.name in said for row in PRIVATIZERS)


def test_fit_writes_for_servers_and_phones(mapveil, phones: Path, tmp_path: Path) -> None:
    from mapveil.obfuscation.export.privatizer_file import read_privatizer

    out, phone = tmp_path / "n.mapveil", tmp_path / "n.json"
    done = mapveil(
        *("signal", "fit", phones, "--privatizer", "gaussian-noise", "--option", "sigma=0.5", "--rows", 200),
        *("--seed", 1, "-o", out, "-o", phone, "--json"),
    )
    assert done.code == 0, done.err
    assert "mast" in done.err  # constant, so left out, and said
    record = json.loads(done.out)
    assert record["features"] == ["lat", "lon", "rss_dbm", "speed"]
    assert record["pilot_rows"] == 200
    assert record["parameters"]["sigma"] == 0.5
    assert record["guarantee"]["epsilon"] is None
    assert read_privatizer(out).names == tuple(record["features"])
    assert json.loads(phone.read_text())["method"] == "gaussian-noise"


def test_privatize_keeps_columns_and_empties_what_it_does_not_privatize(
    mapveil, phones: Path, noise: Path, tmp_path: Path
) -> None:
    out, table = tmp_path / "private.csv", tmp_path / "private.parquet"
    done = mapveil("signal", "privatize", noise, phones, "--keep", "mast", "-o", out, "-o", table, "--json")
    assert done.code == 0, done.err
    assert "mast left as it is" in done.err
    record = json.loads(done.out)
    assert record["emptied"] == ["user_id", "time"]
    assert record["guarantee"]["epsilon"] == "30"
    assert not record["guarantee"]["seeded"]
    before, after = pd.read_csv(phones), pd.read_csv(out)
    assert list(after.columns) == list(before.columns)
    assert len(after) == ROWS
    assert after["user_id"].isna().all()
    assert (after["mast"] == 7).all()
    assert (after["lat"] != before["lat"]).all()
    assert after["rss_dbm"].dtype == "float64"  # not of the true values, which are whole
    pd.testing.assert_frame_equal(pd.read_parquet(table)[["lat", "lon"]], after[["lat", "lon"]])


def test_privatize_reads_standard_input_and_confesses_a_seed(
    mapveil, phones: Path, noise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outs = []
    for at in range(2):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(phones.read_bytes())))
        outs.append(tmp_path / f"{at}.csv")
        done = mapveil("signal", "privatize", noise, "-", "--seed", 3, "-o", outs[-1])
        assert done.code == 0, done.err
        assert "NOT FOR RELEASE" in done.err
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_attack_reads_what_privatize_wrote(
    mapveil, phones: Path, noise: Path, tmp_path: Path, headings: list[str]
) -> None:
    pytest.importorskip("sklearn")
    private = tmp_path / "private.parquet"
    assert mapveil("signal", "privatize", noise, phones, "-o", private).code == 0
    done = mapveil("signal", "attack", private, "--truth", phones)
    assert "its reports are shuffled" in done.err
    assert mapveil("signal", "privatize", noise, phones, "--seed", 1, "-o", private).code == 0
    outputs = [tmp_path / f"attack{suffix}" for suffix in (".json", ".html", ".png")]
    asked = [
        "signal",
        "attack",
        private,
        "--truth",
        phones,
        "--quick",
        "--no-network",
        "--pilot",
        0.6,
        "--json",
    ]
    done = mapveil(*asked, *(part for output in outputs for part in ("-o", output)))
    assert done.code == 0, done.err
    assert "true data" in done.err
    assert {head.splitlines()[0] for head in headings} == {NOT_PRIVATE}
    assert len(headings) == 2  # of the page, and the picture by itself
    record = json.loads(done.out)
    scores = {each["adversary"]: each for each in record["adversaries"]}
    assert set(scores) == {"blind", "as reported", "trees", "neighbours", "codes"}
    assert record["strongest"] == min(scores, key=lambda name: scores[name]["p"])
    assert scores["blind"]["runs"] == round(0.4 * ROWS)
    assert record["utility"]["u1"] < 0
    assert json.loads(outputs[0].read_text())["adversaries"] == record["adversaries"]
    assert "it is NOT private" in outputs[1].read_text()
    # What was not privatized at all is worse: places are seen as they are.
    raw = json.loads(mapveil("signal", "attack", phones, *asked[3:]).out)
    assert raw["utility"]["total"] == pytest.approx(0, abs=0.1)
    assert raw["floor"] < record["floor"]


@pytest.fixture(scope="session")
def tradeoff_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two privatizers whose trade-off is known."""
    from mapveil.evaluation.signal_report import write_tradeoff
    from mapveil.evaluation.signal_tradeoff import Tradeoff, TradeoffPoint

    points = []
    for name, knob, slope in (("gap", "rho", 1.0), ("gaussian-noise", "sigma", 2.0)):
        for value in (0.1, 0.2, 0.4):
            means = {"u1": -10 * value * slope, "u2": -value, "p1": value, "p2": value, "p2_m": 1000 * value}
            means |= {"u": means["u1"] + means["u2"], "rmse_dbm": 3.0, "p": 2 * value, "floor": 2 * value}
            means |= {"gain_db": 1 - value, "places_db": 4.0, "later_db": 4.0, "epsilon": 9.0}
            points.append(TradeoffPoint("g", name, knob, value, 1, means, means, means))
    folder = tmp_path_factory.mktemp("tradeoff")
    pytest.importorskip("matplotlib")
    write_tradeoff(Tradeoff((), tuple(points), {}), folder)
    return folder


def test_choose_reads_a_trade_off(mapveil, tradeoff_folder: Path) -> None:
    done = mapveil("signal", "choose", tradeoff_folder, "--distortion-at-most", 3, "--json")
    assert done.code == 0, done.err
    gap, noise = json.loads(done.out)["choices"]
    assert (gap["privatizer"], noise["privatizer"]) == ("gap", "gaussian-noise")
    assert gap["value"] == pytest.approx(0.3, abs=0.01)
    assert noise["value"] == pytest.approx(0.15, abs=0.01)
    done = mapveil("signal", "choose", tradeoff_folder, "--location-error-at-least", 300)
    assert "rho=0.3" in done.out
    done = mapveil("signal", "choose", tradeoff_folder, "--distortion-at-most", 0.5)
    assert done.code == 1
    assert "nothing keeps distortion at most 0.5" in done.err
    done = mapveil("signal", "choose", tradeoff_folder, "--gain-at-least", 0.7, "--json")
    assert json.loads(done.out)["choices"][0]["value"] == pytest.approx(0.3, abs=0.01)


def test_tradeoff_measures_draws_and_can_be_chosen_from(
    mapveil, phones: Path, tmp_path: Path, headings: list[str]
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    out = tmp_path / "tradeoff"
    asked = ["--privatizers", "gaussian-noise", "--quick", "--rows", 160, "-v"]
    done = mapveil("signal", "tradeoff", phones, *asked, "-o", out, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert record["verdict"].startswith("do not collect")
    assert "P1 is not measured" in done.err  # a table of one day
    assert "curve of sums, trial 1 of 1: " in done.err
    assert sum(line.startswith("trials: ") for line in done.err.splitlines()) == 10  # a tenth each
    own = [point for point in record["points"] if point["privatizer"] == "gaussian-noise"]
    assert [point["value"] for point in own] == [0.05, 0.2, 0.6]
    assert record["points"][0]["privatizer"] == "pilot only, collect nothing"
    assert {head.splitlines()[0] for head in headings} == {NOT_PRIVATE}
    assert len(headings) == 4  # pictures
    assert sorted(path.name for path in out.iterdir()) == [
        *("curve.csv", "curve.png", "index.html", "parameters.png", "plane.png"),
        *("points.csv", "tradeoff.png", "trials.csv"),
    ]
    over_pilot = {"pilot_gain_db", "pilot_low", "pilot_high"}
    assert record["curve"][0].keys() == {"epsilon", "units", "gain_db", "low", "high"} | over_pilot
    assert set(record["units_needed"]) == {"1", "2", "4"}
    trials = pd.read_csv(out / "trials.csv")
    assert (trials["u1"][trials["privatizer"] == "gaussian-noise"].diff()[1:] < 0).all()
    done = mapveil("signal", "choose", out, "--distortion-at-most", 100)
    assert done.code == 0, done.err
    assert "sigma=" in done.out or "do not collect" in done.out


def test_not_to_collect_is_an_answer(mapveil, tradeoff_folder: Path, tmp_path: Path) -> None:
    table = pd.read_csv(tradeoff_folder / "points.csv").assign(gain_db=-1.0)
    table.to_csv(tmp_path / "points.csv", index=False)
    done = mapveil("signal", "choose", tmp_path, "--location-error-at-least", 300)
    assert done.code == 0, done.err
    assert done.out.startswith("do not collect")
    done = mapveil("signal", "choose", tmp_path, "--location-error-at-least", 300, "--json")
    assert json.loads(done.out)["collect"] is False
    # A gain whose interval holds 0 is not told from none.
    table = table.assign(gain_db=0.3, gain_db_low=-0.1, trials=3)
    table.to_csv(tmp_path / "points.csv", index=False)
    done = mapveil("signal", "choose", tmp_path, "--location-error-at-least", 300)
    assert done.out.startswith("do not collect: no gain is told from zero by 3 trials")
    table.assign(gain_db_low=0.29).to_csv(tmp_path / "points.csv", index=False)
    done = mapveil("signal", "choose", tmp_path, "--location-error-at-least", 300, "--json")
    assert json.loads(done.out)["collect"] is True
    table.assign(p1=math.nan).to_csv(tmp_path / "points.csv", index=False, na_rep="nan")
    done = mapveil("signal", "choose", tmp_path, "--user-error-at-least", 0.5)
    assert done.code == 2
    assert "user error at least 0.5 cannot be judged on this data" in done.err


FIT = ("fit", "{phones}", "-o", "out.mapveil", "--privatizer")
PRIVATIZE = ("privatize", "{noise}")
TRADEOFF = ("tradeoff", "{phones}", "-o", "out")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*FIT, "blur"), "no privatizer is called 'blur'"),
        ((*FIT, "gap", "--option", "rho=2"), "rho must be"),
        ((*FIT, "gap", "--option", "width"), "--option must be key=value"),
        ((*FIT, "gaussian-noise"), "needs the option 'sigma'"),
        ((*FIT, "local-gaussian", "--option", "epsilon=x"), "epsilon"),
        ((*FIT, "local-gaussian", "--option", "epsilon=1", "--rows", "1"), "'--rows'"),
        ((*FIT, "local-gaussian", "--option", "epsilon=1", "-o", "out.onnx"), "is exported as .json"),
        ((*FIT, "codebook", "-o", "out.json"), "is exported as .onnx"),
        ((*FIT, "codebook", "-o", "out.txt"), "the suffix must be one of"),
        ((*FIT, "codebook", "-o", "gone/out.onnx"), "the folder gone must exist"),
        ((*FIT, "local-gaussian", "--option", "epsilon=1", "--feature", "mast"), "mast"),
        ((*FIT, "local-gaussian", "--option", "epsilon=1", "--rss", "level"), "no column 'level' for rss"),
        ((*FIT, "local-gaussian", "--option", "epsilon=1", "--rss", "user_id"), "a signal strength from -160 to 0"),
        ((*PRIVATIZE, "{phones}", "-o", "out.xlsx"), "the suffix must be one of"),
        ((*PRIVATIZE, "{phones}", "-o", "out.csv", "--keep", "nobody"), "'nobody' cannot be kept"),
        ((*PRIVATIZE, "{phones}", "-o", "out.csv", "--keep", "lat"), "'lat' cannot be kept"),
        ((*PRIVATIZE, "gone.csv", "-o", "out.csv"), "gone.csv: no such file"),
        (("privatize", "{phones}", "{phones}", "-o", "out.csv"), "phones.csv: "),
        (("privatize", "gone.mapveil", "{phones}", "-o", "out.csv"), "gone.mapveil: no such file"),
        (("attack", "{phones}", "-o", "out.json"), "Missing option '--truth'"),
        (("attack", "{phones}", "--truth", "{phones}", "-o", "out.tif"), "the suffix must be one of"),
        (("attack", "{phones}", "--truth", "{phones}", "--split", "week", "-o", "out.png"), "split must be"),
        (("attack", "{phones}", "--truth", "{phones}", "--pilot", "1", "-o", "out.png"), "pilot must be a fraction"),
        (("attack", "{phones}", "--truth", "{phones}", "--sequence", "500", "-o", "out.png"), "no user has 500"),
        (("attack", "{phones}", "--truth", "{phones}", "--sequence", "0", "-o", "out.png"), "length"),
        ((*TRADEOFF, "--privatizers", "blur"), "got 'blur'"),
        ((*TRADEOFF, "--privatizers", "gap", "--option", "codebook:size=9"), "options must be of gap, got 'codebook'"),
        ((*TRADEOFF, "--privatizers", "gap", "--option", "size=9"), "--option must be NAME:key=value"),
        ((*TRADEOFF, "--privatizers", "gap", "--option", "gap:size=9"), "gap has no option 'size'"),
        ((*TRADEOFF, "--rows", "-5"), "'--rows'"),
        ((*TRADEOFF, "--trials", "0"), "trials must be"),
        (("choose", "{phones}"), "no constraint"),
        (("choose", "gone", "--distortion-at-most", "3"), "expected one that 'mapveil signal tradeoff' wrote"),
        (("choose", ".", "--distortion-at-most", "3"), "points.csv: no such file"),
        (("choose", "{phones}", "--distortion-at-most", "-3"), "--distortion-at-most"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_nothing_written(
    mapveil, phones: Path, noise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    done = mapveil("signal", *(part.format(phones=phones, noise=noise) for part in arguments))
    assert done.code == 2, done
    errors = [line for line in done.err.strip().splitlines() if not line.startswith("note: ")]
    assert len(errors) == 1, done.err
    assert said in errors[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rss_dbm": None}, "no column"),
        ({"rss_dbm": 5}, "column 'rss_dbm' is '5'; expected a signal strength from -160 to 0 dBm"),
        ({"rss_dbm": -999}, "column 'rss_dbm' is '-999'; expected a signal strength from -160 to 0 dBm"),
        ({"rss_dbm": -70}, "rss_dbm"),  # the same in every row
        ({"lat": 91.5}, "column 'lat' is '91.5'; expected a latitude"),
        ({"lon": "NaN"}, "column 'lon' is 'NaN'"),
        ({"speed": "inf"}, "column 'speed' is 'inf'"),
        ({"user_id": 3}, "one user only"),
        ({"user_id": ""}, "has no user id"),
    ],
)
def test_rows_that_cannot_be_are_named(
    mapveil, phones: Path, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    table = pd.read_csv(phones, dtype=str)
    ((name, value),) = change.items()
    if value is None:
        table = table.drop(columns=[name])
    elif name in ("user_id",) or value == -70:
        table[name] = str(value)
    else:
        table.loc[10, name] = str(value)
    source, out = tmp_path / "rows.csv", tmp_path / "out.mapveil"
    table.to_csv(source, index=False)
    done = mapveil(
        *("signal", "fit", source, "--privatizer", "gaussian-noise", "--option", "sigma=1", "-o", out),
        *("--feature", "speed"),
    )
    assert done.code == 2, done
    assert said in done.err
    assert "rows.csv" in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not out.exists()


def test_other_columns_than_the_pilot_s_are_refused(
    mapveil, phones: Path, noise: Path, tmp_path: Path
) -> None:
    other, out = tmp_path / "other.csv", tmp_path / "out.csv"
    pd.read_csv(phones).drop(columns=["speed"]).to_csv(other, index=False)
    done = mapveil("signal", "privatize", noise, other, "-o", out)
    assert done.code == 2
    assert "other.csv: no column 'speed'" in done.err
    assert not out.exists()


def test_a_privatizer_of_another_version_is_refused(
    mapveil, phones: Path, noise: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    for at, change in enumerate(
        (lambda data: data[:-20], lambda data: b"MAPVEIL9" + data[8:], lambda _: b"")
    ):
        broken = tmp_path / f"{at}.mapveil"
        broken.write_bytes(change(noise.read_bytes()))
        done = mapveil("signal", "privatize", broken, phones, "-o", out)
        assert done.code == 2
        assert f"{at}.mapveil" in done.err
        assert len(done.err.strip().splitlines()) == 1
    assert not out.exists()


def test_attack_tells_rows_that_do_not_match(mapveil, phones: Path, noise: Path, tmp_path: Path) -> None:
    fewer, other = tmp_path / "fewer.csv", tmp_path / "other.csv"
    table = pd.read_csv(phones)
    table.iloc[:-5].to_csv(fewer, index=False)
    table.drop(columns=["speed"]).to_csv(other, index=False)
    done = mapveil("signal", "attack", fewer, "--truth", phones)
    assert done.code == 2
    assert f"{ROWS - 5} rows; expected the {ROWS} complete rows of the truth" in done.err
    done = mapveil("signal", "attack", other, "--truth", phones)
    assert done.code == 2
    assert "no column 'speed'" in done.err
