"""Drafting: what an operator asks for becomes the terms that every device is told, or an error that says why not.

Everything that could make a collection fail by its parameters alone is tried here, before anybody is asked.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

from mapveil.geo.parse_tiling import parse_tiling, tiling_from_dict
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.mechanism import AnyMechanism, check_tiling
from mapveil.mechanisms.methods import Method, find_method
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.terms import TRUSTS, CollectionTerms

MOST_CELLS: Final = 1 << 22
"""Cells of a collection's map at most: what a phone and a page can hold."""

_MOST_DEPTH: Final = 12
"""Of the raster that the cells lie on: sums are over all of its 4**12 sites, however few of them are cells."""

_KEYS: Final = (
    *("title", "trust", "method", "epsilon", "options", "region", "tiling", "devices", "minimum"),
    *("active", "join_seconds", "phase_seconds"),
)
_JOIN_SECONDS: Final = 3600
_PHASE_SECONDS: Final = 60
_MOST_JOIN: Final = 90 * 24 * 3600
_MOST_PHASE: Final = 24 * 3600
_LEAST_EPSILON: Final = Fraction(1, 1 << 20)
_MOST_EPSILON: Final = Fraction(10_000)
_EPSILON: Final = re.compile(r"\d{1,20}(\.\d{1,30})?|\d{1,30}/\d{1,30}")
_TILING: Final = re.compile(r"(grid:\d{1,5}x\d{1,5}|quadtree:\d{1,2}|tiles:\d{1,2})")
_PLACES: Final = ("kind", "lon", "lat", "names", "max_distance_m")
_NOT_HERE: Final = ("sample", "redraw")


class Draft(NamedTuple):
    """A collection as it will be offered to devices."""

    terms: CollectionTerms
    join_seconds: int
    phase_seconds: int


