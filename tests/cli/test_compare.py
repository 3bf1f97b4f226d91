"""``compare``, ``plan``, ``audit``, ``reproduce``: good runs and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from .conftest import NOT_PRIVATE

BOX = "-74.03,40.69,-73.90,40.83"


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grid") / "grid.npz"
    np.savez(path, values=np.random.default_rng(1).poisson(2.0, (16, 16)))
    return path


def test_compare_writes_a_report_that_says_it_is_not_private(
    mapveil: Callable, grid: Path, tmp_path: Path, headings: list[str]
) -> None:
    done = mapveil(
        "compare", grid, "--methods", "laplace,emd", "--epsilon", "1", "--trials", "2", "-o", tmp_path / "r"
    )
    assert done.code == 0, done.err
    assert "do not publish" in done.err
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert {"rows.csv", "summary.csv", "curves.png", "index.html"} <= names
    assert "it is NOT private" in (tmp_path / "r" / "index.html").read_text()
    assert [head.splitlines()[0] for head in headings] == [NOT_PRIVATE]
    assert headings[0].endswith("Comparison of methods on " + str(grid))


def test_compare_reads_a_prior_by_its_path_and_plan_refuses_one(
    mapveil: Callable, grid: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "census.npz", values=np.random.default_rng(2).pareto(1.0, (16, 16)))
    method = f"multiscale:prior={tmp_path / 'census.npz'}"
    arguments = (grid, "--methods", f"multiscale,{method}", "--epsilon", "1", "--trials", "1", "--json")
    done = mapveil("compare", *arguments)
    assert done.code == 0, done.err
    means = {(row["method"], row["metric"]): row["mean"] for row in json.loads(done.out)["summary"]}
    assert means[method, "kl"] != means["multiscale", "kl"]
    refused = mapveil("plan", "--users", "500", "--region", BOX, "--methods", method)
    assert refused.code != 0
    assert "methods must have no prior in a plan" in refused.err


def test_one_trial_has_no_interval_and_valid_json(mapveil: Callable, grid: Path) -> None:
    arguments = (
        "compare",
        grid,
        "--methods",
        "laplace",
        "--epsilon",
        "1",
        "--trials",
        "1",
        "--metrics",
        "kl",
    )
    assert "needs two trials" in mapveil(*arguments).out
    record = json.loads(mapveil(*arguments, "--json").out, parse_constant=pytest.fail)
    assert record["summary"][0]["low"] is None
    assert record["private"] is False


def test_compare_points(mapveil: Callable, table: Path) -> None:
    where = ("--region", BOX, "--tiling", "quadtree:4", "--users", "100", "--sigma-m", "500")
    what = ("--methods", "laplace", "--epsilon", "1", "--trials", "2", "--metrics", "l1")
    done = mapveil("compare", table, *where, *what)
    assert done.code == 0, done.err
    assert "counted: people, not visits" in done.out
    assert "distances: emd city-block in widths" in done.out


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--methods", "heat"], "multiscale"),
        (["--methods", "emd:depth=3"], "depth"),
        (["--metrics", "beauty"], "beauty"),
        (["--trials", "0"], "trials"),
        (["--epsilon", "1,,2"], "epsilon"),
        (["--region", BOX], "counts bring their own cells"),
        (["--users", "10000000"], "users"),
    ],
)
def test_compare_refuses(mapveil: Callable, grid: Path, flags: list[str], expected: str) -> None:
    done = mapveil("compare", grid, *flags)
    assert done.code == 2, done.err
    assert expected in done.err
    assert len(done.errors) == 1


def test_plan_reads_no_data_and_recommends(mapveil: Callable, tmp_path: Path) -> None:
    done = mapveil("plan", "--users", "500", "--region", BOX, "--tiling", "quadtree:5", "--epsilon", "1",
                   "--methods", "laplace,multiscale", "--trials", "1", "-o", tmp_path / "plan.csv")  # fmt: skip
    assert done.code == 0, done.err
    assert "take multiscale" in done.out
    assert (tmp_path / "plan.csv").read_text().startswith("method,")
    assert mapveil("plan", "--users", "0", "--region", BOX).code == 2


def test_audit_reports_each_method(mapveil: Callable) -> None:
    done = mapveil("audit", "--methods", "laplace,thresholded", "--trials", "1320", "--seed", "1", "--json")
    assert done.code == 0, done.err
    assert [record["method"] for record in json.loads(done.out)] == ["laplace", "thresholded"]


def test_audit_tests_the_claim_of_one_report(mapveil: Callable) -> None:
    done = mapveil("audit", "--trust", "local", "--trials", "2000", "--seed", "1", "--json")
    assert done.code == 0, done.err
    (record,) = json.loads(done.out)
    assert record["method"] == "olh-h"
    assert 0.2 < record["epsilon_lower"] <= 1


def test_audit_refuses_a_method_without_a_claim(mapveil: Callable) -> None:
    for name in ("fourier-kde", "planar-laplace"):
        done = mapveil("audit", "--trust", "random-features", "--methods", name)
        assert done.code == 2
        assert f"{name} claims no epsilon: it is not differential privacy" in done.err
