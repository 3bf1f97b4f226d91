"""The base class of maps: metadata, a scene, and methods that write and draw them, bound here and nowhere else."""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mapveil.maps.provenance import Provenance
from mapveil.maps.scene import Layer, Rows, Scene
from mapveil_client import __version__
from mapveil_client.errors import InputError, check

if TYPE_CHECKING:
    from os import PathLike

    import numpy.typing as npt
    import xarray
    from geopandas import GeoDataFrame
    from matplotlib.axes import Axes

    from mapveil.geo.context import Context
    from mapveil.geo.tiling import Tiling
    from mapveil.privacy.guarantee import Guarantee

WRITERS: Final = {
    ".tif": "formats.geotiff:write_geotiff",
    ".tiff": "formats.geotiff:write_geotiff",
    ".parquet": "formats.geoparquet:write_geoparquet",
    ".geojson": "formats.geojson:write_geojson",
    ".json": "formats.geojson:write_geojson",
    ".csv": "formats.csv:write_csv",
    ".gpkg": "formats.geopackage:write_geopackage",
    ".pmtiles": "formats.pmtiles:write_pmtiles",
    ".png": "pictures.picture:write_png",
    ".html": "pictures.page:write_page",
}
"""``room.module:function`` by suffix; a function is imported when it is needed."""

SUFFIXES: Final = tuple(WRITERS)
"""Suffixes that a map of cells can be saved with."""

ANIMATIONS: Final = (".webp", ".gif")
"""Further suffixes of a series."""

LINE_SUFFIXES: Final = SUFFIXES[2:]
"""Suffixes that every map can be saved with: no raster."""


