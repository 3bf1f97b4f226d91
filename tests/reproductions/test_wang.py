"""The reproduction whole, on few people; its verdicts, on rows that deserve them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from mapveil.mechanisms.methods import DEFAULT_METHODS
from mapveil_client.errors import InputError, ParameterError
from reproductions.driver import reproduce
from reproductions.wang import beyond as wang_beyond
from reproductions.wang import flows as wang_flows
from reproductions.wang import routes as wang_routes
from reproductions.wang import staircase as wang_staircase
from reproductions.wang.beyond import ALL, PEERS, standing
from reproductions.wang.collections import EMD, KL, L1, UNIFORM, emd_m
from reproductions.wang.data import BEYOND, MERGED, SETS, merged_scene, read_scene
from reproductions.wang.paper import PAPER
from reproductions.wang.sections import (
    NAMES,
    OURS,
    PAPERS,
    PRINTED,
    SRR,
    Found,
    Plan,
    Results,
    default_scheme,
)

TINY = Plan(2, True, 1, 1)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "quick", classmethod(lambda cls: TINY))
    monkeypatch.setattr(wang_routes, "_VEHICLES", 80)
    monkeypatch.setattr(wang_routes, "_EPSILONS", (1.0, 8.0))
    monkeypatch.setattr(wang_staircase, "_PEOPLE", 500)
    monkeypatch.setattr(wang_flows, "_LARGEST", 100)
    few = tuple(s for s in ALL if s.label in {*PEERS, "OLH-H, few levels, smoothed-em", "subset, multiscale"})
    monkeypatch.setattr(wang_beyond, "ALL", few)
    monkeypatch.setattr(wang_beyond, "BEYOND", BEYOND[:1])
    monkeypatch.setattr(wang_beyond, "EPSILONS", (1.0,))
    monkeypatch.setattr(wang_routes, "TRIPS", wang_flows.TRIPS[2:3])
    monkeypatch.setattr(wang_flows, "TRIPS", wang_flows.TRIPS[2:])


def test_every_table_and_figure_is_a_section() -> None:
    numbers = {f"table {number}" for number in (1, 3, *range(4, 15))}
    pictures = {f"figure {number}" for number in (5, 8, 9, 10, 11, 14, 15, 16)}
    assert {section.key for section in PAPER.sections} == numbers | pictures | {"table beyond"}


def test_everything_is_run_and_written(wang_shared: Path, tmp_path: Path) -> None:
    made = reproduce(PAPER, wang_shared, out=tmp_path, quick=True)
    names = {path.name for path in made.paths}
    assert names >= {
        "figure_5.png", "figure_8_l1.png", "figure_8_kl.png", "figure_9.png", "figure_10.png", "figure_11.png",
        "figure_14.png", "figure_15.png", "figure_16.png", "beyond_l1.png", "beyond_kl.png", "beyond_emd.png",
        "rows.csv", "claims.csv", "tables.md", "index.html",
    }  # fmt: skip
    assert list(made.reports) == [section.key for section in PAPER.sections]
    assert {claim.verdict for claim in made.claims} <= {"holds", "holds in part", "does not hold"}
    page = (tmp_path / "index.html").read_text()
    assert all(claim.verdict in page for claim in made.claims)
    # What several sections ask for is run once.
    assert len(set(made.rows)) == len(made.rows)


def test_only_what_is_asked_is_run(tmp_path: Path) -> None:
    made = reproduce(PAPER, tmp_path / "none", out=tmp_path / "out", tables=["1"], quick=True)
    assert list(made.reports) == ["table 1"]
    with pytest.raises(ParameterError, match="table must be one of beyond, 1, 3"):
        reproduce(PAPER, tmp_path, out=tmp_path / "out", tables=["2"])
    with pytest.raises(InputError, match="no such file"):
        reproduce(PAPER, tmp_path, out=tmp_path / "not", tables=["5"], quick=True)
    assert not (tmp_path / "not").exists()


def test_printed_figures_are_whole() -> None:
    def line(table: str, row: str) -> list[float]:
        return [value for key, value in PRINTED.items() if key[:2] == (table, row)]

    small = {number: [line(f"table {number}", name) for name in NAMES] for number in (*range(5, 13), 13, 14)}
    assert all(len(row) == (6 if number < 13 else 4) for number, rows in small.items() for row in rows)
    for data in SETS:
        assert all(len(line("table 3", f"{data.name}: {name}")) == 10 for name in NAMES)
        assert len(line("table 4", data.name)) == 4
    # Everything the paper prints falls with epsilon, but for neighbours, which rise.
    falling = [row for number in range(5, 13) for row in small[number]]
    falling += [line("table 1", name) for name in ("ID-LDP", "GI", "CLDP", SRR)]
    assert all(a >= b for row in falling for a, b in itertools.pairwise(row))
    # The staircase is first in all of its own tables.
    assert all(min(column) == column[-1] for rows in small.values() for column in zip(*rows, strict=True))


def test_sites_are_the_most_visited(wang_shared: Path) -> None:
    for data in (*SETS, *BEYOND):
        scene = read_scene(wang_shared, data)
        assert scene.visits.sum() == scene.people == scene.cells.size
        assert scene.domain.size == scene.visits.size <= data.sites
        assert (np.diff(scene.visits) <= 0).all()
    merged = merged_scene(wang_shared, MERGED)
    parts = [read_scene(wang_shared, data) for data in MERGED]
    assert merged.visits.tolist() == np.concatenate([part.visits for part in parts]).tolist()


def test_people_are_drawn_where_the_paper_has_fewer(wang_shared: Path) -> None:
    whole = read_scene(wang_shared, SETS[1])
    some = read_scene(wang_shared, SETS[1]._replace(people=500))
    assert some.people == 500
    assert (some.visits <= whole.visits).all()


def test_the_earth_movers_distance_is_in_metres(wang_shared: Path) -> None:
    domain = read_scene(wang_shared, SETS[0]).domain
    x, y = domain.plane
    far = int(np.argmax(np.abs(x - x[0]) + np.abs(y - y[0])))
    truth, moved = np.eye(domain.size)[[0, far]]
    metres = abs(x[far] - x[0]) + abs(y[far] - y[0])
    assert emd_m(domain, truth, moved) == pytest.approx(metres, abs=1000)
    assert emd_m(domain, truth, truth) == 0


def test_the_default_is_that_of_the_local_trust() -> None:
    chosen = default_scheme()
    assert (chosen.label, chosen.method) == (OURS, DEFAULT_METHODS["local"])
    assert {scheme.label for scheme in PAPERS} == set(NAMES)
    assert PAPERS[-1].label == SRR


def rows(ours: float, peer: float) -> Results:
    """Every pair with one value everywhere, Mapveil's and the others'."""
    found = [
        Found(data.name, label, level, trial, metric, (ours if label == "subset, multiscale" else peer) + trial / 1e3,
              "beyond")
        for data in BEYOND
        for level in (0.5, 1.0, 2.0, 4.0)
        for metric in (L1, KL, EMD)
        for trial in range(3)
        for label in ("subset, multiscale", *PEERS)
    ]  # fmt: skip
    return Results(found)


def test_a_pair_stands_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wang_beyond, "BEYOND", BEYOND)
    monkeypatch.setattr(wang_beyond, "EPSILONS", (0.5, 1.0, 2.0, 4.0))
    assert "subset, multiscale" in {scheme.label for scheme in ALL}
    assert UNIFORM in PEERS
    better = standing(rows(0.5, 1.0), "subset, multiscale")
    assert (better.ahead, better.clear, better.of, better.short) == (48, 48, 48, ())
    worse = standing(rows(1.0, 0.5), "subset, multiscale")
    assert (worse.ahead, worse.clear) == (0, 0)
    assert worse.worst > 1.9
    assert len(worse.short) == 48
    even = standing(rows(1.0, 1.0), "subset, multiscale")
    assert (even.ahead, even.clear) == (0, 0)
