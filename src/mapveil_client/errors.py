"""The exceptions Mapveil raises: one small, closed tree.

::

    MapveilError
    ├── InputError          what was given cannot be used        (exit code 2)
    │   ├── ParameterError  a parameter is outside its range     (also a ValueError)
    │   └── MissingExtra    an optional dependency is not there  (also an ImportError)
    └── PromiseError        a promise cannot be kept, nothing is released (exit code 1)
        └── BudgetExceeded  the ledger refuses to spend more
"""

import dataclasses
import functools
import importlib
import importlib.util
import math
import re
import typing
from fractions import Fraction
from numbers import Integral, Real
from types import ModuleType, NoneType, UnionType
from typing import Any, Final, Literal, cast

_LONGEST: Final = 300


_NAME: Final = r"[a-z_]\w*(?:=(?:'[^']*'|[\w./-]+))?"
_FLAGS: Final = re.compile(r" \((--[^()]*)\)")
_NAMED_FLAGS: Final = re.compile(rf"(?<![\w'-])({_NAME}(?:(?: and |, ){_NAME})*) \((--(?!option)[^()]*)\)")


class MapveilError(Exception):
    """Any failure that Mapveil itself reports; its text is one line for a person.

    A text names an argument as Python does, with the flag of the command line behind it: ``region (--region) is
    required``. Each door shows its own: :func:`str` the argument, :meth:`in_flags` the flag.
    """

    exit_code = 1

    def __str__(self) -> str:
        return _FLAGS.sub("", super().__str__())

    def in_flags(self) -> str:
        """The text as the command line says it."""
        return _NAMED_FLAGS.sub(_flags, super().__str__())


def _flags(found: re.Match[str]) -> str:
    """The flags in place of as many names before them."""
    names, flags = re.split(r"( and |, )", found[1]), found[2]
    others = names[: -(2 * flags.count("--") - 1)]
    return "".join((*others, flags))


class InputError(MapveilError):
    """The input cannot be used: names file, column, row or value, and what was expected."""

    exit_code = 2


class ParameterError(InputError, ValueError):
    """A parameter is outside its range: names it, its value and the range."""


class MissingExtra(InputError, ImportError):
    """An optional dependency is missing: names the extra that installs it."""


class PromiseError(MapveilError):
    """A promise cannot be kept, so nothing is released: names the promise."""


class BudgetExceeded(PromiseError):
    """The ledger refuses: the account's privacy budget would be exceeded.

    Attributes
    ----------
    left : Fraction, optional
        Epsilon that is left of the account's budget, where it is known.
    """

    def __init__(self, message: str, left: Fraction | None = None) -> None:
        super().__init__(message)
        self.left = left


class CuratorWarning(UserWarning):
    """A remark about true data, for the terminal of the curator only."""


def check(held: bool, name: str, needed: str, got: object) -> None:
    """Refuse a parameter unless its condition ``held``: "NAME must be NEEDED, got GOT"; bytes as hexadecimal digits.

    Raises
    ------
    ParameterError
        It does not hold.
    """
    if not held:
        shown = got.hex() if isinstance(got, bytes) else repr(got)
        raise ParameterError(f"{name} must be {needed}, got {shown:.100}")


_MOST_BITS: Final = 64  # of a whole number: any fits a float64 and prints
_KINDS: Final[dict[object, tuple[str, type]]] = {
    bool: ("true or false", bool),
    int: ("a whole number", Integral),
    float: ("a number", Real),
    Fraction: ("a number", Real),
    str: ("a name", str),
    NoneType: ("none", NoneType),
}


@functools.cache
def _kinds(owner: type) -> dict[str, tuple[str, tuple[type, ...], tuple[object, ...]]]:
    """Words, types and literal values that each field may have, where its annotation is of plain kinds."""
    found = {}
    for name, hint in typing.get_type_hints(owner).items():
        union = typing.get_origin(hint) in (typing.Union, UnionType)
        words: list[str] = []
        types: list[type] = []
        literals: list[object] = []
        for kind in typing.get_args(hint) if union else (hint,):
            if typing.get_origin(kind) is Literal:
                literals += typing.get_args(kind)
                words += map(str, typing.get_args(kind))
            elif kind in _KINDS:
                words.append(_KINDS[kind][0])
                types.append(_KINDS[kind][1])
            else:
                break
        else:
            words = list(dict.fromkeys(words))
            needed = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
            found[name] = (needed, tuple(types), tuple(literals))
    return {
        item.name: found[item.name] for item in dataclasses.fields(cast(Any, owner)) if item.name in found
    }


class Checked:
    """Parameters of a dataclass, checked at construction: first that each is of the kind that its annotation names."""

    def __post_init__(self) -> None:
        for name, (needed, types, literals) in _kinds(cast(Any, type(self))).items():
            value = getattr(self, name)
            plain = isinstance(value, types) and (not isinstance(value, bool) or bool in types)
            plain = plain and not (isinstance(value, Integral) and int(value).bit_length() > _MOST_BITS)
            self._check(plain or (isinstance(value, str) and value in literals), name, needed)

    def _check(self, held: bool, name: str, needed: str) -> None:
        """Refuse a parameter outside its range."""
        check(held, name, needed, getattr(self, name.partition(" ")[0]))  # a flag may follow the name

    def _check_positive(self, *names: str) -> None:
        """Refuse parameters that are no finite numbers above 0."""
        for name in names:
            value = getattr(self, name)
            self._check(math.isfinite(value) and value > 0, name, "a number above 0")


class Secret:
    """An object that nothing may carry out of its process."""

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(f"{type(self).__name__} is secret and cannot be pickled or copied")


def is_whole(value: object, low: int, high: int) -> bool:
    """Whether a value from outside is an integer of ``low`` to ``high``; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def check_whole(value: object, name: str, low: int, high: int) -> None:
    """Refuse a value from outside unless it :func:`is_whole`.

    Raises
    ------
    ParameterError
        It is not.
    """
    check(is_whole(value, low, high), name, f"a whole number from {low} to {high}", value)


def printable(text: str) -> str:
    """A text with a space for every character that moves a cursor, ends a line or turns the direction of writing."""
    return "".join(each if each.isprintable() else " " for each in text)


def one_line(text: str, most: int = _LONGEST) -> str:
    """A text that somebody else had a part in, as one printable line of at most so many characters.

    Examples
    --------
    >>> one_line("no method is called 'a\\nb'" + 1000 * "!")[:30]
    "no method is called 'a b'!!!!!"
    """
    line = " ".join(printable(text[: 2 * most]).split())
    return line if len(line) <= most else line[: most - 3] + "..."


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency such as ``"matplotlib.pyplot"``, of an extra of Mapveil such as ``"viz"``.

    Raises
    ------
    MissingExtra
        The module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(module, extra) from error


def check_installed(package: str, extra: str) -> None:
    """Refuse an optional dependency that is not installed, as :func:`require` does, without importing it."""
    if importlib.util.find_spec(package) is None:
        raise _missing(package, extra)


def _missing(module: str, extra: str) -> MissingExtra:
    package = module.split(".")[0]
    return MissingExtra(
        f"{package} is not installed; it comes with the extra {extra}, as by pip install '.[{extra}]' in the checkout"
    )
