"""Tables that cannot be read: every missing thing is named, and no value is quoted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import mapveil as mv
from mapveil.engines import user_sums
from mapveil.engines.spark_connect import SparkEngine
from mapveil.geo.parse_tiling import places_of_column
from mapveil_client.errors import InputError

from .test_spark_connect import QUADTREE, REGION, both, pytestmark, random_frame, run

__all__ = ["pytestmark"]  # of this module too
NYC = Path(__file__).parents[2] / "examples" / "checkins_nyc.parquet"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--table", "default.nowhere", "--dataset", "d"],
            "no such catalog, schema or table; expected a table of a shared catalog (SHOW TABLES lists them), or a "
            "file by its full path, such as parquet.`/full/path`; nothing was charged",
        ),
        (
            ["--table", "parquet.`/no/where.parquet`", "--dataset", "d"],
            "table parquet.`/no/where.parquet`: no such file or folder there, or only empty files; expected the full "
            "path of one that the server and every executor can read; nothing was charged",
        ),
        (
            ["--table", f"parquet.`{NYC}`", "--dataset", "d", "--lon", "east"],
            "no column 'east' for lon; its columns are 'user_id', 'day', 'lat', 'lon'; nothing was charged",
        ),
        (
            ["--table", f"parquet.`{NYC}`", "--dataset", "d", "--where", "east > 2"],
            "no column 'east'; its columns are user_id, day, lat, lon; nothing was charged",
        ),
        (
            ["--table", f"parquet.`{__file__}`", "--dataset", "d"],
            "the server cannot read its files: one is incomplete or of another format, or the storage cannot be "
            "reached; the cluster's log says more; nothing was charged",
        ),
        (["--table", "default.nowhere"], "--dataset"),
        (["--dataset", "d"], "--table"),
        (["x.csv", "--table", "t", "--dataset", "d"], "INPUT"),
        (
            ["--table", "t", "--dataset", "d", "--trust", "local"],
            "--trust must be central with --engine, got local: sums leave the cluster and rows do not",
        ),
        (
            ["--table", "t", "--dataset", "d", "--trust", "distributed", "--sums", "operators"],
            "got operators",
        ),
        (["--table", "t", "--dataset", "d", "--from", "2026-01-05"], "--every"),
        (
            ["--table", "a.b.c.d", "--dataset", "d"],
            "table a.b.c.d: this is no name of a table there; expected catalog.schema.table",
        ),
        (["--table", "a..b", "--dataset", "d"], "expected catalog.schema.table"),
        (["--table", "a-b", "--dataset", "d"], "in backticks; nothing was charged"),
        (["--table", "", "--dataset", "d"], "no name of a table"),
    ],
)
def test_a_missing_thing_is_named(
    engine: SparkEngine, arguments: list[str], said: str, tmp_path, capsys
) -> None:
    common = ["--region", "-74.03,40.69,-73.90,40.83", "--epsilon", "1", "--ledger", str(tmp_path / "l")]
    done, shown = run("release", "--engine", engine.url, *arguments, *common, "-o", str(tmp_path / "m.csv"))
    assert done == 2, shown
    assert said in shown
    assert "Traceback" not in shown
    assert shown.count("nothing was charged") <= 1, shown
    assert not (tmp_path / "m.csv").exists()


@pytest.mark.parametrize("after", ["gone", "of other columns"])
def test_files_that_change_while_they_are_read(engine: SparkEngine, after: str, tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    shutil.copy(NYC, path)
    points = mv.read_points(engine.table(f"parquet.`{path}`"))
    path.unlink()
    if after == "of other columns":
        pyarrow.parquet.write_table(pyarrow.table({"other": [1]}), path)
    with pytest.raises(InputError, match=r"a column or file that was there is gone.*nothing was charged"):
        user_sums(points, QUADTREE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Permission denied (os error 13)",
            "the user of this session may not read it; expected the right to",
        ),
        ("[PATH_NOT_FOUND] Path does not exist: file:/Ann.", "no such file or folder there"),
        ("[UNABLE_TO_INFER_SCHEMA] of Ann", "no such file or folder there"),
        ("No metadata files found in table location: file:///Ann", "no such file or folder there"),
    ],
)
def test_a_file_that_cannot_be_opened(engine: SparkEngine, text: str, said: str) -> None:
    """As Sail 0.7.2 and Spark 4.1.3 say it."""
    from pyspark.errors import PySparkException

    with pytest.raises(InputError, match=said) as raised, engine._speaking("t", opening=True):
        raise PySparkException(text)
    assert "Ann" not in str(raised.value)


def test_pyspark_writes_no_error_of_its_own(engine: SparkEngine, capsys: pytest.CaptureFixture[str]) -> None:
    """Of Spark's errors it wrote the whole, with the values that a message quotes."""
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")

    def asked() -> None:
        logger.error("The value 'Ann' cannot be cast")
        raise PySparkException("[CAST_INVALID_INPUT] The value 'Ann' cannot be cast")

    with pytest.raises(InputError), engine._speaking():
        asked()
    assert "Ann" not in capsys.readouterr().err
    assert not logger.filters


