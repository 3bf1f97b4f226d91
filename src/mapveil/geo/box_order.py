"""The order of a box's four numbers: hints from public numbers alone, given before anything is charged."""

import re
from collections.abc import Iterable
from typing import Final

_ORDERS: Final = {
    "east,south,west,north": (2, 1, 0, 3),
    "south,west,north,east": (1, 0, 3, 2),
    "west,north,east,south": (0, 3, 2, 1),
    "north,west,south,east": (1, 2, 3, 0),
    "west,east,south,north": (0, 2, 1, 3),
    "east,north,west,south": (2, 3, 0, 1),
}
"""Other usual orders, and the places of west, south, east and north in each."""

_INHABITED: Final = (-60.0, 80.0)
"""Latitudes, degrees, outside of which nobody lives for good but at a few stations (the northernmost town is at 78)."""

_BOX: Final = re.compile(r"(?:polygon within )?([-+.e\d]+),([-+.e\d]+),([-+.e\d]+),([-+.e\d]+)$")

Numbers = tuple[float, float, float, float]


def order_hint(numbers: Numbers) -> str:
    """A hint for four numbers that are no box: the order in which they would be one, or nothing.

    Examples
    --------
    >>> order_hint((40.83, -74.03, 40.69, -73.90))
    '; as north,west,south,east the numbers would be a box, but west,south,east,north is expected'
    """
    for order, at in _ORDERS.items():
        box = (numbers[at[0]], numbers[at[1]], numbers[at[2]], numbers[at[3]])
        if _is_box(box) and not lies_where_nobody_lives(box):
            return f"; as {order} the numbers would be a box, but west,south,east,north is expected"
    return ""


def lies_where_nobody_lives(box: Numbers) -> bool:
    """Whether a box lies far south or north and would not if longitude and latitude were exchanged."""
    swapped = _swapped(box)
    return (
        (box[3] <= _INHABITED[0] or box[1] >= _INHABITED[1])
        and _is_box(swapped)
        and _INHABITED[0] < swapped[1] < swapped[3] < _INHABITED[1]
    )


def swapped_against(region: str, known: Iterable[str]) -> str | None:
    """The first of the regions known before that a region meets only with longitude and latitude exchanged.

    Regions are texts as :class:`~mapveil.geo.region.Region` writes them. None where a known region meets it as it is.

    Examples
    --------
    >>> swapped_against("40.69,-74.03,40.83,-73.9", ["-74.1,40.6,-73.8,40.9"])
    '-74.1,40.6,-73.8,40.9'
    """
    box, others = _read(region), {text: found for text in known if (found := _read(text)) is not None}
    if box is None or any(_meet(box, other) for other in others.values()):
        return None
    return next((text for text, other in others.items() if _meet(_swapped(box), other)), None)


def _read(text: str) -> Numbers | None:
    found = _BOX.match(text)
    return None if found is None else (float(found[1]), float(found[2]), float(found[3]), float(found[4]))


def _swapped(box: Numbers) -> Numbers:
    return (box[1], box[0], box[3], box[2])


def _is_box(box: Numbers) -> bool:
    return -180 <= box[0] < box[2] <= 180 and -90 <= box[1] < box[3] <= 90


def _meet(one: Numbers, other: Numbers) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
