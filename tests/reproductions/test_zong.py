"""The reproduction whole, on few people; its verdicts, on rows that deserve them; and the private comparison."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from mapveil_client.errors import InputError, ParameterError
from mapveil_client.random_features.feature_policy import largest_bandwidth
from mapveil_client.random_features.kernels import kernel_named
from reproductions.driver import reproduce
from reproductions.zong import posterior as zong_posterior
from reproductions.zong import private as zong_private
from reproductions.zong import synthetic as zong_synthetic
from reproductions.zong.cities import FIGURE_13, few_bands
from reproductions.zong.data import CITIES
from reproductions.zong.line import FIGURE_3
from reproductions.zong.paper import PAPER
from reproductions.zong.private import PRIVATE, PrivateJob, run_private
from reproductions.zong.sections import (
    AGAINST_EXACT,
    AGAINST_TRUTH,
    FEATURES,
    PROJECTION,
    SILENCE,
    Found,
    Plan,
    Results,
)

TINY = Plan(2, 1, 4, 8, 1)
PEOPLE = 700


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "quick", classmethod(lambda cls: TINY))
    monkeypatch.setattr(zong_synthetic, "MANY", (60, 90))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up people in every box of :data:`CITIES`."""
    folder = tmp_path_factory.mktemp("shared")
    generator = np.random.default_rng(7)
    for name in {city.file for city in CITIES}:
        parts = []
        for city in CITIES:
            if city.file == name:
                west, south, east, north = city.box
                parts.append(
                    np.stack(
                        [
                            west + (east - west) * generator.beta(3, 5, PEOPLE),
                            south + (north - south) * generator.beta(4, 3, PEOPLE),
                        ]
                    )
                )
        lon, lat = np.concatenate(parts, axis=1)
        rows = {"lon": lon, "lat": lat, "count": np.ones(lon.size, dtype=np.int64)}
        connection = duckdb.connect()
        connection.register("rows", rows)
        connection.sql("SELECT * FROM rows").write_parquet(str(folder / name))
    return folder


def test_every_section_has_its_own_key() -> None:
    assert len({section.key for section in PAPER.sections}) == len(PAPER.sections)


def test_everything_is_run_and_written(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zong_posterior, "_PEOPLE", 90)
    monkeypatch.setattr(zong_private, "_PEOPLE", (300, 600))
    monkeypatch.setattr(zong_private, "_PICTURE", ("Gowalla, New York", 600, 16))
    steps: list[float] = []
    made = reproduce(PAPER, shared, out=tmp_path, quick=True, progress=lambda step, done: steps.append(done))
    names = {path.name for path in made.paths}
    assert names >= {
        "figure_3.png", "figure_10.png", "figure_11.png", "figure_12.png", "figure_13.png", "figure_14.png",
        "posterior.png", "private.png", "surfaces.png", "rows.csv", "claims.csv", "tables.md", "index.html",
    }  # fmt: skip
    assert all(path.stat().st_size > 300 for path in made.paths)
    assert list(made.reports) == [section.key for section in PAPER.sections]
    assert {claim.verdict for claim in made.claims} <= {"holds", "holds in part", "does not hold"}
    page = (tmp_path / "index.html").read_text()
    assert all(claim.verdict in page for claim in made.claims)
    assert "Table 1: the cuts" in made.text()
    assert steps[0] == 0.0
    assert steps[-1] == 1.0
    # A task that two sections ask for is run once.
    key = [(row.source, row.users, row.trial, row.method, row.level, row.metric) for row in made.rows]
    repeated = {each for each in key if key.count(each) > 1}
    assert all(each[3] in ("scene", "federated KDE") for each in repeated)


def test_only_what_is_asked_is_run(tmp_path: Path) -> None:
    made = reproduce(PAPER, tmp_path / "none", out=tmp_path / "out", figures=["3"], quick=True)
    assert list(made.reports) == ["figure 3"]
    with pytest.raises(ParameterError, match="table must be one of 1, posterior, private"):
        reproduce(PAPER, tmp_path, out=tmp_path / "out", tables=["2"])
    with pytest.raises(InputError, match="no such file"):
        reproduce(PAPER, tmp_path, out=tmp_path / "not", tables=["1"], quick=True)
    assert not (tmp_path / "not").exists()


def line_rows(errors: tuple[float, float, float, float]) -> list[Found]:
    panels = ((500, 1), (500, 10), (5_000, 1), (5_000, 10))
    return [
        Found("figure 3", users, 0, PROJECTION, level, "error", error)
        for (users, level), error in zip(panels, errors, strict=True)
    ]


