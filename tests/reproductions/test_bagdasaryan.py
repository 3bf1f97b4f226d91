from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mapveil.geo.counts import Counts
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil_client.errors import InputError, ParameterError
from reproductions.bagdasaryan.data import IMAGES, MANHATTAN
from reproductions.bagdasaryan.paper import PAPER, run_task
from reproductions.bagdasaryan.proportions import FIGURE_9, infected_devices
from reproductions.bagdasaryan.runs import run_job
from reproductions.bagdasaryan.sections import Plan
from reproductions.bagdasaryan.tables import TABLE_1
from reproductions.driver import reproduce

SHARED = Path(__file__).resolve().parents[2] / "../shared/data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not here")
TINY = Plan(2, True)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small pictures and a small table of visits under the names of the shared ones."""
    folder = tmp_path_factory.mktemp("shared")
    rng = np.random.default_rng(5)
    for name, file in IMAGES.items():
        shape = (64, 64) if name == MANHATTAN else (24, 20)
        peak = np.exp(-((np.arange(shape[0])[:, None] - 40) ** 2 + (np.arange(shape[1]) - 12) ** 2) / 200)
        np.savez(folder / file, values=np.rint(300 + 9000 * peak * rng.random(shape)))
    user = np.repeat(np.arange(150), rng.integers(1, 9, 150))
    place = rng.beta(2, 3, (user.size, 2))
    pd.DataFrame({"user_id": user, "lat": 35 + place[:, 0], "lon": 139 + place[:, 1]}).to_parquet(
        folder / "foursquare_tokyo_sequences.parquet"
    )
    return folder


def test_every_table_and_figure_is_a_section() -> None:
    tables, figures = PAPER.names("table"), PAPER.names("figure")
    assert len(PAPER.sections) == len(tables) + len(figures)
    assert {"1", "2", "3"} <= set(tables)
    assert {"1", "5", "6", "7", "8", "9"} == set(figures)


def test_a_report_is_written_whole(tmp_path: Path, made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "quick", classmethod(lambda cls: TINY))
    heard: list[float] = []
    made = reproduce(
        PAPER,
        made_up,
        out=tmp_path / "out",
        tables=["3", "2", "communication"],
        figures=["5", "6", "9"],
        quick=True,
        seed=1,
        progress=lambda step, done: heard.append(done),
    )
    assert heard[0] == 0.0
    assert heard[-1] == 1.0
    assert list(made.reports) == [
        "table 2", "table 3", "table communication", "figure 5", "figure 6", "figure 9",
    ]  # fmt: skip
    names = {path.name for path in made.paths}
    assert names == {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "rows.csv", "claims.csv", "tables.md", "index.html", "figure_5.png", "figure_6.png", "figure_9.png",
    }  # fmt: skip
    for report in made.reports.values():
        for table in report.tables:
            assert {len(row) for row in table.rows} == {len(table.header)}
    with (tmp_path / "out" / "rows.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(made.rows)
    assert all(np.isfinite(float(row["value"])) for row in rows)
    assert {row["group"] for row in rows} == set(made.reports)
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert "http" not in page.replace("http-equiv", "")
    assert f"{int(np.load(made_up / IMAGES[MANHATTAN])['values'].sum()):,} here" in page
    text = made.text()
    assert "Table 3: ablation" in text
    assert all(claim.claim in text for claim in made.claims)


def test_the_same_seed_gives_the_same_rows(made_up: Path) -> None:
    jobs = FIGURE_9.jobs(TINY, made_up, 4)
    first, again, other = (run_task(jobs[place]).found for place in (0, 0, 1))
    assert [row[:-1] for row in first] == [row[:-1] for row in again]
    assert {row.trial for row in other} == {1}
    assert [row.value for row in first] != [row.value for row in other]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; put the data sets"):
        reproduce(PAPER, tmp_path / "nowhere", out=tmp_path / "out", quick=True)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ParameterError, match="table must be one of 1, 2, 3"):
        reproduce(PAPER, tmp_path, out=tmp_path, tables=["4"])


def test_infected_devices_are_drawn_by_their_cell() -> None:
    tiling = Quadtree(Region.without_georeference(2, 2), 1)
    counts = Counts(np.array([4000, 0, 4000, 4000]), tiling, "made up")
    devices = infected_devices(counts, np.array([0.0, 0.5, 1.0, 0.25]), np.random.default_rng(0))
    assert devices.count == 12_000
    assert devices.labels is not None
    ill = np.bincount(devices.sites, devices.labels, 4)
    assert ill[:3].tolist() == [0, 0, 4000]
    assert abs(ill[3] - 1000) < 6 * np.sqrt(4000 * 0.25 * 0.75)


@needs_shared
def test_the_papers_first_rows_come_out() -> None:
    """One trial of Table 1's smallest setting; 3 % is 10 times a trial's deviation for Algorithm 2."""
    job = TABLE_1.jobs(Plan(1, True), SHARED, 2022)[0]
    kept = tuple(asked for asked in job.asked if asked.label in ("non-private", "Algorithm 2"))
    value = {row.label: row.value * 1e13 for row in run_job(job._replace(asked=kept)).found}  # type: ignore[union-attr]
    assert value["non-private"] == pytest.approx(7.75, rel=0.03)
    assert value["Algorithm 2"] == pytest.approx(7.88, rel=0.03)
