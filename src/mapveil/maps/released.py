"""What all maps share: metadata, a scene, and methods that write and draw them, bound here and nowhere else."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mapveil.maps.scene import Layer, Rows, Scene

if TYPE_CHECKING:
    from os import PathLike

    import xarray
    from matplotlib.axes import Axes

    from mapveil.geo.tiling import Tiling
    from mapveil.privacy.guarantee import Guarantee

LINE_SUFFIXES: Final = (".parquet", ".geojson", ".json", ".csv", ".png", ".html")
"""Suffixes that every map can be saved with."""

SUFFIXES: Final = (".tif", ".tiff", *LINE_SUFFIXES)
"""Suffixes that a map of cells can be saved with."""


class ReleasedMap:
    """Base class of the maps: canonical metadata, and methods bound to functions of the rooms above.

    The functions are looked up by name when they are called: a value imports neither its writers nor its pictures.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    """Suffixes that :meth:`save` accepts."""

    if TYPE_CHECKING:  # fields of the maps, properties of a map that is made of another

        @property
        def tiling(self) -> Tiling: ...  # noqa: D102
        @property
        def guarantee(self) -> Guarantee: ...  # noqa: D102
        @property
        def method(self) -> str: ...  # noqa: D102
        @property
        def parameters(self) -> dict[str, Any]: ...  # noqa: D102
        @property
        def notes(self) -> tuple[str, ...]: ...  # noqa: D102
        @property
        def version(self) -> str: ...  # noqa: D102

    def about(self) -> dict[str, Any]:
        """The metadata that are particular to a kind of map, JSON-ready."""
        raise NotImplementedError

    def scene(self, *, page: bool = False) -> Scene:
        """Everything that a picture, or a page, shows of the map."""
        raise NotImplementedError

    def columns(self) -> tuple[Layer, ...]:
        """Every number of a cell, for the exports; none where rows are lines."""
        return ()

    def rows(self) -> Rows | None:
        """The lines that a table of the map lists; None where its rows are cells."""
        return None

    def metadata(self) -> dict[str, Any]:
        """The JSON-ready record that every export carries."""
        return {
            "software": "mapveil",
            "version": self.version,
            "method": self.method,
            "parameters": self.parameters,
            "guarantee": self.guarantee.to_dict(),
            "guarantee_in_words": self.guarantee.in_words(),
            "tiling": self.tiling.to_dict(),
            "notes": list(self.notes),
            **self.about(),
        }

    def metadata_json(self) -> str:
        """:meth:`metadata` as canonical JSON."""
        return json.dumps(self.metadata(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def save(self, path: str | PathLike[str], *, title: str | None = None) -> None:
        """Write the format that the suffix names; see :func:`mapveil.formats.write.write`."""
        _function("formats.write:write")(self, path, title=title)

    def to_geotiff(self, path: str | PathLike[str]) -> None:
        """Write a Cloud-Optimised GeoTIFF; see :func:`mapveil.formats.geotiff.write_geotiff`."""
        _function("formats.geotiff:write_geotiff")(self, path)

    def to_geoparquet(self, path: str | PathLike[str]) -> None:
        """Write GeoParquet; see :func:`mapveil.formats.geoparquet.write_geoparquet`."""
        _function("formats.geoparquet:write_geoparquet")(self, path)

    def to_geojson(self, path: str | PathLike[str], *, skip_empty: bool = False) -> None:
        """Write GeoJSON; see :func:`mapveil.formats.geojson.write_geojson`."""
        _function("formats.geojson:write_geojson")(self, path, skip_empty=skip_empty)

    def to_xarray(self) -> xarray.Dataset:
        """Make a dataset of a map of cells; see :func:`mapveil.formats.dataset.as_dataset`."""
        made: xarray.Dataset = _function("formats.dataset:as_dataset")(self)
        return made

    def plot(self, ax: Axes | None = None, *, title: str | None = None, **shown: Any) -> Axes:
        """Draw the map with its guarantee; ``shown`` goes to its scene. See :func:`mapveil.pictures.picture.plot`."""
        made: Axes = _function("pictures.picture:plot")(self, ax, title=title, **shown)
        return made

    def to_png(self, path: str | PathLike[str], *, title: str | None = None, **shown: Any) -> None:
        """Write a picture; see :func:`mapveil.pictures.picture.write_png`."""
        _function("pictures.picture:write_png")(self, path, title=title, **shown)

    def to_html(self, path: str | PathLike[str], *, title: str | None = None) -> None:
        """Write a page that works offline; see :func:`mapveil.pictures.page.write_page`."""
        _function("pictures.page:write_page")(self, path, title=title)

    def _repr_html_(self) -> str:
        return str(_function("pictures.picture:notebook_html")(self))


def _function(name: str) -> Any:
    """A function by ``room.module:name``."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(f"mapveil.{module}"), function)
