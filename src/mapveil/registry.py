"""Tables of classes by name: each row imports its class when it is used, and makes it from named options."""

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mapveil_client.errors import ParameterError

T = TypeVar("T")


@dataclass(frozen=True)
class Row(Generic[T]):
    """One name of a table.

    Parameters
    ----------
    name : str
        The name on the command line and in files.
    path : str
        Module and name of the frozen dataclass, as ``"module:class"``.
    """

    name: str
    path: str

    def load(self) -> type[T]:
        """Import the class."""
        module, _, attribute = self.path.partition(":")
        found: type[T] = getattr(importlib.import_module(module), attribute)
        return found

    def options(self) -> dict[str, Any]:
        """The names of the class's parameters, with their defaults; None where there is none."""
        return {
            item.name: None if item.default is dataclasses.MISSING else item.default
            for item in self._fields()
        }

    def make(self, options: Mapping[str, Any] | None = None) -> T:
        """Construct the class.

        Raises
        ------
        ParameterError
            No such option, one that is missing, or a value of the wrong kind or outside its range.
        """
        given = dict(options or {})
        names = [item.name for item in self._fields()]
        for key in given:
            if key not in names:
                raise ParameterError(f"{self.name} has no option {key!r}; its options are {', '.join(names)}")
        for item in self._fields():
            required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
            if required and item.name not in given:
                raise ParameterError(
                    f"{self.name} needs the option {item.name!r} (--option {item.name}=VALUE)"
                )
        try:
            return self.load()(**given)
        except TypeError as error:
            raise ParameterError(f"{self.name}: an option has the wrong kind of value ({error})") from None

    def _fields(self) -> tuple[dataclasses.Field[Any], ...]:
        return dataclasses.fields(self.load())  # type: ignore[arg-type]  # every class of a table is one


def find_row(rows: Sequence[Row[T]], name: str, noun: str) -> Row[T]:
    """The row of a name.

    Raises
    ------
    ParameterError
        No row has the name; the message lists those that exist.
    """
    for row in rows:
        if row.name == name:
            return row
    raise ParameterError(f"no {noun} is called {name!r}; there are {', '.join(row.name for row in rows)}")
