"""Which version of Mapveil made an answer."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def software_version() -> str:
    """The installed version, or words for its absence."""
    try:
        return version("mapveil")
    except PackageNotFoundError:
        return "not installed"
