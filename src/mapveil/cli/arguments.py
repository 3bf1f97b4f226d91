"""How the commands read their arguments: lists, epsilons, options, regions and sources."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mapveil.errors import InputError, ParameterError
from mapveil.methods import find_method
from mapveil.privacy.epsilon import as_epsilon

if TYPE_CHECKING:
    from mapveil.central.mechanism import CentralMechanism
    from mapveil.geo.region import Region

__all__ = ["epsilon_list", "make_mechanism", "name_list", "parse_region", "read_options"]


def name_list(text: str, what: str) -> list[str]:
    """Split ``a,b,c``; an empty part is an error."""
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise InputError(f"{what} is {text!r}; names separated by commas are accepted")
    return names


def epsilon_list(text: str) -> list[Fraction]:
    """Read ``0.5,1,2`` as exact epsilons."""
    return [as_epsilon(part) for part in name_list(text, "--epsilon")]


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
        options[key] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    constants: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def make_mechanism(
    name: str, trust: str, epsilon: Fraction | str, options: dict[str, Any]
) -> CentralMechanism:
    """Construct a mechanism from its name and options.

    Raises
    ------
    ParameterError
        No such method or option, or a value outside its range.
    """
    kind = find_method(name, trust).load()
    accepted = [item.name for item in dataclasses.fields(kind) if item.name != "epsilon"]
    for key in options:
        if key not in accepted:
            known = ", ".join(accepted) or "none"
            raise ParameterError(f"{name} has no option {key!r}; accepted: {known}")
    try:
        return kind(epsilon=epsilon, **options)
    except TypeError as error:
        raise ParameterError(f"{name}: an option has the wrong kind of value ({error})") from None


def parse_region(text: str | None) -> Region | None:
    """Read ``--region``: a box ``W,S,E,N`` in degrees or a file with a polygon."""
    if text is None:
        return None
    from mapveil.geo.region import Region

    return Region.parse(text)
