"""Tables on a cluster: the bits of DuckDB, from a Sail server in this process, or the server of ``MAPVEIL_SPARK``."""

from __future__ import annotations

import decimal
import io
import uuid
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import shapely
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.cli import app
from mapveil.engines import user_sums
from mapveil.engines.duckdb_engine import placed
from mapveil.engines.spark_connect import SparkEngine
from mapveil.geo.windowed_points import Parts, windowed
from mapveil.geo.zone_cells import ZoneCells
from mapveil.geo.zones import Zones
from mapveil.privacy.population import see
from mapveil_client.errors import CuratorWarning, InputError

from .conftest import SERVER

pytest.importorskip(
    "pysail", reason="the tests of clusters need pysail and pyspark-client (make test installs both)"
)
pytestmark = [
    pytest.mark.xdist_group("sail"),
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    ),
]

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
POLYGON = mv.Region.from_polygon(shapely.Polygon([(-74.03, 40.69), (-73.9, 40.7), (-73.95, 40.83)]))
QUADTREE = mv.Quadtree(REGION, depth=4)
TILINGS = [
    QUADTREE,
    mv.Grid(POLYGON, rows=6, columns=7),
    mv.WebMercatorTiles(REGION, zoom=13),
    mv.Hexagons(REGION, resolution=7),
    mv.Places(np.array([-74.0, -73.95]), np.array([40.72, 40.80]), region=REGION),
    ZoneCells(
        Zones.read([shapely.box(-74.03, 40.69, -73.96, 40.83), shapely.box(-73.96, 40.7, -73.9, 40.8)])
    ),
]
SHARED_TABLES = (
    "brightkite_us_300users_checkins",
    "foursquare_us_checkins",
    "gowalla_nyc_checkins",
    "gowalla_us_1000users_checkins",
)


