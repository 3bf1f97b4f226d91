"""The table of privatizers: every one by name, for the command line, experiments and the contract tests.

Joining is adding a row.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from mapveil.obfuscation.privatizers.privatizer import Privatizer
from mapveil_client.errors import ParameterError


class PrivatizerRow(NamedTuple):
    """A row of the table."""

    name: str
    path: str  # "module:class"

    def load(self) -> type[Privatizer]:
        """Import the privatizer's class."""
        module, _, attribute = self.path.partition(":")
        found: Any = getattr(importlib.import_module(module), attribute)
        return found  # type: ignore[no-any-return]

    def options(self) -> dict[str, Any]:
        """The names of its parameters, with their defaults; None where there is none."""
        return {
            item.name: None if item.default is dataclasses.MISSING else item.default
            for item in dataclasses.fields(self.load())
        }

    def make(self, options: Mapping[str, Any] | None = None) -> Privatizer:
        """Construct the privatizer.

        Raises
        ------
        ParameterError
            No such option, one that is missing, or a value of the wrong kind or outside its range.
        """
        given = dict(options or {})
        fields = dataclasses.fields(self.load())
        accepted = ", ".join(item.name for item in fields)
        for key in given:
            if key not in {item.name for item in fields}:
                raise ParameterError(f"{self.name} has no option {key!r}; accepted: {accepted}")
        for item in fields:
            needed = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
            if needed and item.name not in given:
                raise ParameterError(
                    f"{self.name} needs the option {item.name!r}; --option {item.name}=VALUE is accepted"
                )
        try:
            return self.load()(**given)
        except TypeError as error:
            raise ParameterError(f"{self.name}: an option has the wrong kind of value ({error})") from None


PRIVATIZERS: tuple[PrivatizerRow, ...] = (
    PrivatizerRow("gaussian-noise", "mapveil.obfuscation.privatizers.gaussian_noise:GaussianNoise"),
    PrivatizerRow("local-gaussian", "mapveil.obfuscation.privatizers.local_gaussian:LocalGaussian"),
    PrivatizerRow(
        "truncated-laplacian", "mapveil.obfuscation.privatizers.truncated_laplacian:TruncatedLaplacian"
    ),
    PrivatizerRow("gap", "mapveil.obfuscation.privatizers.gap:Gap"),
    PrivatizerRow("codebook", "mapveil.obfuscation.privatizers.codebook:Codebook"),
    PrivatizerRow("funnel", "mapveil.obfuscation.privatizers.funnel:Funnel"),
)


def find_privatizer(name: str) -> PrivatizerRow:
    """The row of a name.

    Raises
    ------
    ParameterError
        No privatizer has the name.
    """
    for row in PRIVATIZERS:
        if row.name == name:
            return row
    known = ", ".join(row.name for row in PRIVATIZERS)
    raise ParameterError(f"no privatizer is called {name!r}; accepted: {known}")
