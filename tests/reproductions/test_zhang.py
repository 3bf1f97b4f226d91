"""The reproduction of privatized measurements whole, on few rows; its verdicts, on points that deserve them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("torch", reason="the adversarial networks need the extra 'neural'")
pytest.importorskip("sklearn", reason="the boosted trees need the extra 'eval'")

from mapveil.attacks.signal_adversary import BlindGuess, SignalAdversary
from mapveil.attacks.signal_neighbours import SignalNeighbours
from mapveil.attacks.signal_network import SignalNetwork
from mapveil.attacks.signal_score import AdversaryScore, SignalAttack
from mapveil.evaluation.signal_trials import SignalTrial
from mapveil_client.errors import InputError, ParameterError
from reproductions.driver import reproduce
from reproductions.zhang import pictures as zhang_pictures
from reproductions.zhang import tables as zhang_tables
from reproductions.zhang.paper import PAPER, run_task
from reproductions.zhang.planes import FIGURE_6, FIGURE_10, against
from reproductions.zhang.sections import GAUSSIAN_DP, Plan, at_level, contenders, split_of
from reproductions.zhang.tables import TABLE_3, TABLE_6, CommonAnswer

TINY = Plan(1, 240, 4, 32, 9, True, (1, 2))
ROWS = 400


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adversaries that only have to run."""

    def weak(**_: object) -> tuple[SignalAdversary, ...]:
        return (BlindGuess(), SignalNeighbours(judged=50), SignalNetwork(epochs=1, hidden=(8,)))

    monkeypatch.setattr(Plan, "quick_run", classmethod(lambda cls: TINY))
    monkeypatch.setattr(Plan, "adversaries", lambda self: weak())
    monkeypatch.setattr(zhang_pictures, "signal_adversaries", weak)
    monkeypatch.setattr(zhang_tables, "signal_adversaries", weak)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up measurements with the columns of the three sets."""
    folder = tmp_path_factory.mktemp("shared")
    draw = np.random.default_rng(5)
    user = draw.integers(0, 4, ROWS)
    place = draw.normal(size=(ROWS, 2)) * 0.01 + user[:, None] * 0.01
    rss = np.rint(-75 - 300 * place[:, 0] + draw.normal(size=ROWS) * 4)
    base = {
        "time": pa.array(np.arange(ROWS) * 1_000_000, type=pa.timestamp("us", tz="UTC")),
        "lat": 35.5 + place[:, 0],
        "lon": 24.0 + place[:, 1],
    }
    near = {f"rss{at}_dbm": rss + draw.integers(-3, 4, ROWS) for at in range(1, 6)}
    sets = {
        "signal_chania_gsm.parquet": {
            "user_id": user, **base, "rss_dbm": rss, **near, "h_accuracy_m": draw.uniform(1, 90, ROWS),
            "is_moving": draw.integers(0, 2, ROWS), "cell_id": draw.integers(1, 5, ROWS),
            "arfcn": draw.integers(700, 720, ROWS),
        },
        "signal_cork_5g.parquet": {
            "trace_id": user, **base, "rsrp_dbm": rss, "speed_kmh": draw.uniform(0, 50, ROWS),
        },
        "signal_ujiindoorloc_train_even_users.parquet": {
            "user_id": user, **base, "max_rss_dbm": rss, "n_ap_heard": draw.integers(3, 30, ROWS),
            "building": draw.integers(0, 3, ROWS), "floor": draw.integers(0, 5, ROWS),
            **{f"wap{at:03d}_dbm": rss - draw.integers(0, 20, ROWS) for at in range(1, 521)},
        },
    }  # fmt: skip
    for name, columns in sets.items():
        pq.write_table(pa.table(columns), folder / name)
    return folder


@pytest.mark.parametrize(
    ("tables", "figures"), [(["3", "4", "6"], ["4"]), ([], ["7", "8", "10"]), (["5", "beyond"], ["12"])]
)
def test_sections_are_run_and_written(
    shared: Path, tmp_path: Path, tables: list[str], figures: list[str]
) -> None:
    made = reproduce(PAPER, shared, out=tmp_path, tables=tables, figures=figures, quick=True)
    assert set(made.reports) == {f"table {name}" for name in tables} | {f"figure {name}" for name in figures}
    assert (tmp_path / "index.html").is_file()
    assert (tmp_path / "tables.md").read_text().count("## ") >= len(tables)
    for picture in (picture for report in made.reports.values() for picture in report.pictures):
        assert (tmp_path / f"{picture.name}.png").read_bytes().startswith(b"\x89PNG")
    assert {claim.verdict for claim in made.claims} <= {"holds", "holds in part", "does not hold"}


def test_what_is_wrong_is_said(shared: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="table must be one of 3, 4"):
        reproduce(PAPER, shared, out=tmp_path, tables=["9"])
    with pytest.raises(InputError, match="no such file"):
        reproduce(PAPER, tmp_path / "nowhere", out=tmp_path, tables=["3"], quick=True)


def test_every_section_has_its_own_key() -> None:
    assert len({section.key for section in PAPER.sections}) == len(PAPER.sections)


def test_a_trial_is_parted_by_runs_and_asked_for_once(shared: Path) -> None:
    split = split_of("chania", TINY, shared, 1, 0, length=4)
    assert split is split_of("chania", TINY, shared, 1, 0, length=4)
    assert not set(split.pilot.positions) & set(split.held_out.positions)
    assert len(split.pilot) % 4 == 0
    assert len(split.pilot) + len(split.held_out) == TINY.rows
    # Whole runs: four of one user after each other in time.
    runs = split.pilot.sequences(4)
    assert len(runs) == len(split.pilot) // 4


def test_random_data_cost_the_root_of_twice_the_features(shared: Path) -> None:
    [task] = TABLE_3.jobs(TINY, shared, 1)
    u1, u2 = run_task(task)
    features = task.split.pilot.features
    assert -u1 == pytest.approx(np.sqrt(2 * features), rel=0.15)
    assert u2 < 0


def test_everybody_is_in_the_plane() -> None:
    full = contenders(Plan.full())
    assert GAUSSIAN_DP.label in {each.label for each in full}
    assert all(each.make(each.values[0]).name == each.privatizer for each in full)


def _trial(label: str, value: float, u: float, p: float, *, network: float | None = None) -> SignalTrial:
    def score(adversary: str, total: float) -> AdversaryScore:
        return AdversaryScore(adversary, "own", total / 2, 1.0, total / 2, 100.0, total, 10)

    scores = (score("network", p if network is None else network), score("trees", p))
    return SignalTrial(
        "chania", label, "sigma", value, 0, u / 2, u / 2, u, 3.0, p / 2, p / 2, 100.0, p, p, "trees", 0, 0, 0,
        SignalAttack(scores, (1.0, 1.0)),
    )  # fmt: skip


def test_levels_are_interpolated_between_measured_points() -> None:
    trials = [
        _trial("noise", 1.0, -1.0, 0.2),
        _trial("noise", 3.0, -3.0, 0.6),
        _trial("alone", 1.0, -1.0, 0.2),
    ]
    found = at_level(trials, lambda point: point.means["u"], -2.0)
    assert set(found) == {"noise"}
    assert found["noise"]["p"] == pytest.approx(0.4)
    assert found["noise"]["value"] == pytest.approx(2.0)
    assert at_level(trials, lambda point: point.means["u"], -9.0) == {}


def test_one_adversary_can_be_asked_for() -> None:
    [kept] = against([_trial("noise", 1.0, -1.0, 0.2, network=0.9)], "network")
    assert (kept.p, kept.strongest) == (0.9, "network")


@pytest.mark.parametrize(("ahead", "verdict"), [(1.0, "holds"), (-1.0, "does not hold")])
def test_the_plane_is_judged_at_equal_utility(ahead: float, verdict: str) -> None:
    trials = []
    for group in ("chania", "uji", "cork"):
        for label, bonus in (("noise", 0.0), (GAUSSIAN_DP.label, -0.1), ("GAP, the paper's", 0.3 * ahead)):
            trials += [
                _trial(label, float(at), -float(at), 0.5 + 0.1 * at + bonus)._replace(group=group)
                for at in range(1, 5)
            ]
    report = FIGURE_10.report([], trials)
    orderings = [claim for claim in report.claims if "lie above" in claim.claim]
    assert len(orderings) == 6
    assert {claim.verdict for claim in orderings} == {verdict}


def test_curves_that_grow_together_are_told() -> None:
    trials = [_trial("noise", float(at), -float(at), 0.1 * at) for at in (1, 2, 3)]
    report = FIGURE_6.report([], trials)
    assert [claim.verdict for claim in report.claims] == ["holds"]
    turned = [_trial("noise", float(at), -float(at), 1 - 0.1 * at) for at in (1, 2, 3)]
    assert [claim.verdict for claim in FIGURE_6.report([], turned).claims] == ["holds in part"]


def test_the_table_of_adversaries_compares_at_the_papers_utility() -> None:
    kinds = ("own", "unobfuscated", "aggregate", "v = 0.8, 0.2", "v = 0.2, 0.8")

    def answer(at: int) -> tuple[CommonAnswer, ...]:
        levels = {
            "noise": 0.1,
            "GAP, the paper's": 0.9,
            "IT, the paper's": 0.5,
            "GAP with noise": 0.6,
            "funnel": 1.0,
        }
        return tuple(
            CommonAnswer(label, float(at), 0, -1.5 - at, dict.fromkeys(kinds, level + at), level * 0.1)
            for label, level in levels.items()
        )

    report = TABLE_6.report([], [answer(0), answer(2)])
    [table] = report.tables
    assert table.rows[0][0] == "noise at 1"
    assert table.rows[0][1] == "0.13 | 1.10"
    assert {claim.verdict for claim in report.claims} == {"holds"}
