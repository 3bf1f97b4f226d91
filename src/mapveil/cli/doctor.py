"""``mapveil doctor``: a check of this installation."""

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import click

from mapveil.cli.console import Console, console_options
from mapveil_client.errors import InputError, MapveilError

_REQUIRED = ("numpy", "scipy", "duckdb", "pyarrow", "pyproj", "shapely", "h3", "h3ronpy", "cryptography")
_EXTRAS = {
    "geo": ("rasterio", "geopandas", "xarray"),
    "viz": ("matplotlib",),
    "fast": ("numba",),
    "routes": ("networkx", "osmium"),
    "eval": ("ortools", "scikit-learn"),
    "spark": ("pyspark-client",),
    "neural": ("torch", "onnx", "onnxruntime"),
    "phone": ("onnxruntime",),
    "device": ("httpx", "h11"),
    "service": ("fastapi", "uvicorn", "sqlalchemy", "psycopg", "prometheus-client", "pynacl", "httpx"),
}
# Where the module has another name than the package.
_MODULES = {
    "scikit-learn": "sklearn",
    "prometheus-client": "prometheus_client",
    "pynacl": "nacl",
    "pyspark-client": "pyspark",
}


class _Finding(NamedTuple):
    """One line of the report."""

    what: str
    state: str  # "ok", "missing" or "failed"
    detail: str


@click.command("doctor")
@click.option(
    "--engine", help="Spark Connect server to check too, sc://HOST:PORT: its kind, version and executors."
)
@console_options
def command(console: Console, engine: str | None) -> int:
    """Check this installation: versions, extras, noise, projections, the ledger's place.

    Exits with 1 when something that every release needs is missing or fails.

    \b
    Examples:
      mapveil doctor
      mapveil doctor --json
    """
    findings = [
        _Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        _Finding("cores", "ok", str(os.cpu_count())),
        *(_package(name) for name in _REQUIRED),
        *(_extra(extra, names) for extra, names in _EXTRAS.items()),
        _try("exact noise", _noise),
        _try("projection", _projection),
        _try("engine", _engine),
        _try("ledger", _ledger),
        *([] if engine is None else [_try("cluster", lambda: _cluster(engine))]),
    ]
    console.findings(findings)
    return int(any(finding.state == "failed" for finding in findings))


def _package(name: str) -> _Finding:
    try:
        return _Finding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return _Finding(name, "failed", "not installed; reinstall mapveil")


def _extra(extra: str, names: tuple[str, ...]) -> _Finding:
    missing = [name for name in names if not _installed(name)]
    if missing:
        return _Finding(
            f"extra {extra}",
            "missing",
            f"pip install '.[{extra}]' in the checkout brings {', '.join(missing)}",
        )
    return _Finding(f"extra {extra}", "ok", ", ".join(f"{name} {_version(name)}" for name in names))


def _installed(name: str) -> bool:
    return importlib.util.find_spec(_MODULES.get(name, name)) is not None


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(of another package)"  # such as a build for GPUs under a name of its own


def _try(what: str, check: Callable[[], str]) -> _Finding:
    try:
        return _Finding(what, "ok", check())
    except MapveilError as error:
        # Without what a cluster's error says of charges: a check makes none.
        return _Finding(what, "failed", MapveilError.in_flags(error))
    except Exception as error:  # whatever is broken is the finding
        return _Finding(what, "failed", f"{type(error).__name__}: {error}")


def _noise() -> str:
    from mapveil.privacy.discrete_laplace import discrete_laplace, laplace_variance
    from mapveil_client.randomness.random import Randomness

    count = 1 << 16
    drawn = discrete_laplace(count, Fraction(1), 1, Randomness())
    ratio = float(drawn.var()) / laplace_variance(Fraction(1), 1)
    if not 0.8 < ratio < 1.2:
        raise MapveilError(f"noise variance is {ratio:.2f} of what it must be")
    return f"variance {ratio:.3f} of theory over {count} samples"


def _projection() -> str:
    from mapveil.geo.region import Region

    region = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
    x0, y0, x1, y1 = region.bounds_m
    return f"{(x1 - x0) / 1000:.1f} by {(y1 - y0) / 1000:.1f} km, {sys.byteorder}-endian"


def _engine() -> str:
    import duckdb

    with duckdb.connect() as connection:
        row = connection.execute("SELECT (7 * 1048576) // 3").fetchone()
    if row != ((7 << 20) // 3,):
        raise MapveilError(f"integer division gives {row}")
    return f"DuckDB {duckdb.__version__}, exact integer division"


def _cluster(url: str) -> str:
    from mapveil.engines.spark_connect import SparkEngine

    engine = SparkEngine(url)
    return f"{engine.server}: {engine.kind()}; executors: {engine.executors()}"


def _ledger() -> str:
    from mapveil.privacy.ledger_records import default_ledger_path

    path = default_ledger_path()
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder} cannot be written; set MAPVEIL_LEDGER to a file that can")
    return f"{path} ({'exists' if path.exists() else 'will be made'})"