@dataclass(frozen=True, eq=False)
class ReleasedMap(ABC):
    """Base class of the maps: canonical metadata, and methods bound to functions of the rooms above.

    The functions are looked up by name when they are called: a value imports neither its writers nor its pictures.
    Every map has the cells (``tiling``), the ``guarantee``, the name of the ``method`` with its JSON-ready
    ``parameters``, ``notes`` for readers, such as an estimate that came out empty, the ``version`` of Mapveil, the
    ``provenance``, a ``title``: the head of pictures and pages instead of the kind of map, and a ``subtitle`` below
    it. Pictures and pages draw
    the layers of a ``context`` (:func:`mapveil.geo.context.read_context`) over the ground; no other file has them.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    """Suffixes that :meth:`save` accepts."""

    parameters: dict[str, Any] = field(default_factory=dict, kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    version: str = field(default=__version__, kw_only=True)
    provenance: Provenance = field(default_factory=Provenance, kw_only=True)
    title: str = field(default="", kw_only=True)
    subtitle: str = field(default="", kw_only=True)
    context: Context | None = field(default=None, kw_only=True, repr=False)

    if TYPE_CHECKING:  # fields of the maps, properties of a map that is made of another

        @property
        def tiling(self) -> Tiling:
            """The cells."""

        @property
        def guarantee(self) -> Guarantee:
            """The promise of the release."""

        @property
        def method(self) -> str:
            """Name of the method."""

    @property
    def period(self) -> str:
        """The windows that are shown together, one line; empty of a map without windows."""
        return ""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """The metadata that are particular to a kind of map, JSON-ready."""

    @abstractmethod
    def scene(self, *, page: bool = False) -> Scene:
        """Everything that a picture, or a page, shows of the map."""

    def columns(self) -> tuple[Layer, ...]:
        """Every number of a cell, for the exports; none where rows are lines."""
        return ()

    def rows(self) -> Rows | None:
        """The lines that a table of the map lists; None where its rows are cells."""
        return None

    def metadata(self) -> dict[str, Any]:
        """The JSON-ready record that every export carries."""
        return {
            "title": self.title,
            **({"subtitle": self.subtitle} if self.subtitle else {}),
            "software": "mapveil",
            "version": self.version,
            "provenance": self.provenance.to_dict(),
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

    def save(self, path: str | PathLike[str]) -> None:
        """Write the format that the suffix names; a CSV's metadata lie in ``NAME.csv-metadata.json``.

        Parameters
        ----------
        path : path-like
            Ends in one of :attr:`suffixes`.

        Raises
        ------
        InputError
            Another suffix, cells that the format cannot hold, or a file that cannot be written.
        MissingExtra
            The format needs an extra that is not installed.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in self.suffixes:
            known = ", ".join(self.suffixes)
            raise InputError(f"{path}: the suffix must be one of {known}, got {suffix or 'none'}")
        function_of(WRITERS[suffix])(self, path)

    def to_geotiff(self, path: str | PathLike[str]) -> None:
        """Write a Cloud-Optimised GeoTIFF; see :func:`mapveil.formats.geotiff.write_geotiff`."""
        function_of("formats.geotiff:write_geotiff")(self, path)

    def to_geoparquet(self, path: str | PathLike[str]) -> None:
        """Write GeoParquet; see :func:`mapveil.formats.geoparquet.write_geoparquet`."""
        function_of("formats.geoparquet:write_geoparquet")(self, path)

    def to_geojson(self, path: str | PathLike[str], *, skip_empty: bool = False) -> None:
        """Write GeoJSON; see :func:`mapveil.formats.geojson.write_geojson`."""
        function_of("formats.geojson:write_geojson")(self, path, skip_empty=skip_empty)

    def to_geopackage(self, path: str | PathLike[str]) -> None:
        """Write a GeoPackage; see :func:`mapveil.formats.geopackage.write_geopackage`."""
        function_of("formats.geopackage:write_geopackage")(self, path)

    def to_pmtiles(self, path: str | PathLike[str]) -> None:
        """Write vector tiles; see :func:`mapveil.formats.pmtiles.write_pmtiles`."""
        function_of("formats.pmtiles:write_pmtiles")(self, path)

    def to_geodataframe(self) -> GeoDataFrame:
        """Make a table of the cells or lines; see :func:`mapveil.formats.geopackage.as_geodataframe`."""
        made: GeoDataFrame = function_of("formats.geopackage:as_geodataframe")(self)
        return made

    def to_xarray(self) -> xarray.Dataset:
        """Make a dataset of a map of cells; see :func:`mapveil.formats.dataset.as_dataset`."""
        made: xarray.Dataset = function_of("formats.dataset:as_dataset")(self)
        return made

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as a stream of Arrow batches; see :func:`mapveil.formats.arrow.arrow_stream`."""
        stream: object = function_of("formats.arrow:arrow_stream")(self).__arrow_c_stream__(requested_schema)
        return stream

    def explore(self, *, height: int = 640) -> Any:
        """Show the interactive page in a notebook; see :func:`mapveil.pictures.notebook.explore`."""
        return function_of("pictures.notebook:explore")(self, height=height)

    def plot(self, ax: Axes | None = None, **shown: Any) -> Axes:
        """Draw the map with its guarantee; ``shown`` goes to its scene. See :func:`mapveil.pictures.picture.plot`."""
        made: Axes = function_of("pictures.picture:plot")(self, ax, **shown)
        return made

    def to_png(self, path: str | PathLike[str], **shown: Any) -> None:
        """Write a picture; see :func:`mapveil.pictures.picture.write_png`."""
        function_of("pictures.picture:write_png")(self, path, **shown)

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write a page that works offline; see :func:`mapveil.pictures.page.write_page`."""
        function_of("pictures.page:write_page")(self, path)

    def _repr_html_(self) -> str:
        return str(function_of("pictures.picture:notebook_html")(self))


def check_shape(name: str, values: npt.NDArray[Any], tiling: Tiling) -> None:
    """Refuse an array unless it has one value per cell, by a :class:`ParameterError`."""
    fits = values.shape == (tiling.size,)
    check(fits, name, f"an array of shape ({tiling.size},) for {tiling.spec}", values.shape)


def function_of(name: str) -> Any:
    """A function by ``room.module:name``."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(f"mapveil.{module}"), function)