def edges_of(tiling: mv.Tiling) -> list[tuple[float, float]]:
    """Locations on edges of a tiling's cells: of a raster its exact edges, else the corners of outlines."""
    if hasattr(tiling, "raster"):
        raster = tiling.raster
        columns, rows = (np.arange(1, min(count, 16)) for count in (raster.columns, raster.rows))
        pairs = np.meshgrid(raster.column_edges.first(columns), -raster.row_edges.first(rows))
        return list(zip(*(each.ravel() for each in pairs), strict=True))
    corners = np.concatenate([shapely.get_coordinates(each) for each in tiling.polygons()])
    return [(float(lon), float(lat)) for lon, lat in corners[:: max(1, len(corners) // 60)]]


def run(*arguments: str) -> tuple[int, str]:
    """The command's exit code and all that it wrote."""
    written = io.StringIO()
    with redirect_stdout(written), redirect_stderr(written), pytest.raises(SystemExit) as stopped:
        app.run(list(arguments))
    return int(stopped.value.code or 0), written.getvalue()


def on_cluster(engine: SparkEngine, frame: pyarrow.Table) -> str:
    name = f"t{uuid.uuid4().hex}"
    made = engine.session.createDataFrame(frame)
    if SERVER is None:
        made.createTempView(name)  # a table would leave files in this folder
        return name
    made.write.saveAsTable(f"default.{name}")
    return f"default.{name}"


def both(engine: SparkEngine, frame: pyarrow.Table, **columns: str) -> tuple[mv.Points, mv.Points]:
    there = engine.table(on_cluster(engine, frame))
    return mv.read_points(frame, **columns), mv.read_points(there, **columns)


def random_frame(rows: int = 2000) -> pyarrow.Table:
    generator = np.random.default_rng(3)
    return pyarrow.table(
        {
            "user_id": generator.integers(0, 60, rows),
            "lon": generator.uniform(-74.06, -73.87, rows),
            "lat": generator.uniform(40.67, 40.85, rows),
            "weight": generator.uniform(0.001, 9, rows),
            "time": (np.datetime64("2026-01-04") + generator.integers(0, 9, rows)).astype("datetime64[us]"),
        }
    )


IDS = {
    "integers": lambda number: number * 2**61,
    "texts": lambda number: ("é", "E", "e", "a b", "")[number],
    "uuids": lambda number: str(uuid.UUID(int=number)),
}


rows = st.tuples(
    st.integers(0, 4) | st.just(0),  # one user has half of the rows
    st.integers(0, 10_000),  # of an edge
    st.sampled_from([-np.inf, 0, np.inf]),  # the float before it, the edge, the float after it
    st.sampled_from([-np.inf, 0, np.inf]),
    st.sampled_from([1e-6, 0.5, 1.0000005, 1e12]) | st.floats(1e-6, 1e12),
)


def beside(at: float, towards: float) -> float:
    return float(at if towards == 0 else np.nextafter(at, towards))


@pytest.mark.parametrize("tiling", TILINGS, ids=lambda tiling: tiling.spec.split(":")[0])
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(rows, min_size=1, max_size=40), st.sampled_from(list(IDS)), st.booleans())
def test_tables_at_the_edges_have_the_sums_of_duckdb(
    engine: SparkEngine, tiling: mv.Tiling, table: list[tuple], kind: str, weighted: bool
) -> None:
    user, edge, west, north, weight = zip(*table, strict=True)
    edges = edges_of(tiling)
    places = [edges[each % len(edges)] for each in edge]
    frame = {
        "user_id": [IDS[kind](each % 5 if kind != "integers" else each % 4) for each in user],
        "lon": [beside(place[0], to) for place, to in zip(places, west, strict=True)],
        "lat": [beside(place[1], to) for place, to in zip(places, north, strict=True)],
        "w": weight,
    }
    here, there = both(engine, pyarrow.table(frame), **({"weight": "w"} if weighted else {}))
    np.testing.assert_array_equal(user_sums(there, tiling).sums, user_sums(here, tiling).sums)


@pytest.fixture(scope="module")
def checkins(engine: SparkEngine) -> tuple[mv.Points, mv.Points]:
    path = Path(__file__).parents[2] / "examples" / "checkins_nyc.parquet"
    return both(engine, pyarrow.parquet.read_table(path))


@pytest.mark.parametrize("tiling", TILINGS, ids=lambda tiling: tiling.spec.split(":")[0])
def test_the_example_has_the_sums_of_duckdb(checkins: tuple[mv.Points, mv.Points], tiling: mv.Tiling) -> None:
    here, there = checkins
    found = user_sums(there, tiling).sums
    assert np.count_nonzero(found) > 1
    np.testing.assert_array_equal(found, user_sums(here, tiling).sums)


@pytest.mark.parametrize("name", SHARED_TABLES)
def test_the_tables_of_the_shared_data_have_the_sums_of_duckdb(engine: SparkEngine, name: str) -> None:
    """Real tables, each over the whole of its own region, in cells of every kind."""
    path = Path(__file__).parents[3] / "shared" / "data" / f"{name}.parquet"
    if not path.exists():
        pytest.skip("no ../shared/data beside the repository")
    frame = pyarrow.parquet.read_table(path, columns=["user_id", "lon", "lat"])
    lon, lat = (frame[axis].to_numpy() for axis in ("lon", "lat"))
    region = mv.Region.from_bbox(lon.min(), lat.min(), lon.max(), lat.max())
    here, there = both(engine, frame)
    sites = np.unique(np.stack([lon, lat], axis=1)[::977], axis=0)
    for tiling in (
        mv.Quadtree(region, depth=9),
        mv.Grid(region, rows=301, columns=97),
        mv.WebMercatorTiles(region, zoom=8),
        mv.Hexagons(region, resolution=4),
        mv.Places(*sites.T, region=region),
    ):
        found = user_sums(there, tiling).sums
        assert found.any()
        np.testing.assert_array_equal(found, user_sums(here, tiling).sums)


def test_a_user_with_a_third_of_the_rows(engine: SparkEngine) -> None:
    """Skew: with weights that all differ nothing merges before the rows of the user meet."""
    frame = random_frame(6000)
    user = np.where(np.arange(6000) % 10 < 3, 10**6, frame["user_id"].to_numpy())
    here, there = both(engine, frame.set_column(0, "user_id", pyarrow.array(user)), weight="weight")
    found = user_sums(there, QUADTREE).sums
    assert found.sum() > 0
    np.testing.assert_array_equal(found, user_sums(here, QUADTREE).sums)


@pytest.fixture(scope="module")
def sources(engine: SparkEngine) -> tuple[mv.Points, mv.Points]:
    return both(engine, random_frame(), weight="weight", time="time")


@pytest.mark.parametrize("tiling", TILINGS, ids=lambda tiling: tiling.spec.split(":")[0])
def test_every_tiling(sources: tuple[mv.Points, mv.Points], tiling: mv.Tiling) -> None:
    here, there = sources
    assert user_sums(here, tiling).sums.any()
    np.testing.assert_array_equal(user_sums(there, tiling).sums, user_sums(here, tiling).sums)


@pytest.mark.parametrize("parts", [None, Parts(1), Parts(1, 2)])
def test_windows(sources: tuple[mv.Points, mv.Points], parts: Parts | None) -> None:
    windows = mv.Windows(every="1d", start="2026-01-05", until="2026-01-11", zone="UTC")
    here, there = (user_sums(windowed(each, windows, parts), QUADTREE, key="k").sums for each in sources)
    assert here.any()
    np.testing.assert_array_equal(there, here)


@pytest.mark.parametrize(
    "ids",
    [
        [decimal.Decimal(each) / 4 for each in range(8)],
        [f"é{each}".encode() for each in range(8)],
        [bytes([each, 255]) for each in range(8)],
        [0.0, -0.0, 1.0, 2.0, 3.5, 4.0, 5.0, 6.0],
    ],
    ids=["decimals", "texts as bytes", "bytes", "floats"],
)
def test_windows_of_users_whose_ids_are_no_plain_texts(engine: SparkEngine, ids: list[Any]) -> None:
    """Which windows of a user count hangs on the text of the id."""
    frame = random_frame()
    users = [ids[each % len(ids)] for each in frame["user_id"].to_pylist()]
    windows = mv.Windows(every="1d", start="2026-01-05", until="2026-01-11", zone="UTC")
    local, remote = (
        windowed(each, windows, Parts(1, 2))
        for each in both(engine, frame.set_column(0, "user_id", pyarrow.array(users)), time="time")
    )
    with local.held_once() as held:
        here = user_sums(held, QUADTREE, key="k").sums
    assert here.any()
    np.testing.assert_array_equal(user_sums(remote, QUADTREE, key="k").sums, here)


def test_rows_that_cannot_be_used(engine: SparkEngine) -> None:
    frame = pyarrow.table(
        {"user_id": [1, None, 2, 2], "lon": [-74.0, -74.0, None, -73.95], "lat": [40.7, 40.7, 40.7, 40.72]}
    )
    name = on_cluster(engine, frame)
    with pytest.raises(InputError, match=r"2 of 4 rows cannot be used.*nothing was charged"):
        user_sums(mv.read_points(engine.table(name)), QUADTREE)
    dropped = mv.read_points(engine.table(name), on_bad_rows="drop")
    with pytest.warns(CuratorWarning, match="dropped 2 of 4 rows"):
        sums = user_sums(dropped, QUADTREE).sums
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CuratorWarning)
        here = user_sums(mv.read_points(frame, on_bad_rows="drop"), QUADTREE).sums
    np.testing.assert_array_equal(sums, here)


def test_a_table_of_rows_that_cannot_be_used_is_refused_as_a_file_is(engine: SparkEngine) -> None:
    frame = pyarrow.table(
        {"user_id": pyarrow.nulls(30, pyarrow.int64()), "lon": [-74.0] * 30, "lat": [40.7] * 30}
    )
    with pytest.raises(InputError, match="30 of 30 rows cannot be used"):
        user_sums(mv.read_points(frame, on_bad_rows="drop"), QUADTREE)
    there = mv.read_points(engine.table(on_cluster(engine, frame)), on_bad_rows="drop")
    with pytest.raises(InputError, match=r"30 of 30 rows cannot be used.*nothing was charged"):
        user_sums(there, QUADTREE)


def test_rows_of_a_cluster_are_not_projected(engine: SparkEngine) -> None:
    frame = pyarrow.table(
        {"user_id": [1, 2], "lon": [585_000.0, 586_000.0], "lat": [4_505_000.0, 4_506_000.0]}
    )
    assert user_sums(mv.read_points(frame, crs="EPSG:32618"), QUADTREE).sums.any()
    with pytest.raises(InputError, match="a cluster's rows are not projected; leave out crs"):
        mv.read_points(engine.table(on_cluster(engine, frame)), crs="EPSG:32618")


@pytest.mark.parametrize("column", ["label", "category"])
@pytest.mark.parametrize("labels", [[0, 1, 2], ["cafe", "bar", None]], ids=["numbers", "texts"])
def test_a_column_of_labels_is_no_part_of_the_sums_of_cells(
    engine: SparkEngine, column: str, labels: list[object]
) -> None:
    frame = random_frame(300)
    frame = frame.append_column(column, pyarrow.array([labels[row % 3] for row in range(300)]))
    here, there = both(engine, frame, weight="weight")
    assert there.columns.label == column
    found = user_sums(there, QUADTREE).sums
    assert found.any()
    np.testing.assert_array_equal(found, user_sums(here, QUADTREE).sums)


def test_labels_that_are_numbers_keep_their_own_sums(engine: SparkEngine) -> None:
    frame = random_frame(300)
    frame = frame.append_column("label", pyarrow.array(np.arange(300) % 3))
    here, there = (user_sums(each, QUADTREE, labels=3).sums for each in both(engine, frame))
    assert here.any(axis=1).all()
    np.testing.assert_array_equal(there, here)


def test_sums_of_a_repeated_cell_are_added() -> None:
    cells, shares = np.array([1, 1, 0]), np.array([2, 3, 5])
    np.testing.assert_array_equal(placed(cells, None, shares, 3, None), [5, 5, 0])
    np.testing.assert_array_equal(placed(cells, np.array([1, 1, 0]), shares, 2, 2), [[5, 0], [0, 5]])


@pytest.mark.filterwarnings("ignore:.*lie in no window")
def test_a_series_of_a_table_on_a_cluster(engine: SparkEngine) -> None:
    """The same windows as of the table here; rows without a time are counted, and refused or left out."""
    frame = random_frame(400)
    name, source = on_cluster(engine, frame), {"epsilon": 1, "account": None, "rng": 5}
    windows = mv.Windows(every="1d", start="2026-01-05", until="2026-01-11", zone="UTC")
    here, there = (
        mv.release_series(mv.read_points(each), windows, QUADTREE, **source)
        for each in (frame, engine.table(name))
    )
    np.testing.assert_array_equal(there.by_window, here.by_window)
    times = frame.schema.get_field_index("time")
    some = pyarrow.compute.if_else(pyarrow.array(np.arange(400) < 3), None, frame["time"])
    without = on_cluster(engine, frame.set_column(times, frame.schema.field("time"), some))
    with pytest.raises(InputError, match=r"3 of 400 rows cannot be used.*no time"):
        mv.release_series(mv.read_points(engine.table(without)), windows, QUADTREE, **source)
    with pytest.warns(CuratorWarning, match=r"dropped 3 of \d+ rows"):
        mv.release_series(
            mv.read_points(engine.table(without), on_bad_rows="drop"), windows, QUADTREE, **source
        )


def test_a_filter_runs_on_the_cluster(engine: SparkEngine) -> None:
    name, where = on_cluster(engine, random_frame(300)), "lon < -73.96 AND hour(time) = 0"
    here, there = (
        mv.read_points(each, where=where, weight="weight") for each in (random_frame(300), engine.table(name))
    )
    np.testing.assert_array_equal(user_sums(there, QUADTREE).sums, user_sums(here, QUADTREE).sums)


def test_a_release_has_the_same_bytes(engine: SparkEngine, tmp_path: Path) -> None:
    frame = random_frame(500)
    name = on_cluster(engine, frame)
    pyarrow.parquet.write_table(frame, tmp_path / "local.parquet")
    common = [
        "--region",
        "-74.03,40.69,-73.90,40.83",
        "--tiling",
        "quadtree:6",
        "--epsilon",
        "1",
        "--seed",
        "4",
    ]
    common += ["--dataset", "city", "--quiet"]
    for source, folder in (
        ([str(tmp_path / "local.parquet")], "a"),
        (["--engine", engine.url, "--table", name], "b"),
    ):
        (tmp_path / folder).mkdir()
        ledger, out = tmp_path / folder / "ledger.sqlite", tmp_path / folder / "map.parquet"
        done, said = run("release", *source, *common, "--ledger", str(ledger), "-o", str(out))
        assert done == 0, said
    local, remote = (pyarrow.parquet.read_table(tmp_path / folder / "map.parquet") for folder in "ab")
    assert local.equals(remote, check_metadata=True)
    assert (tmp_path / "a" / "map.parquet").read_bytes() == (tmp_path / "b" / "map.parquet").read_bytes()


@pytest.mark.parametrize("kind", IDS)
def test_the_ledger_knows_the_people_of_a_table_on_a_cluster(engine: SparkEngine, kind: str) -> None:
    """By the values that it has for a local table: the same sketch, digest and number of people."""
    users = [IDS[kind](each % 4) for each in range(40)] + [None]
    frame = pyarrow.table({"user_id": users, "lon": [-74.0] * 41, "lat": [40.7] * 41})
    here, there = both(engine, frame)
    with see(here, b"k" * 32) as local, see(there, b"k" * 32) as remote:
        assert (remote.digest, remote.people) == (local.digest, local.people) == (local.digest, 4)
        np.testing.assert_array_equal(remote.sketch, local.sketch)
        assert remote.shares({7: local.sketch}) == {7: 1.0}


def test_people_are_recognised_whatever_they_are_called(engine: SparkEngine, tmp_path: Path) -> None:
    frame = random_frame(300)
    pyarrow.parquet.write_table(frame, tmp_path / "local.parquet")
    name = on_cluster(engine, frame)
    common = ["--region", "-74.03,40.69,-73.90,40.83", "--tiling", "quadtree:4", "--epsilon", "1"]
    common += ["--ledger", str(tmp_path / "ledger.sqlite"), "-o", str(tmp_path / "map.parquet")]
    done, said = run("release", str(tmp_path / "local.parquet"), "--dataset", "city", *common)
    assert done == 0, said
    remote = ["--engine", engine.url, "--table", name, "--dataset", "others"]
    done, said = run("release", *remote, *common)
    assert "of account city; 1 spent before, 2 after" in said


def test_progress_goes_up_to_the_end(sources: tuple[mv.Points, mv.Points]) -> None:
    told: list[float] = []
    user_sums(sources[1], QUADTREE, progress=lambda _, fraction: told.append(fraction))
    assert (told[0], told[-1]) == (0.0, 1.0)
    assert told == sorted(told)
    if SERVER is not None:  # Sail tells nothing in between
        assert len(told) > 2
