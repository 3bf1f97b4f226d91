"""Each command and its Python function give the same answer under a seed, and charge the same account."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil_client.errors import BudgetExceeded, ParameterError

BOX = "-74.03,40.69,-73.90,40.83"


def values(path: Path) -> np.ndarray[Any, Any]:
    return mv.read_map(path).values


@pytest.mark.parametrize(
    ("flags", "given"),
    [
        ((), {}),
        (("--method", "emd", "--option", "width=20"), {"method": "emd", "options": {"width": 20}}),
        (("--trust", "distributed", "--dropout", "0.05"), {"trust": "distributed", "dropout": 0.05}),
        (("--trust", "local"), {"trust": "local"}),
    ],
)
def test_release(
    mapveil: Callable, table: Path, tmp_path: Path, flags: tuple[str, ...], given: dict[str, Any]
) -> None:
    path = tmp_path / "map.parquet"
    asked = ("--region", BOX, "--tiling", "quadtree:4", "--epsilon", "2", "--seed", "5", *flags)
    done = mapveil("release", table, *asked, "-o", path)
    assert done.code == 0, done.err
    points, region = mv.read_points(table), mv.Region.parse(BOX)
    by_text = mv.release(points, "quadtree:4", region=region, epsilon=2, rng=5, **given)
    by_cells = mv.release(points, mv.Quadtree(region, depth=4), epsilon=2, rng=5, **given)
    assert values(path).tolist() == by_text.values.tolist() == by_cells.values.tolist()
    assert mv.read_map(path).guarantee == by_text.guarantee


def test_a_mechanism_brings_its_parameters_and_trust_model(table: Path) -> None:
    points, region = mv.read_points(table), mv.Region.parse(BOX)
    tiling = mv.Grid(region, rows=8, columns=8)
    mechanism = mv.mechanisms.GeneralizedRandomizedResponse(epsilon=2)
    heat = mv.release(points, tiling, method=mechanism, rng=5)
    assert heat.values.tolist() == mechanism.release(points, tiling, rng=5).values.tolist()
    with pytest.raises(ParameterError, match="leave out epsilon"):
        mv.release(points, tiling, method=mechanism, epsilon=1)
    with pytest.raises(ParameterError, match="region"):
        mv.release(points, "grid:8x8", method=mechanism)


@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
def test_the_account_is_charged_once_and_named_in_the_guarantee(
    table: Path, tmp_path: Path, trust: str
) -> None:
    points, region = mv.read_points(table), mv.Region.parse(BOX)
    tiling = mv.Quadtree(region, depth=3)
    ledger = mv.Ledger(tmp_path / "ledger.sqlite")
    heat = mv.release(points, tiling, epsilon=2, trust=trust, account=mv.Account("checkins", ledger))
    assert ledger.account("checkins").spent == Fraction(2)
    assert heat.guarantee.account is not None
    assert heat.guarantee.account.entries == tuple(entry.id for entry in ledger.entries("checkins"))
    with pytest.raises(BudgetExceeded):
        mv.release(points, tiling, epsilon=2, trust=trust, account=mv.Account(ledger=ledger))
    assert ledger.account("checkins").spent == Fraction(2)
    assert mv.release(points, tiling, epsilon=2, trust=trust, account=None).guarantee.account is None


def test_neighbours(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    path = tmp_path / "near.csv"
    done = mapveil("neighbours", table, "--region", BOX, "--tiling", "grid:8x8", "--epsilon", "2", "-k", "7",
                   "--seed", "5", "--at", "-73.98,40.75", "--json", "-o", path)  # fmt: skip
    assert done.code == 0, done.err
    near = mv.neighbours(
        mv.read_points(table), "grid:8x8", k=7, epsilon=2, region=mv.Region.parse(BOX), rng=5
    )
    near.write_lists(tmp_path / "ours.csv")
    assert path.read_bytes() == (tmp_path / "ours.csv").read_bytes()
    assert json.loads(done.out)["places"] == [near.nearest(-73.98, 40.75)]


def test_flows(mapveil: Callable, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    ends = np.hstack(
        [draw.normal([-8.66, 41.12], 0.003, (900, 2)), draw.normal([-8.56, 41.20], 0.003, (900, 2))]
    )
    table, path = tmp_path / "trips.csv", tmp_path / "flows.csv"
    rows = [f"u{at}," + ",".join(f"{value:.6f}" for value in row) for at, row in enumerate(ends)]
    table.write_text("\n".join(["user_id,lon,lat,dest_lon,dest_lat", *rows]))
    box = "-8.70,41.10,-8.52,41.22"
    done = mapveil("flows", table, "--region", box, "--epsilon", "2", "--seed", "5", "-o", path)
    assert done.code == 0, done.err
    mv.flows(mv.read_trips(table), epsilon=2, region=mv.Region.parse(box), rng=5).save(tmp_path / "ours.csv")
    assert path.read_bytes() == (tmp_path / "ours.csv").read_bytes()


def test_audit(mapveil: Callable) -> None:
    (record,) = json.loads(
        mapveil("audit", "--methods", "laplace", "--trials", "1320", "--seed", "5", "--json").out
    )
    report = mv.audit("laplace", trials=1320, rng=5)
    assert record["epsilon_lower"] == pytest.approx(report.epsilon_lower, rel=1e-12)
    assert record["holds"] is report.holds is True


def test_fit_and_privatize(mapveil: Callable, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    rows = [
        f"u{at % 4},{35.5 + 0.01 * draw.random()},{24 + 0.01 * draw.random()},{-70 - at % 30}"
        for at in range(200)
    ]
    table, fitted, private = (tmp_path / name for name in ("table.csv", "theirs.mapveil", "theirs.parquet"))
    table.write_text("\n".join(["user_id,lat,lon,rss_dbm", *rows]))
    asked = ("--privatizer", "local-gaussian", "--option", "epsilon=8", "--seed", "5")
    done = mapveil("signal", "fit", table, *asked, "-o", fitted)
    assert done.code == 0, done.err
    ours = mv.fit_privatizer(mv.read_measurements(table), "local-gaussian", {"epsilon": 8}, rng=5)
    mv.write_privatizer(ours, tmp_path / "ours.mapveil")
    assert fitted.read_bytes() == (tmp_path / "ours.mapveil").read_bytes()
    done = mapveil("signal", "privatize", fitted, table, "--seed", "3", "-o", private)
    assert done.code == 0, done.err
    made = mv.privatize(ours, table, rng=3)
    reports, guarantee = mv.read_privatized(private)
    assert reports.rows.tolist() == mv.read_privatized(made.table)[0].rows.tolist()
    assert guarantee is not None
    assert guarantee.epsilon == made.guarantee.epsilon == 8
