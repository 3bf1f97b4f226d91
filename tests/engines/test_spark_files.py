"""Parquet files of a cluster: nulls, several files, and the statistics that Sail reads instead of rows."""

from __future__ import annotations

import uuid
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.engines import UNIT, user_sums
from mapveil.engines.spark_connect import SparkEngine
from mapveil.engines.spark_executor import read_columns
from mapveil.engines.spark_statistics import refuse_trusted_statistics, server_kind
from mapveil.privacy.population import see
from mapveil_client.errors import CuratorWarning, InputError

from .conftest import SERVER
from .test_spark_connect import QUADTREE, on_cluster, pytestmark

__all__ = ["pytestmark"]  # of this module too


def of_file(engine: SparkEngine, frame: pyarrow.Table, path: Path) -> str:
    """A view of a Parquet file, with the statistics that Arrow writes."""
    pyarrow.parquet.write_table(frame, path)
    name = f"t{uuid.uuid4().hex}"
    engine.session.read.parquet(str(path)).createTempView(name)
    return name


rows = st.lists(
    st.tuples(
        st.none() | st.integers(0, 4),
        st.none() | st.just(np.nan) | st.floats(-74.03, -73.9),
        st.none() | st.floats(40.69, 40.83),
        st.none() | st.integers(-1, 3),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(rows, min_size=2, max_size=4))
def test_several_files_with_nulls_have_the_sums_of_duckdb(
    engine: SparkEngine, tmp_path: Path, files: list[list[tuple[Any, ...]]]
) -> None:
    """Of rows that can be used; each file starts with two locations, so no column of numbers is constant."""
    folder = tmp_path / uuid.uuid4().hex
    folder.mkdir()
    columns = {"user_id": "int64", "lon": "float64", "lat": "float64", "w": "int64"}
    schema = pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in columns.items()])
    for number, each in enumerate(files):
        table = [(9, -74.0, 40.7, 1), (9, -73.95, 40.8, 2), *each]
        arrays = [
            pyarrow.array(column, field.type)
            for column, field in zip(zip(*table, strict=True), schema, strict=True)
        ]
        pyarrow.parquet.write_table(pyarrow.table(arrays, schema=schema), folder / f"{number}.parquet")
    name = f"t{uuid.uuid4().hex}"
    engine.session.read.parquet(str(folder)).createTempView(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CuratorWarning)
        here, there = (
            user_sums(mv.read_points(source, weight="w", on_bad_rows="drop"), QUADTREE).sums
            for source in (str(folder / "*.parquet"), engine.table(name))
        )
    assert here.any()
    np.testing.assert_array_equal(there, here)


SPARK = "== Optimized Logical Plan ==\nProject [w#1], Statistics(sizeInBytes=8.0 EiB)"
SAIL = (
    "ProjectionExec: statistics=[Rows=Exact(3), Bytes=Exact(24), [(Col[0]: Min=Exact({0}) Max=Exact({0}))]]"
)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (SPARK, None),
        (SAIL.format("Int64(1)"), None),
        ("statistics=[Rows=Absent, Bytes=Absent, [(Col[0]:)]]", None),
        (SAIL.format("Float64(1.5)"), "ids of floating point"),
        (SAIL.format("1.5"), "no form that Mapveil knows"),
        ("DataSourceExec: file_type=parquet, stats: 3 rows", "no form that Mapveil knows"),
        ("", "no form that Mapveil knows"),
    ],
)
def test_plans_of_an_unknown_form_are_refused(plan: str, said: str | None) -> None:
    """A later Sail may write them otherwise, and would still read NaN as another number."""
    pytest.importorskip("pyspark")
    query = SimpleNamespace(_explain_string=lambda mode: plan)
    frame = SimpleNamespace(select=lambda *_: query)
    if said is None:
        refuse_trusted_statistics(frame, "engine", "user")
        return
    with pytest.raises(InputError, match=f"{said}.*nothing was charged"):
        refuse_trusted_statistics(frame, "engine", "user")


