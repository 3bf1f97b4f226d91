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
    "random-features": "fourier-kde",
}
"""The method of each trust that is used where none is named."""


class Method(NamedTuple):
    """A row of the table."""

    name: str
    trust: str
    path: str  # "module:class"
    labels: bool = False  # whether it needs a label of every row
    trust_path: str = ""  # "module:class" of the trust model that answers a plan

    def load(self) -> type[AnyMechanism]:
        """Import the mechanism's class."""
        found: type[AnyMechanism] = _load(self.path)
        return found

    @property
    def has_budget(self) -> bool:
        """Whether it promises an epsilon."""
        return issubclass(self.load(), Mechanism)

    def options(self) -> dict[str, Any]:
        """The names of the mechanism's own parameters, with their defaults."""
        fields = {item.name: item for item in dataclasses.fields(self.load())}
        fields |= {item.name: item for item in self._trust_fields()}
        return {
            name: None if item.default is dataclasses.MISSING else item.default
            for name, item in fields.items()
            if name not in ("epsilon", "trust")
        }

    def _trust_fields(self) -> tuple[dataclasses.Field[Any], ...]:
        return dataclasses.fields(_load(self.trust_path)) if self.trust_path else ()

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
                raise ParameterError(f"{self.name} has no option {key!r}; expected one of {known}")
        needed = [
            item.name
            for item in dataclasses.fields(self.load())
            if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        ]
        for key in needed:
            if key not in given and key != "epsilon":
                raise ParameterError(f"{self.name} needs the option {key!r}; expected --option {key}=VALUE")
        if self.has_budget:
            if epsilon is None:
                raise ParameterError(f"{self.name} needs an epsilon, such as 1")
            given["epsilon"] = epsilon
        elif epsilon is not None:
            raise ParameterError(
                f"{self.name} has no epsilon: it is not differential privacy; leave --epsilon out"
            )
        try:
            if self.trust_path:
                names = [item.name for item in self._trust_fields() if item.name in given]
                given["trust"] = _load(self.trust_path)(**{name: given.pop(name) for name in names})
            return self.load()(**given)
        except TypeError as error:
            raise ParameterError(f"{self.name}: an option has the wrong kind of value ({error})") from None


def _load(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


_CURATOR = "mapveil.trust.curator:Curator"
_SECURE = "mapveil.trust.secure_aggregation.model:SecureAggregation"
_WHOLE_NOISE = "mapveil.trust.secure_aggregation.model:WholeNoise"


def _plan(name: str, path: str, *trusts: str, labels: bool = False) -> tuple[Method, ...]:
    """A row of a plan for each trust model that can answer it."""
    path = f"mapveil.mechanisms.{path}"
    return tuple(
        Method(name, "central" if trust == _CURATOR else "distributed", path, labels, trust)
        for trust in trusts
    )


_PLANS = (
    _plan("multiscale", "multiscale:Multiscale", _CURATOR, _SECURE),
    _plan("adaptive", "adaptive_histogram:AdaptiveHistogram", _CURATOR, _SECURE),
    _plan("emd", "emd_heatmap:EmdHeatmap", _CURATOR, _SECURE),
    _plan("adaptive-grid", "adaptive_grid:AdaptiveGrid", _CURATOR, _SECURE),
    _plan("privtree", "privtree:PrivTree", _CURATOR),
    _plan("spatial-decomposition", "spatial_decomposition:SpatialDecomposition", _CURATOR, _SECURE),
    _plan("uniform", "uniform_grid:UniformGrid", _CURATOR, _SECURE),
    _plan("hierarchical", "hierarchical_histogram:HierarchicalHistogram", _CURATOR, _SECURE),
    _plan("laplace", "laplace_histogram:LaplaceHistogram", _CURATOR, _SECURE),
    _plan("thresholded", "thresholded_histogram:ThresholdedHistogram", _CURATOR, _SECURE),
    _plan("private-fourier-kde", "private_fourier_kde:PrivateFourierKde", _CURATOR),
    _plan("count-min", "count_min_histogram:CountMinHistogram", _SECURE),
    _plan("local-laplace", "local_laplace:LocalLaplace", _WHOLE_NOISE),
    _plan("proportions", "proportion_histogram:ProportionHistogram", _SECURE, labels=True),
)

METHODS: tuple[Method, ...] = (
    *(method for plan in _PLANS for method in plan),
    Method("subset", "local", "mapveil.local.randomizers.subset_selection:SubsetSelection"),
    Method("disk", "local", "mapveil.local.randomizers.disk_area:DiskArea"),
    Method("srr", "local", "mapveil.local.randomizers.staircase_response:StaircaseResponse"),
    Method("olh", "local", "mapveil.local.randomizers.local_hashing:LocalHashing"),
    Method("olh-h", "local", "mapveil.local.randomizers.hierarchical_hashing:HierarchicalHashing"),
    Method("unary", "local", "mapveil.local.randomizers.unary_encoding:UnaryEncoding"),
    Method("hr", "local", "mapveil.local.randomizers.hadamard_response:HadamardResponse"),
    Method("grr", "local", "mapveil.local.randomizers.generalized_response:GeneralizedRandomizedResponse"),
    Method("planar-laplace", "local", "mapveil.local.randomizers.planar_laplace:PlanarLaplace"),
    Method("fourier-kde", "random-features", "mapveil.random_features.fourier_kde:FourierKde"),
    Method("federated-kde", "random-features", "mapveil.random_features.federated_kde:FederatedKde"),
    Method(
        "planar-laplace", "random-features", "mapveil.random_features.geo_indistinguishability:PlanarLaplace"
    ),
    Method("zero-features", "random-features", "mapveil.random_features.zero_features:ZeroFeatures"),
)


def find_method(name: str | None = None, trust: str = "central") -> Method:
    """The row of a name and a trust, or an error that lists the names; without a name, the default of the trust.

    Raises
    ------
    ParameterError
        No such trust, or no method of it has the name.
    """
    if trust not in DEFAULT_METHODS:
        raise ParameterError(f"no trust is called {trust!r}; expected one of {', '.join(DEFAULT_METHODS)}")
    wanted = name or DEFAULT_METHODS[trust]
    for method in METHODS:
        if method.name == wanted and method.trust == trust:
            return method
    names = ", ".join(method.name for method in METHODS if method.trust == trust)
    elsewhere = [method for method in METHODS if method.name == wanted]
    hint = ""
    if elsewhere:
        why = getattr(elsewhere[0].load(), "unanswerable", {}).get(trust)
        trusts = ", ".join(f"--trust {method.trust}" for method in elsewhere)
        hint = f" (there is one with {trusts}{f': {why}' if why else ''})"
    raise ParameterError(f"no {trust} method is called {wanted!r}{hint}; methods: {names}")


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
