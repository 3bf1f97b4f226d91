"""The exceptions Mapveil raises: one small, closed tree.

::

    MapveilError
    ├── InputError          what was given cannot be used        (exit code 2)
    │   ├── ParameterError  a parameter is outside its range     (also a ValueError)
    │   └── MissingExtra    an optional dependency is not there  (also an ImportError)
    └── PromiseError        a promise cannot be kept, nothing is released (exit code 1)
        └── BudgetExceeded  the ledger refuses to spend more
"""

from __future__ import annotations

import importlib
from types import ModuleType


class MapveilError(Exception):
    """Any failure that Mapveil itself reports; its text is one line for a person."""

    exit_code = 1


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
    """The ledger refuses: the dataset's privacy budget would be exceeded."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra installs it.

    Parameters
    ----------
    module : str
        Importable name, such as ``"matplotlib.pyplot"``.
    extra : str
        The extra of Mapveil that brings it, such as ``"viz"``.

    Raises
    ------
    MissingExtra
        The module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{module.split('.')[0]} is not installed; install it with: pip install 'mapveil[{extra}]'"
        ) from error
