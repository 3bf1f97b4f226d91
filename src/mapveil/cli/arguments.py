"""Readers of arguments: lists, epsilons, locations and options."""

import difflib
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from mapveil.mechanisms.methods import option_value
from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import InputError


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The known name that a misspelt one is near to, as a question; nothing where none is."""
    near = difflib.get_close_matches(given, list(known), 1)
    return f" did you mean {near[0]!r}?" if near else ""


def name_list(text: str, what: str) -> list[str]:
    """Split ``a,b,c``; an empty part is an error."""
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise InputError(f"{what} must be names separated by commas, got {text!r}")
    return names


def epsilon_list(text: str) -> list[Fraction]:
    """Read ``0.5,1,2`` as exact epsilons."""
    return [as_epsilon(part) for part in name_list(text, "--epsilon")]


def whole_list(text: str, what: str) -> list[int]:
    """Read ``1,2,5`` as whole numbers of at least 1."""
    parts = name_list(text, what)
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) < 1 << 31 for part in parts):
        raise InputError(f"{what} must be whole numbers of at least 1 separated by commas, got {text!r}")
    return [int(part) for part in parts]


def length_list(text: str, what: str) -> list[float]:
    """Read ``75,150`` as lengths above 0."""
    try:
        lengths = [float(part) for part in name_list(text, what)]
    except ValueError:
        lengths = [math.nan]
    if not all(math.isfinite(value) and value > 0 for value in lengths):
        raise InputError(f"{what} must be lengths above 0 separated by commas, got {text!r}")
    return lengths


def parse_location(text: str, flag: str) -> tuple[float, float]:
    """Read ``LON,LAT`` in degrees."""
    try:
        lon, lat = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{flag} must be LON,LAT in degrees, got {text!r}") from None
    return lon, lat


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
            raise InputError(f"--option must be key=value, such as width=20, got {pair!r}")
        if key in options:
            raise InputError(f"--option {key} is given twice")
        options[key] = option_value(value.strip())
    return options
