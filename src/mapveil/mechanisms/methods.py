"""The table of methods: every mechanism by name, for the command line, comparisons and tests.

Joining is adding a row: the contract tests, ``mapveil methods`` and ``mapveil compare`` read it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from mapveil.mechanisms.mechanism import AnyMechanism, Mechanism
from mapveil_client.epsilon import EpsilonLike
from mapveil_client.errors import ParameterError

DEFAULT_METHODS = {
    "central": "multiscale",
    "distributed": "multiscale",
    "local": "olh-h",
    "projection": "fourier-kde",
}
"""The method of each trust that is used where none is named."""


class Method(NamedTuple):
    """A row of the table."""

    name: str
    trust: str
    path: str  # "module:class"
    labels: bool = False  # whether it needs a label of every row

    def load(self) -> type[AnyMechanism]:
        """Import the mechanism's class."""
        module, _, attribute = self.path.partition(":")
        found: Any = getattr(importlib.import_module(module), attribute)
        return found  # type: ignore[no-any-return]

    @property
    def has_budget(self) -> bool:
        """Whether it promises an epsilon."""
        return issubclass(self.load(), Mechanism)

    def options(self) -> dict[str, Any]:
        """The names of the mechanism's own parameters, with their defaults."""
        return {
            item.name: None if item.default is dataclasses.MISSING else item.default
            for item in dataclasses.fields(self.load())
            if item.name != "epsilon"
        }

    def make(self, epsilon: EpsilonLike | None, options: Mapping[str, Any] | None = None) -> AnyMechanism:
        """Construct the mechanism.

        Raises
        ------
        ParameterError
            No such option, one that is missing, or a value of the wrong kind or outside its range; no epsilon
            where there is a budget, or one where there is none.
        """
        given = dict(options or {})
        accepted = self.options()
        for key in given:
            if key not in accepted:
                known = ", ".join(accepted) or "none"
                raise ParameterError(f"{self.name} has no option {key!r}; accepted: {known}")
        needed = [
            item.name
            for item in dataclasses.fields(self.load())
            if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        ]
        for key in needed:
            if key not in given and key != "epsilon":
                raise ParameterError(
                    f"{self.name} needs the option {key!r}; --option {key}=VALUE is accepted"
                )
        if self.has_budget:
            if epsilon is None:
                raise ParameterError(f"{self.name} needs an epsilon, such as 1")
            given["epsilon"] = epsilon
        elif epsilon is not None:
            raise ParameterError(
                f"{self.name} has no epsilon: it is not differential privacy; leave --epsilon out"
            )
        try:
            return self.load()(**given)
        except TypeError as error:
            raise ParameterError(f"{self.name}: an option has the wrong kind of value ({error})") from None


METHODS: tuple[Method, ...] = (
    Method("multiscale", "central", "mapveil.central.multiscale_heatmap:MultiscaleHeatmap"),
    Method("emd", "central", "mapveil.central.emd_heatmap:EmdHeatmap"),
    Method("adaptive-grid", "central", "mapveil.central.adaptive_grid:AdaptiveGrid"),
    Method("privtree", "central", "mapveil.central.privtree:PrivTree"),
    Method("spatial-decomposition", "central", "mapveil.central.spatial_decomposition:SpatialDecomposition"),
    Method("laplace", "central", "mapveil.central.laplace_histogram:LaplaceHistogram"),
    Method("thresholded", "central", "mapveil.central.thresholded_histogram:ThresholdedHistogram"),
    Method("private-fourier-kde", "central", "mapveil.random_features.private_fourier_kde:PrivateFourierKde"),
    Method("multiscale", "distributed", "mapveil.distributed.multiscale_histogram:MultiscaleHistogram"),
    Method("adaptive", "distributed", "mapveil.distributed.adaptive_histogram:AdaptiveHistogram"),
    Method("uniform", "distributed", "mapveil.distributed.uniform_grid:UniformGrid"),
    Method("hierarchical", "distributed", "mapveil.distributed.hierarchical_histogram:HierarchicalHistogram"),
    Method("adaptive-grid", "distributed", "mapveil.distributed.adaptive_grid:AdaptiveGrid"),
    Method(
        "spatial-decomposition",
        "distributed",
        "mapveil.distributed.spatial_decomposition:SpatialDecomposition",
    ),
    Method("count-min", "distributed", "mapveil.distributed.count_min_histogram:CountMinHistogram"),
    Method("flat", "distributed", "mapveil.distributed.flat_histogram:FlatHistogram"),
    Method("local-laplace", "distributed", "mapveil.distributed.local_laplace:LocalLaplace"),
    Method(
        "proportions",
        "distributed",
        "mapveil.distributed.proportion_histogram:ProportionHistogram",
        labels=True,
    ),
    Method("subset", "local", "mapveil.local.randomizers.subset_selection:SubsetSelection"),
    Method("disk", "local", "mapveil.local.randomizers.disk_area:DiskArea"),
    Method("srr", "local", "mapveil.local.randomizers.staircase_response:StaircaseResponse"),
    Method("olh", "local", "mapveil.local.randomizers.local_hashing:LocalHashing"),
    Method("olh-h", "local", "mapveil.local.randomizers.hierarchical_hashing:HierarchicalHashing"),
    Method("unary", "local", "mapveil.local.randomizers.unary_encoding:UnaryEncoding"),
    Method("hr", "local", "mapveil.local.randomizers.hadamard_response:HadamardResponse"),
    Method("grr", "local", "mapveil.local.randomizers.generalized_response:GeneralizedRandomizedResponse"),
    Method("planar-laplace", "local", "mapveil.local.randomizers.planar_laplace:PlanarLaplace"),
    Method("fourier-kde", "projection", "mapveil.random_features.fourier_kde:FourierKde"),
    Method("federated-kde", "projection", "mapveil.random_features.federated_kde:FederatedKde"),
    Method("planar-laplace", "projection", "mapveil.random_features.planar_laplace:PlanarLaplace"),
    Method("zero-features", "projection", "mapveil.random_features.zero_features:ZeroFeatures"),
)


def find_method(name: str | None = None, trust: str = "central") -> Method:
    """The row of a name and a trust, or an error that lists the names; without a name, the default of the trust.

    Raises
    ------
    ParameterError
        No such trust, or no method of it has the name.
    """
    if trust not in DEFAULT_METHODS:
        raise ParameterError(f"no trust is called {trust!r}; accepted: {', '.join(DEFAULT_METHODS)}")
    wanted = name or DEFAULT_METHODS[trust]
    for method in METHODS:
        if method.name == wanted and method.trust == trust:
            return method
    names = ", ".join(method.name for method in METHODS if method.trust == trust)
    elsewhere = ", ".join(f"--trust {method.trust}" for method in METHODS if method.name == wanted)
    hint = f" (there is one with {elsewhere})" if elsewhere else ""
    raise ParameterError(f"no {trust} method is called {wanted!r}{hint}; accepted: {names}")


def option_value(text: str) -> Any:
    """Read an option's value as a person writes it: a number, true, false, none, or text.

    Examples
    --------
    >>> option_value("20"), option_value("0.5"), option_value("none"), option_value("mean")
    (20, 0.5, None, 'mean')
    """
    constants: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
