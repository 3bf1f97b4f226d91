"""How the commands read their arguments: lists, epsilons, options, regions and sources."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mapveil.mechanisms.methods import option_value
from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.geo.region import Region


def name_list(text: str, what: str) -> list[str]:
    """Split ``a,b,c``; an empty part is an error."""
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise InputError(f"{what} is {text!r}; names separated by commas are accepted")
    return names


def epsilon_list(text: str) -> list[Fraction]:
    """Read ``0.5,1,2`` as exact epsilons."""
    return [as_epsilon(part) for part in name_list(text, "--epsilon")]


def whole_list(text: str, what: str) -> list[int]:
    """Read ``1,2,5`` as whole numbers of at least 1."""
    parts = name_list(text, what)
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) < 1 << 31 for part in parts):
        raise InputError(f"{what} is {text!r}; whole numbers of at least 1 separated by commas are accepted")
    return [int(part) for part in parts]


def length_list(text: str | None, what: str) -> list[float]:
    """Read ``75,150`` as lengths above 0; nothing for None."""
    if text is None:
        return []
    try:
        made = [float(part) for part in name_list(text, what)]
    except ValueError:
        made = [math.nan]
    if not all(math.isfinite(value) and value > 0 for value in made):
        raise InputError(f"{what} is {text!r}; lengths above 0 separated by commas are accepted")
    return made


def read_options(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Read ``key=value`` pairs: numbers, true, false and none are understood.

    Raises
    ------
    InputError
        A pair has no ``=``, or a key comes twice.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise InputError(f"--option {pair!r}: key=value is accepted, such as width=20")
        if key in options:
            raise InputError(f"--option {key} is given twice")
        options[key] = option_value(value.strip())
    return options


def parse_region(text: str | None) -> Region | None:
    """Read ``--region``: a box ``W,S,E,N`` in degrees or a file with a polygon."""
    if text is None:
        return None
    from mapveil.geo.region import Region

    return Region.parse(text)
