"""A style for QGIS: the colours of pictures by classes of the density, in the table ``layer_styles`` of a GeoPackage.

Source: QGIS, "QML - The QGIS Style File Format"; the table is the one that QGIS makes by "Save style in database".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

import numpy as np

from mapveil.pictures.colours import ramp

if TYPE_CHECKING:
    import pyarrow

    from mapveil_client.arrays import FloatArray

STYLES: Final = "layer_styles"
"""Name of the table."""

_CLASSES: Final = 9
_PALEST: Final = 0.12  # of the ramp: its first colours pass for paper
_VERSION: Final = "3.28"


def style_of(expression: str, values: FloatArray, unit: str, *, outline: bool) -> str:
    """Make a QML document that fills polygons by classes of equal ratios; features without a value stay clear.

    Parameters
    ----------
    expression : str
        QGIS expression of a feature's value.
    values : ndarray of float64
        Values that the classes span; those above 0 count.
    unit : str
        Unit, for the legend.
    outline : bool
        Draw the outlines of polygons.
    """
    known = values[np.isfinite(values) & (values > 0)]
    low, high = (float(known.min()), float(known.max())) if known.size else (1.0, 10.0)
    edges = np.geomspace(low, max(high, low * 1.001), _CLASSES + 1)
    edges[0], edges[-1] = np.nextafter(low, 0), np.nextafter(edges[-1], np.inf)
    colours = ramp().reshape(-1, 3)
    at = np.linspace(_PALEST, 1, _CLASSES) * (len(colours) - 1)
    root = ElementTree.Element("qgis", version=_VERSION, styleCategories="Symbology")
    renderer = ElementTree.SubElement(
        root, "renderer-v2", type="graduatedSymbol", attr=expression, graduatedMethod="GraduatedColor",
        symbollevels="0", enableorderby="0", forceraster="0",
    )  # fmt: skip
    ranges, symbols = (ElementTree.SubElement(renderer, name) for name in ("ranges", "symbols"))
    for number, (colour, lower, upper) in enumerate(
        zip(colours[at.astype(int)].tolist(), edges[:-1], edges[1:], strict=True)
    ):
        label = f"{lower:.3g} to {upper:.3g} {unit}"
        bounds = {"symbol": str(number), "lower": repr(float(lower)), "upper": repr(float(upper))}
        ElementTree.SubElement(ranges, "range", {**bounds, "label": label, "render": "true"})
        fill = {
            "color": ",".join(map(str, [*colour, 255])),
            "style": "solid",
            "outline_style": "solid" if outline else "no",
            "outline_color": "120,120,130,255",
            "outline_width": "0.1",
            "outline_width_unit": "MM",
        }
        symbol = ElementTree.SubElement(
            symbols, "symbol", name=str(number), type="fill", alpha="1", clip_to_extent="1", force_rhr="0"
        )
        layer = ElementTree.SubElement(
            symbol, "layer", {"class": "SimpleFill"}, enabled="1", locked="0", **{"pass": "0"}
        )
        options = ElementTree.SubElement(layer, "Option", type="Map")
        for name, value in fill.items():
            ElementTree.SubElement(options, "Option", name=name, type="QString", value=value)
    return ElementTree.tostring(root, encoding="unicode")


def style_table(styles: dict[str, str], date: str) -> pyarrow.Table:
    """The rows of ``layer_styles``: a default style for each layer, by its name."""
    import pyarrow as pa

    count = len(styles)
    fixed: dict[str, Any] = {"f_table_catalog": "", "f_table_schema": ""}
    return pa.table(
        {
            **{name: [text] * count for name, text in fixed.items()},
            "f_table_name": list(styles),
            "f_geometry_column": ["geometry"] * count,
            "styleName": ["Mapveil"] * count,
            "styleQML": list(styles.values()),
            "styleSLD": [""] * count,
            "useAsDefault": pa.array([1] * count, pa.int32()),
            "description": ["Density; features that cannot be told from zero stay clear"] * count,
            "owner": [""] * count,
            "ui": [""] * count,
            "update_time": [date] * count,
        }
    )
