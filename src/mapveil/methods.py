"""The table of methods: every mechanism by name, for the command line, comparisons and tests.

Joining is adding a row: the contract tests, ``mapveil methods`` and ``mapveil compare`` read it.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from mapveil.central.mechanism import CentralMechanism
from mapveil.errors import ParameterError

__all__ = ["DEFAULT_METHOD", "METHODS", "Method", "find_method"]

DEFAULT_METHOD = "multiscale"


class Method(NamedTuple):
    """A row of the table."""

    name: str
    trust: str
    path: str  # "module:class"

    def load(self) -> type[CentralMechanism]:
        """Import the mechanism's class."""
        module, _, attribute = self.path.partition(":")
        found: Any = getattr(importlib.import_module(module), attribute)
        return found  # type: ignore[no-any-return]


METHODS: tuple[Method, ...] = (
    Method("multiscale", "central", "mapveil.central.multiscale_heatmap:MultiscaleHeatmap"),
    Method("emd", "central", "mapveil.central.emd_heatmap:EmdHeatmap"),
    Method("adaptive-grid", "central", "mapveil.central.adaptive_grid:AdaptiveGrid"),
    Method("privtree", "central", "mapveil.central.privtree:PrivTree"),
    Method("spatial-decomposition", "central", "mapveil.central.spatial_decomposition:SpatialDecomposition"),
    Method("laplace", "central", "mapveil.central.laplace_histogram:LaplaceHistogram"),
    Method("thresholded", "central", "mapveil.central.thresholded_histogram:ThresholdedHistogram"),
)


def find_method(name: str, trust: str = "central") -> Method:
    """The row of a name, or an error that lists the names.

    Raises
    ------
    ParameterError
        No method of this trust has the name.
    """
    for method in METHODS:
        if method.name == name and method.trust == trust:
            return method
    names = ", ".join(method.name for method in METHODS if method.trust == trust)
    raise ParameterError(f"no {trust or 'such'} method is called {name!r}; accepted: {names or 'none yet'}")
