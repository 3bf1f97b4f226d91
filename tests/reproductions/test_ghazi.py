"""The experiments of Ghazi et al. (2023): people, claims, and a whole small report."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mapveil.evaluation.comparison import Comparison, Row
from mapveil.evaluation.scoring import higher_is_better
from mapveil.geo.counts import Counts
from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil_client.errors import InputError
from reproductions.driver import reproduce
from reproductions.ghazi import experiments, paper
from reproductions.ghazi.claims import (
    Sweep,
    epsilon_claims,
    lead,
    ours_against_peers,
    resolution_claims,
    users_claims,
)
from reproductions.ghazi.data import BOX, PARTS, CheckIns, read_check_ins, read_grids
from reproductions.ghazi.experiments import METHODS, METRICS, Plan, cities
from reproductions.ghazi.reports import comparisons, grid_table
from reproductions.results import Results

SHARED = Path(__file__).resolve().parents[2] / "../shared/data"


def made_check_ins() -> CheckIns:
    """Two cells of the partition with 520 and 210 users, and one with too few."""
    rng = np.random.default_rng(0)
    user, cell, offset = [], [], []
    for code, users in ((54449, 520), (54450, 210), (54451, 20)):
        people = np.repeat(np.arange(users), rng.integers(1, 4, users))
        user.append(people + 1000 * code)
        cell.append(np.full(people.size, code))
        offset.append(rng.beta(2, 5, (people.size, 2)))
    cells, offsets = np.concatenate(cell), np.concatenate(offset)
    row, column = np.divmod(cells, PARTS)
    lon = BOX[0] + (column + offsets[:, 0]) * (BOX[2] - BOX[0]) / PARTS
    lat = BOX[1] + (row + offsets[:, 1]) * (BOX[3] - BOX[1]) / PARTS
    users = np.unique(np.concatenate(user), return_inverse=True)[1]
    return CheckIns(users.astype(np.int64), lon, lat, np.ones(lon.size), cells)


TINY = Plan(2, 1, (Fraction(1, 2), Fraction(1), Fraction(2)), (50, 100), (3, 4), 2, (50, None), 1, 1e-2)


def test_busy_cells_are_counted_by_distinct_users() -> None:
    check_ins = made_check_ins()
    found = cities(check_ins, 2)
    assert [city.users for city in found] == [520, 210]
    assert found[0].check_ins == int((check_ins.cell == 54449).sum())
    people = check_ins.shares(found[0], 4)
    assert people.users == 520
    with pytest.raises(InputError, match="must have 3 cells with 200 users, got 2"):
        cities(check_ins, 3)


def test_the_shared_check_ins_give_thirty_cells() -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared data sets are not here")
    check_ins = read_check_ins(SHARED)
    found = cities(check_ins, 30)
    assert len(check_ins.cities(200)) == 90
    assert [found[0].users, found[0].check_ins] == [4023, 97373]
    assert min(city.users for city in found) >= 200
    grids = read_grids(SHARED, ["Gowalla, world", "Singapore"])
    assert int(grids["Gowalla, world"].values.sum()) == 6_442_863
    assert grids["Singapore"].tiling.size == 375 * 579


def test_missing_data_are_said() -> None:
    with pytest.raises(InputError, match="no such file; put the data sets"):
        read_check_ins(Path("nowhere"))


def test_the_whole_reproduction_writes_a_whole_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = np.random.default_rng(1).integers(0, 9, 64)
    grid = Counts(counts, Grid(Region.without_georeference(8, 8), rows=8, columns=8), "made up")
    monkeypatch.setattr(Plan, "quick", classmethod(lambda cls: TINY))
    monkeypatch.setattr(experiments, "DEPTH", 4)
    monkeypatch.setattr(experiments, "GRIDS", {"made up": ""})
    for module in (experiments, paper):
        monkeypatch.setattr(module, "read_check_ins", lambda shared: made_check_ins())
    monkeypatch.setattr(experiments, "read_grids", lambda shared, names: {"made up": grid})
    heard: list[float] = []
    made = reproduce(
        paper.PAPER, tmp_path, out=tmp_path / "out", quick=True, seed=1,
        progress=lambda step, done: heard.append(done),
    )  # fmt: skip
    assert (heard[0], heard[-1]) == (0.0, 1.0)
    names = {path.name for path in made.paths}
    assert names == {path.name for path in (tmp_path / "out").iterdir()}
    assert {"index.html", "rows.csv", "claims.csv", "examples.png", "tables.md"} <= names
    first = comparisons(Results(made.rows), "epsilon")["epsilon"]
    assert len(first.rows) == 2 * len(METHODS) * 3 * len(METRICS)
    with (tmp_path / "out" / "rows.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["experiment"] for row in rows} == {
        "epsilon", "users", "resolution", "grid, cells", "grid, heatmap",
    }  # fmt: skip
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "http" not in page.replace("http-equiv", "")


def comparison(better: str, worse: tuple[str, ...], trials: int = 6) -> Comparison:
    """Values in which one method is ahead of the others on every metric."""
    rng = np.random.default_rng(3)
    rows = []
    for method in (better, *worse):
        for epsilon in (0.1, 0.5, 1.0, 2.0, 5.0, 10.0):
            for trial in range(trials):
                for metric in METRICS:
                    good = 0.9 if higher_is_better(metric) else 0.1
                    value = (good if method == better else 0.5) + rng.normal(0, 0.01)
                    rows.append(Row(method, epsilon, trial, metric, value, 0.0))
    return Comparison(tuple(rows), "made up")


def test_claims_are_judged_by_the_rows() -> None:
    others = tuple(method for method in METHODS if method != "emd")
    ahead, behind = (
        comparison("emd", others),
        comparison("laplace", tuple(m for m in METHODS if m != "laplace")),
    )
    assert lead(ahead, "emd", "laplace", "kl", 1.0).clear
    assert lead(ahead, "laplace", "emd", "similarity", 1.0).mean < 0
    sweep = Sweep("users", {50.0: ahead, 500.0: ahead})
    flat = Sweep("resolution", {64.0: ahead, 256.0: ahead})
    claims = [*epsilon_claims(ahead), *users_claims(sweep), *resolution_claims(flat)]
    verdicts = {claim.claim: claim.verdict for claim in claims}
    assert [verdict for text, verdict in verdicts.items() if "EMD method is ahead of" in text] == [
        "holds"
    ] * 2
    assert [verdict for text, verdict in verdicts.items() if "constant" in text] == ["holds"]
    against = epsilon_claims(behind)
    assert against[0].verdict == "does not hold"
    assert "behind on similarity at ε = 0.5 against laplace" in against[0].evidence


def test_ours_against_peers_and_ranks() -> None:
    first = comparison("multiscale", tuple(method for method in METHODS if method != "multiscale"))
    assert ours_against_peers("x", {"": first}).verdict == "holds"
    behind = comparison("privtree", tuple(method for method in METHODS if method != "privtree"))
    assert ours_against_peers("x", {"": behind}).verdict != "holds"
    for metric in METRICS:
        header, rows = grid_table({"somewhere": behind}, metric)
        assert header == ["method", "somewhere", "mean", "mean rank"]
        assert [row[0] for row in rows if row[1].startswith("*")] == ["privtree"]