def line_verdicts(errors: tuple[float, float, float, float]) -> list[str]:
    flat = np.linspace(0, 1, 1000)
    maps = {
        ("figure 3", name): flat
        for name in ("exact 500", "exact 5000", "500 1", "500 10", "5000 1", "5000 10")
    }
    return [claim.verdict for claim in FIGURE_3.report(Results(line_rows(errors), maps)).claims]


def test_verdicts_follow_the_rows() -> None:
    assert line_verdicts((0.1, 0.03, 0.033, 0.01)) == ["holds", "holds"]
    assert line_verdicts((0.1, 0.03, 0.06, 0.01)) == ["holds", "does not hold"]
    assert line_verdicts((0.02, 0.03, 0.031, 0.01)) == ["does not hold", "holds"]
    assert line_verdicts((0.1, 0.2, 0.05, 0.01)) == ["holds in part", "does not hold"]


def gain_rows(correlation: dict[int, float]) -> list[Found]:
    rows = []
    people = [(city.name, 9, AGAINST_EXACT) for city in CITIES]
    for source, users, metric in [*people, ("a", 20_000, AGAINST_TRUTH), ("b", 20_000, AGAINST_TRUTH)]:
        rows.append(Found(source, users, 0, SILENCE, 0, "score", 1_000.0))
        for level in FEATURES:
            rows.append(Found(source, users, 0, PROJECTION, level, metric, correlation[level]))
            rows.append(Found(source, users, 0, PROJECTION, level, "score", 1_000.0 - 100.0 * level))
    return rows


def test_gains_are_per_privacy_lost() -> None:
    falling = {level: 1 - 0.5 / level**2 for level in FEATURES}
    report = FIGURE_13.report(Results(gain_rows(falling), {}))
    # (1 - 1/2 / 4) - 1/2 gained for a tenth of the score.
    assert {row[1] for row in report.tables[0].rows} == {"3.750"}
    assert [claim.verdict for claim in report.claims] == ["holds", "holds"]
    rising = {level: 0.01 * level**2 for level in FEATURES}
    report = FIGURE_13.report(Results(gain_rows(rising), {}))
    assert [claim.verdict for claim in report.claims] == ["does not hold", "does not hold"]


@pytest.mark.parametrize(("bands", "gamma"), [(2, 0.1), (3, 0.1), (3, 0.4)])
def test_few_bands_is_lemma_3_the_other_way(bands: int, gamma: float) -> None:
    largest = largest_bandwidth(10_000, bands=bands, gamma=gamma, kernel=kernel_named("gaussian"))
    assert few_bands(bands, 10_000, largest) == pytest.approx(-np.expm1(-gamma / 2))


def test_private_releases_are_compared_with_the_exact_density(shared: Path) -> None:
    outcome = run_private(PrivateJob("Gowalla, New York", 600, 0, shared, 3))
    results = Results(outcome.found, {})
    errors = {
        (name, part): results.of("error", method=name, level=part).mean
        for name in (zong_private.SHARED, zong_private.CELLS, zong_private.COARSE, zong_private.LAPLACE)
        for part in (4, 8, 16, 32)
    }
    assert all(0 < value < 1.5 for value in errors.values())
    for name in (zong_private.SHARED, zong_private.CELLS, zong_private.LAPLACE):
        assert errors[name, 4] < errors[name, 32]
    errors = [results.of("coordinates", method=zong_private.SHARED, level=part).mean for part in (4, 32)]
    assert 10 < errors[0] < errors[1] < 500
    assert run_private(PrivateJob("Gowalla, New York", 600, 0, shared, 3)).found == outcome.found


def private_rows(shared_error: float, cells_error: float) -> list[Found]:
    names = (
        zong_private.SHARED,
        zong_private.CELLS,
        zong_private.COARSE,
        zong_private.LAPLACE,
        zong_private.ONE,
    )
    rows = []
    for source in ("x, 1,000", "x, 10,000", "x, 50,000"):
        for part in (4, 8, 16, 32):
            for name in names:
                error = {zong_private.SHARED: shared_error, zong_private.CELLS: cells_error}.get(name, 0.5)
                rows.append(Found(source, 1, 0, name, part, "error", error))
            rows += [Found(source, 1, 0, name, part, "coordinates", 100.0) for name in names[:-1]]
    return rows


def test_the_private_verdicts_follow_the_rows() -> None:
    def verdicts(*errors: float) -> list[str]:
        return [claim.verdict for claim in PRIVATE.report(Results(private_rows(*errors), {})).claims]

    assert verdicts(0.1, 0.2) == ["holds", "holds", "does not hold"]
    assert verdicts(0.3, 0.2) == ["does not hold", "holds", "holds"]
    assert verdicts(0.6, 0.7) == ["holds", "does not hold", "does not hold"]
