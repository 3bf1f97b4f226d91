"""The scene of a map: what pictures and pages show of it, in numbers and words, before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from mapveil_client.arrays import BoolArray, FloatArray, IntArray

ScaleKind = Literal["linear", "log"]
NoteLevel = Literal["info", "warning"]


class Note(str):
    """A remark as readers see it, with its level: ``"warning"``, which pages and pictures mark, or ``"info"``."""

    level: NoteLevel
    text: str

    def __new__(cls, text: str, level: NoteLevel = "info") -> Note:
        """The remark, marked where it is a warning."""
        made = super().__new__(cls, f"WARNING: {text}" if level == "warning" else text)
        made.level, made.text = level, text
        return made


class Shading(NamedTuple):
    """The map from values to places on the colour ramp."""

    kind: ScaleKind = "log"
    noise_floor: float = 0.0  # users per km²: no shade is spent below it
    low: float = 0.0  # where the ramp begins
    top: float | None = None  # where it ends; None for the largest value
    holes: bool = False  # values below ``low`` have a colour of their own
    blank: bool = False  # a cell without a value is unknown, not outside the map


class Layer(NamedTuple):
    """A number per cell (or line): a column, band or variable of an export, and colours of a picture."""

    name: str  # a column's name, such as "proportion_1"
    title: str  # in words
    unit: str
    values: FloatArray  # shape (cells,), NaN where there is none
    shading: Shading = Shading()
    words: tuple[str, str] | None = None  # for the values 0 and 1, where they are no number
    derived: bool = False  # follows from another layer and the cells' areas


class DrawnBlocks(NamedTuple):
    """Blocks of cells that are drawn as one, with an interval each; arrays of blocks have shape (blocks,)."""

    of_cell: IntArray  # block of each cell, -1 where none is told from zero; shape (cells,)
    users: FloatArray  # estimate
    noisy: FloatArray  # sum of measurements, users
    lower: FloatArray
    upper: FloatArray
    deviation: FloatArray  # of the noise, users
    probability: str  # of the interval
    area: FloatArray  # km² (shares of a region without georeference)


class LineWindows(NamedTuple):
    """The lines of a scene in each window of a series."""

    names: tuple[str, ...]
    titles: tuple[str, ...]  # names with the windows' days or hours
    values: FloatArray  # shape (windows, lines)
    faded: BoolArray  # lines that cannot be told from zero in a window, shape (windows, lines)
    dots: FloatArray  # shape (windows, cells)
    readings: tuple[str, ...]  # how each window is to be read


class Lines(NamedTuple):
    """Lines on a map, one value each, and the facts known of each."""

    lon: FloatArray  # of the corners, WGS84 degrees (cells without georeference); shape (corners,)
    lat: FloatArray
    start: IntArray  # of each line in ``lon``, and the end; shape (lines + 1,)
    facts: Mapping[str, FloatArray | Sequence[str]]  # by name, the most important first; shape (lines,) each
    directed: bool = False  # lines of two corners are drawn as arcs that bend to the left of their direction
    weight: FloatArray | None = None  # thickness of lines without a value, 0 to 1; shape (lines,)
    mark: IntArray | None = None  # index into ``marks``, -1 for none; shape (lines,)
    marks: tuple[str, ...] = ()  # meaning of each mark
    widths: tuple[float, float] = (0.6, 6.0)  # pixels on a page, of the smallest and the largest value
    faded: BoolArray | None = None  # lines that cannot be told from zero; shape (lines,)
    windows: LineWindows | None = None


class Scene(NamedTuple):
    """A map as it is shown.

    The first layer is coloured: one value per cell, or per line where there are lines.
    """

    title: str
    layers: tuple[Layer, ...]
    main: int = 0  # the layer that a reading of a cell begins with
    bounds: tuple[FloatArray, FloatArray, str] | None = None  # of the main layer; and their probability
    lines: Lines | None = None
    dots: FloatArray | None = None  # a value per cell, drawn as dots under the lines; 0 for none
    reading: str = ""  # how the picture is to be read
    made: tuple[tuple[str, str], ...] = ()  # how the map was made, rows of a table
    tables: tuple[tuple[str, list[tuple[str, str]]], ...] = ()  # further tables: head and rows
    notes: tuple[str, ...] = ()
    left_out: str = ""  # cells that GeoJSON leaves out
    blocks: DrawnBlocks | None = None  # of the first layers
    doubt: str = ""  # meaning of hatched ground: cells without a value in the first layer; or of faded lines
    hatched: BoolArray | None = None  # cells that are hatched over their colour instead, shape (cells,)
    unsure: BoolArray | None = (
        None  # cells below the ramp that are dotted and not drawn as holes, shape (cells,)
    )
    dotted: str = ""  # meaning of the dots
    hole: str = ""  # meaning of the colour below the ramp of the first layer, where its shading has holes


class Rows(NamedTuple):
    """The lines of a map as rows of a table."""

    columns: Mapping[str, Any]  # arrays or lists by name, one entry per line; None for none
    lon: FloatArray  # of the corners, shape (corners,)
    lat: FloatArray
    start: IntArray  # shape (lines + 1,)