def test_a_column_without_a_letter_is_read_where_the_filter_names_it() -> None:
    frame = pyarrow.table({"user_id": [1], "lon": [-74.0], "lat": [40.7], "%": [0.5], "speed": [1.0]})
    for where, found in (("speed < 5", ["speed"]), ('"%" < 1', ["%"])):
        points = mv.read_points(frame, where=where)
        assert set(read_columns(points, frame.schema)) == {"user_id", "lon", "lat", *found}


def unsigned(engine: SparkEngine, folder: Path, ids: list[int]) -> tuple[mv.Points, mv.Points]:
    """A Parquet file of ids of type uint64, here and there; Spark itself has no such type."""
    path = folder / "unsigned.parquet"
    frame = {
        "user_id": pyarrow.array(ids, pyarrow.uint64()),
        "lon": np.linspace(-74, -73.95, len(ids)),
        "lat": np.linspace(40.7, 40.8, len(ids)),
    }
    name = of_file(engine, pyarrow.table(frame), path)
    return mv.read_points(path), mv.read_points(engine.table(name))


@pytest.mark.skipif(SERVER is not None, reason="Spark reads uint64 as decimals")
def test_ids_beyond_the_type_of_the_schema_are_refused(engine: SparkEngine, tmp_path: Path) -> None:
    here, there = unsigned(engine, tmp_path, [1, 2, 2**63 - 1])
    np.testing.assert_array_equal(user_sums(there, QUADTREE).sums, user_sums(here, QUADTREE).sums)
    _, there = unsigned(engine, tmp_path, [1, 2**63, 2**63 + 1])
    with pytest.raises(InputError, match=r"ids of type uint64.* do not fit int64.*charged") as raised:
        user_sums(there, QUADTREE)
    assert str(2**63)[:9] not in str(raised.value)


@pytest.mark.parametrize("kind", [pyarrow.float32(), pyarrow.float64()], ids=str)
def test_an_id_that_is_nan_is_missing(engine: SparkEngine, kind: pyarrow.DataType, tmp_path: Path) -> None:
    """In a Parquet file too, whose statistics do not tell of it."""
    ids = pyarrow.array([1.5, np.nan, 2.5, np.nan, np.inf], kind)
    frame = pyarrow.table({"user_id": ids, "lon": [-74.0] * 5, "lat": [40.7] * 5})
    path = tmp_path / "points.parquet"
    pyarrow.parquet.write_table(frame, path)
    there = engine.table(on_cluster(engine, frame))
    with pytest.raises(InputError, match="2 of 5 rows cannot be used"):
        user_sums(mv.read_points(there), QUADTREE)
    with (
        pytest.raises(InputError, match=r"row 2, column 'user_id' is 'nan'.*2 of 5"),
        mv.read_points(path).held_once(),
    ):
        pass
    sums = []
    for source in (there, frame, path):
        with (
            pytest.warns(CuratorWarning, match="dropped 2"),
            mv.read_points(source, on_bad_rows="drop").held_once() as held,
        ):
            sums.append(user_sums(held, QUADTREE).sums)
    assert sums[0].sum() == 3 * UNIT
    np.testing.assert_array_equal(sums[1], sums[0])
    np.testing.assert_array_equal(sums[2], sums[0])


@pytest.mark.skipif(SERVER is not None, reason="Spark reads the rows")
@pytest.mark.parametrize("ids", [[1.5, np.nan, 1.5], [1.5, np.nan, 2.5]], ids=["one id", "two ids"])
def test_ids_that_sail_may_read_from_statistics_are_refused(
    engine: SparkEngine, ids: list[float], tmp_path: Path
) -> None:
    """Sail takes NaN beside one id for that id: three rows became one user's, and no row was bad."""
    frame = pyarrow.table({"user_id": ids, "lon": [-74.0, -73.99, -73.98], "lat": [40.7, 40.71, 40.72]})
    name = of_file(engine, frame, tmp_path / "points.parquet")
    texts = engine.session.sql(f"SELECT lon, lat, CAST(user_id AS STRING) AS user FROM {name}")
    texts.createTempView(f"{name}v")
    for table, column in ((name, "user_id"), (f"{name}v", "user")):
        points = mv.read_points(engine.table(table), user=column)
        wanted = f"column '{column}' has ids of floating point.*COLLECT_STATISTICS=false.*nothing was charged"
        with pytest.raises(InputError, match=wanted) as raised:
            user_sums(points, QUADTREE)
        assert "1.5" not in str(raised.value)
        with pytest.raises(InputError, match=wanted), see(points, b"k" * 32):
            pass