def draft_terms(spec: Mapping[str, Any], identifier: str) -> Draft:
    """The terms of what an operator asks for.

    Parameters
    ----------
    spec : mapping
        ``title``, ``trust``, ``method``, ``epsilon``, ``options``, ``region`` (west, south, east, north in degrees, or
        a box as GeoJSON), ``tiling`` (``"quadtree:8"``, or a record of places), ``devices``, ``minimum``, ``active``,
        ``join_seconds``, ``phase_seconds``.
    identifier : str
        32 hexadecimal digits.

    Raises
    ------
    InputError
        Something is missing, unknown or out of range, or does not go with the rest.
    """
    unknown = [str(key) for key in spec if key not in _KEYS]
    if unknown:
        raise InputError(f"a collection has no {unknown[0][:40]!r}; {', '.join(_KEYS)} are accepted")
    trust = _text(spec, "trust")
    if trust not in TRUSTS:
        raise InputError(f"trust is {trust[:40]!r}; {', '.join(TRUSTS)} is accepted")
    name = spec.get("method")
    method = find_method(None if name is None else _text(spec, "method"), trust)
    tiling = _tiling(spec.get("tiling"), _region(spec.get("region")))
    devices = _whole(spec, "devices", 3, 1 << 24)
    title = _text(spec, "title")
    if not title.strip() or len(title) > 200 or not title.isprintable():
        raise InputError("title: 1 to 200 printable characters are accepted")
    epsilon, options = _epsilon(spec.get("epsilon"), method), _options(spec.get("options"), method)
    terms = CollectionTerms(
        identifier=identifier,
        title=title,
        trust=trust,
        method=method.name,
        epsilon=epsilon,
        options=options,
        tiling=tiling.to_dict(),
        devices=devices,
        minimum=_whole(spec, "minimum", 3, devices, max(3, -(-devices // 2))),
        active=_truth(spec, "active", True),
        query=_query(method.make(epsilon, options), tiling, devices),
    )
    _try(terms)
    # What devices will read must be what was meant.
    return Draft(
        CollectionTerms.decode(terms.encode()),
        _whole(spec, "join_seconds", 1, _MOST_JOIN, _JOIN_SECONDS),
        _whole(spec, "phase_seconds", 1, _MOST_PHASE, _PHASE_SECONDS),
    )


def _query(mechanism: AnyMechanism, tiling: Tiling, devices: int) -> bytes:
    """What a projection asks; nothing for another trust."""
    from mapveil.random_features.fourier_kde import FourierKde
    from mapveil_client.random_features.message import write_query

    if not isinstance(mechanism, FourierKde):
        return b""
    try:
        return write_query(mechanism.public_query(tiling, devices))
    except PromiseError as error:
        raise InputError(f"devices would not answer: {error}") from None


def _try(terms: CollectionTerms) -> None:
    """Make both halves of the mechanism, as every device and the service will."""
    if terms.trust == "local":
        terms.randomizer.identity()
    if terms.trust == "distributed":
        from mapveil.collector.rounds.server_half import check_feasible

        check_feasible(terms)


def _region(value: object) -> Region:
    """A box, as four numbers or as GeoJSON."""
    if isinstance(value, Mapping):
        value = _box(value)
    if not isinstance(value, (list, tuple)) or len(value) != 4 or not all(_finite(part) for part in value):
        raise InputError("region: [west, south, east, north] in degrees is accepted")
    return Region.from_bbox(*(float(part) for part in value))


def _box(shape: Mapping[str, Any]) -> list[float]:
    """The sides of a GeoJSON polygon that is a box. A device tests boxes with nothing but NumPy."""
    if shape.get("type") == "Feature" and isinstance(shape.get("geometry"), Mapping):
        shape = shape["geometry"]
    rings = shape.get("coordinates")
    ring = rings[0] if isinstance(rings, list) and len(rings) == 1 else None
    if shape.get("type") == "Polygon" and isinstance(ring, list) and len(ring) == 5:
        corners = [
            (corner[0], corner[1])
            for corner in ring
            if isinstance(corner, list) and len(corner) >= 2 and _finite(corner[0]) and _finite(corner[1])
        ]
        lon, lat = ({corner[axis] for corner in corners} for axis in (0, 1))
        closed = len(corners) == 5 and corners[0] == corners[4] and len(set(corners)) == 4
        along = all((a[0] == b[0]) != (a[1] == b[1]) for a, b in itertools.pairwise(corners))
        if closed and along and len(lon) == len(lat) == 2:
            return [min(lon), min(lat), max(lon), max(lat)]
    raise InputError(
        "region: a box along meridians and parallels is accepted (four numbers, or a GeoJSON polygon of four such "
        "sides): devices test no other outline"
    )


def _tiling(value: object, region: Region) -> Tiling:
    if isinstance(value, str):
        # A closed list: places:FILE would read the service's own disk.
        if not _TILING.fullmatch(value):
            raise InputError(
                "tiling: grid:ROWSxCOLUMNS, quadtree:8, tiles:15 or a record of places is accepted, no other"
            )
        made = parse_tiling(value, region)
    elif isinstance(value, Mapping):
        made = _places(value, region)
    else:
        raise InputError("tiling: text such as 'quadtree:8', or a record of places, is accepted")
    if made.size > MOST_CELLS:
        raise InputError(f"tiling: {made.spec} has {made.size} cells; at most {MOST_CELLS} are accepted")
    check_tiling(made)
    if made.lattice().depth > _MOST_DEPTH:
        raise InputError(
            f"tiling: {made.spec} is too long and narrow; at most {1 << _MOST_DEPTH} rows and columns are accepted"
        )
    return made


def _places(record: Mapping[str, Any], region: Region) -> Tiling:
    """A list of sites within the region."""
    unknown = [str(key) for key in record if key not in _PLACES]
    lon, lat, names = (record.get(key) for key in ("lon", "lat", "names"))
    if (
        not (isinstance(lon, list) and isinstance(lat, list) and 2 <= len(lon) == len(lat) <= MOST_CELLS)
        or record.get("kind") != "places"
        or unknown
    ):
        raise InputError(
            f"tiling: a record of places has {', '.join(_PLACES)}; two or more sites are accepted"
        )
    if not all(_finite(value) for part in (lon, lat) for value in part):
        raise InputError("tiling: lon and lat of places: numbers of degrees are accepted")
    if names is not None and not (
        isinstance(names, list)
        and len(names) == len(lon)
        and all(isinstance(name, str) and len(name) <= 200 and name.isprintable() for name in names)
    ):
        raise InputError("tiling: names of places: as many texts as there are sites are accepted")
    far = record.get("max_distance_m")
    if far is not None and not (_finite(far) and far > 0):
        raise InputError("tiling: max_distance_m of places: a number of metres above 0 is accepted")
    return tiling_from_dict({**record, "region": region.to_dict()})


def _epsilon(value: object, method: Method) -> Fraction | None:
    if not method.has_budget:
        if value is not None:
            raise InputError(f"epsilon: {method.name} has none: it is not differential privacy")
        return None
    text = f"{Decimal(repr(value)):f}" if _finite(value) else value
    good = isinstance(text, str) and _EPSILON.fullmatch(text) is not None
    if not isinstance(text, str) or not good or int(text.partition("/")[2] or 1) == 0:
        raise InputError("epsilon: a number above 0 such as 1, '0.5' or '1/3' is accepted")
    exact = Fraction(text)
    if not _LEAST_EPSILON <= exact <= _MOST_EPSILON:
        raise InputError(f"epsilon: 2**-20 to {_MOST_EPSILON} is accepted")
    return exact


def _options(value: object, method: Method) -> dict[str, Any]:
    """The mechanism's parameters: those that a collection from devices can keep."""
    if method.labels:
        raise InputError(f"method: {method.name} needs a label of every row, which devices do not report")
    if method.trust == "projection" and method.name != "fourier-kde":
        raise InputError(
            f"method: {method.name} sends places or whole kernels, no projection; fourier-kde is accepted"
        )
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError("options: an object of parameters is accepted")
    for key, given in value.items():
        plain = given is None or isinstance(given, (bool, int, float, str))
        if not isinstance(key, str) or not plain or (isinstance(given, float) and not math.isfinite(given)):
            raise InputError("options: names with numbers, texts, true, false or null are accepted")
        if isinstance(given, str) and (len(given) > 200 or not given.isprintable()):
            raise InputError(f"options: {key[:40]}: at most 200 printable characters are accepted")
        if isinstance(given, int) and abs(given) > 1 << 53:
            raise InputError(f"options: {key[:40]}: a number of at most 2**53 is accepted")
        if key in _NOT_HERE or (key == "overflow" and given != "refuse"):
            raise InputError(f"options: {key} is for simulations; a collection asks every device that joined")
        if key == "bandwidth_rule" and given != "public":
            raise InputError("options: bandwidth_rule: public is accepted; another reads places in the clear")
    return dict(value)


def _text(spec: Mapping[str, Any], name: str) -> str:
    value = spec.get(name)
    if not isinstance(value, str):
        raise InputError(f"{name}: a text is accepted")
    return value


def _whole(spec: Mapping[str, Any], name: str, low: int, high: int, missing: int | None = None) -> int:
    value = spec.get(name, missing)
    if value is None and missing is not None:
        value = missing
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{name}: a whole number from {low} to {high} is accepted")
    return value


def _truth(spec: Mapping[str, Any], name: str, missing: bool) -> bool:
    value = spec.get(name)
    if value is None:
        return missing
    if not isinstance(value, bool):
        raise InputError(f"{name}: true or false is accepted")
    return value


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15