def test_what_needs_rows_here_is_refused(engine: SparkEngine) -> None:
    _, there = both(engine, random_frame(20))
    with pytest.raises(
        InputError, match=r"do not leave the cluster; expected trust central.*; nothing was charged$"
    ):
        mv.release(there, QUADTREE, epsilon=1, trust="local", account=None)
    frame = random_frame(20)
    texts = frame.set_column(4, "time", frame["time"].cast("string"))
    windows = mv.Windows(every="1d", start="2026-01-05", until="2026-01-11", zone="UTC")
    with pytest.raises(
        InputError,
        match=r"expected dates or timestamps in column 'time', not texts, .*; nothing was charged$",
    ):
        mv.release_series(both(engine, texts)[1], windows, QUADTREE, epsilon=1, account=None)
    with pytest.raises(
        InputError, match=r"tiling that is not made of column 'time', .*; nothing was charged$"
    ):
        places_of_column(there, "time", REGION)
    with pytest.raises(
        InputError, match=r"rows do not leave .*expected a release of sums.*; nothing was charged$"
    ):
        there.arrays()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[TABLE_OR_VIEW_NOT_FOUND] `a`.`b` of Ann", "no such catalog, schema or table"),
        ("[INSUFFICIENT_PERMISSIONS] User Ann may not SELECT", "the user of this session may not read it"),
        ("StatusCode.UNAUTHENTICATED: token of Ann", "expected a user and token that it knows, in the URL"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/Ann.", "a column or file that was there is gone"),
        ("[FAILED_READ_FILE.FILE_NOT_EXIST] file:/Ann", "a column or file that was there is gone"),
        ("[FAILED_READ_FILE.NO_HINT] file:/Ann", "the server cannot read its files"),
        ("[CATALOG_NOT_FOUND] The catalog `lake` of Ann not found", "no such catalog, schema or table"),
        ("[INVALID_CATALOG_OPTION] of Ann", r"PySparkException INVALID_CATALOG_OPTION; the cluster's log"),
        ("StatusCode.PERMISSION_DENIED: Ann", "the user of this session may not read it"),
        ("AccessControlException: Permission denied: user=Ann", "the user of this session may not read it"),
        (
            "java.io.IOException: Permission denied (/tmp/spill-1) of Ann",
            "PySparkException; the cluster's log",
        ),
        ("ModuleNotFoundError: No module named 'mapveil' at Ann", "no Python package 'mapveil'"),
        ("ModuleNotFoundError: No module named 'duckdb' at Ann", "no Python package 'duckdb'"),
        (
            "No module named 'mapveil.engines.spark_executor' at Ann",
            "another build of mapveil than the driver",
        ),
        (
            "Can't get attribute 'executed' on <module 'mapveil.engines.spark_executor' from 'Ann'>",
            "another build of mapveil than the driver",
        ),
        ("invalid argument: found 3 rows of Ann", "PySparkException; the cluster's log"),
        ("[CAST_INVALID_INPUT] The value 'Ann' cannot be cast", "CAST_INVALID_INPUT; the cluster's log"),
        ("Job aborted: Ann, -73.98", "PySparkException; the cluster's log says more"),
    ],
)
def test_every_missing_thing_is_named_and_no_value_quoted(engine: SparkEngine, text: str, said: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(InputError, match=said) as raised, engine._speaking("lake.city.checkins"):
        raise PySparkException(text)
    assert "nothing was charged" in str(raised.value)
    assert "Ann" not in str(raised.value)
    assert raised.value.__cause__ is None
