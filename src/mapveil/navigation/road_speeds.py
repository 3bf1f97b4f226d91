"""How fast roads are when nobody says: by their class, and by what a map's tags say of a limit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

CLASS_SPEEDS: Final[Mapping[str, float]] = {
    "motorway": 110,
    "motorway_link": 60,
    "trunk": 90,
    "trunk_link": 50,
    "primary": 60,
    "primary_link": 45,
    "secondary": 50,
    "secondary_link": 40,
    "tertiary": 45,
    "tertiary_link": 35,
    "unclassified": 40,
    "residential": 30,
    "road": 30,
    "living_street": 15,
    "service": 15,
}
"""Kilometres an hour on an open road of each class of OpenStreetMap that cars may use."""

_OTHERWISE: Final = 40.0
_PER_HOUR: Final = {"mph": 1.609344, "knots": 1.852}
_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(mph|knots)?")


def road_speed_kmh(limit: str | None, kind: str | None) -> float:
    """Kilometres an hour from a tag ``maxspeed`` and a tag ``highway``; lists are taken at their first number.

    Examples
    --------
    >>> road_speed_kmh("30 mph", None), road_speed_kmh("PT:urban", "primary"), road_speed_kmh(None, "path")
    (48.28032, 60, 40.0)
    """
    found = _NUMBER.search(str(limit)) if limit else None
    if found and float(found[1]) > 0:
        return float(found[1]) * _PER_HOUR.get(found[2] or "", 1.0)
    classes = re.findall(r"[a-z_]+", str(kind)) if kind else []
    return next((CLASS_SPEEDS[name] for name in classes if name in CLASS_SPEEDS), _OTHERWISE)