@pytest.mark.skipif(SERVER is not None, reason="Spark reads the rows")
@pytest.mark.parametrize("column", ["lon", "w", "speed"])
def test_numbers_that_sail_reads_from_statistics_are_refused(
    engine: SparkEngine, column: str, tmp_path: Path
) -> None:
    """NaN beside one number was read as that number, so the row counted."""
    frame = {
        "user_id": [1, 2, 3],
        "lon": [-74.0, -73.99, -73.98],
        "lat": [40.7, 40.71, 40.72],
        "w": [1.0, 2.0, 3.0],
        "speed": [1.0, 2.0, 3.0],
    }
    kept = {"weight": "w", "where": "Speed < 5"}
    name = of_file(engine, pyarrow.table(frame), tmp_path / "good.parquet")
    assert user_sums(mv.read_points(engine.table(name), **kept), QUADTREE).sums.sum() == 3 * UNIT
    bad = frame | {column: [frame[column][0], np.nan, frame[column][0]]}
    name = of_file(engine, pyarrow.table(bad), tmp_path / "bad.parquet")
    others = ", ".join(each for each in frame if each != column)
    cast = f"SELECT {others}, CAST({column} AS DECIMAL(9, 6)) AS {column} FROM {name}"
    engine.session.sql(cast).createTempView(f"{name}v")
    for table in (name, f"{name}v"):
        with pytest.raises(InputError, match=f"column '{column}' has the same number in all files.*charged"):
            user_sums(mv.read_points(engine.table(table), **kept), QUADTREE)


def test_columns_that_are_not_read_are_in_nobodys_way(engine: SparkEngine, tmp_path: Path) -> None:
    """Sail cannot pass a name with a dot to Python."""
    frame = pyarrow.table({"x.y": [1], "user_id": [7], "lon": [-74.0], "lat": [40.7]})
    points = mv.read_points(engine.table(on_cluster(engine, frame)))
    assert user_sums(points, QUADTREE).sums.sum() == UNIT


def test_ids_that_engines_compare_differently_are_refused(engine: SparkEngine) -> None:
    """A list with -0.0 is another one than that with 0.0 on Sail alone: one user counted twice."""
    frame = pyarrow.table({"user_id": [[0.0], [-0.0]], "lon": [-74.0, -73.9], "lat": [40.7, 40.75]})
    points = mv.read_points(engine.table(on_cluster(engine, frame)))
    wanted = "column 'user_id' has ids of type list.*nothing was charged"
    with pytest.raises(InputError, match=wanted):
        user_sums(points, QUADTREE)
    with pytest.raises(InputError, match=wanted), see(points, b"k" * 32):
        pass


def test_a_release_with_an_account_keeps_the_clusters_own_error(engine: SparkEngine, tmp_path: Path) -> None:
    frame = pyarrow.table({"user_id": [[1], [2]], "lon": [-74.0, -73.9], "lat": [40.7, 40.75]})
    account = mv.Account.open("lake", ledger=tmp_path / "ledger.sqlite", budget=3)
    with pytest.raises(InputError, match="column 'user_id' has ids of type list"):
        mv.release(
            mv.read_points(engine.table(on_cluster(engine, frame))),
            region=QUADTREE.region,
            epsilon=1,
            account=account,
        )


def test_a_server_of_no_known_kind_is_called_so() -> None:
    session = SimpleNamespace(
        range=lambda _: SimpleNamespace(_explain_string=lambda mode: mode), version="4.0"
    )
    assert server_kind(session) == "neither Apache Spark nor Sail by its plans, answers as Spark 4.0"
