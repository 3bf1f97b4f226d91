"""The table of methods: every mechanism by name, for the command line, comparisons and tests.

Joining is adding a row: the contract tests, ``mapveil methods`` and ``mapveil compare`` read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from mapveil.mechanisms.mechanism import AnyMechanism
from mapveil.registry import Row
from mapveil_client.epsilon import EpsilonLike
from mapveil_client.errors import ParameterError, check
from mapveil_client.method_parameters import LABELLED

if TYPE_CHECKING:
    from mapveil.local.signal_reports import SignalReports
    from mapveil.mechanisms.flow_blocks import FlowBlocks
    from mapveil.mechanisms.signal_sums import SignalSums

DEFAULT_METHODS = {
    "central": "multiscale",
    "distributed": "multiscale",
    "operators": "multiscale",
    "local": "olh-h",
    "random-features": "fourier-kde",
}
"""The default method of each trust model."""


class Method(NamedTuple):
    """A row of the table."""

    name: str
    trust: str
    mechanism: Row[AnyMechanism]
    model: Row[Any] | None = None  # trust model that answers a plan

    def load(self) -> type[AnyMechanism]:
        """Import the mechanism's class."""
        return self.mechanism.load()

    @property
    def labels(self) -> bool:
        """Whether it needs a label of every row."""
        return self.name in LABELLED

    @property
    def has_budget(self) -> bool:
        """Whether it promises an epsilon."""
        return any(each.name == "epsilon" for each in fields(self.load()))

    def options(self) -> dict[str, Any]:
        """The names of the parameters of the mechanism and of its trust model, with their defaults."""
        options = self.mechanism.options() | (self.model.options() if self.model else {})
        apart = ("epsilon", "accept_large_epsilon", "trust")
        return {name: default for name, default in options.items() if name not in apart}

    def make(self, epsilon: EpsilonLike | None, options: Mapping[str, Any] | None = None) -> AnyMechanism:
        """Construct the mechanism.

        Raises
        ------
        ParameterError
            No such option, one that is missing, or a value of the wrong kind or outside its range; no epsilon
            where there is a budget, or one where there is none.
        """
        given, known = dict(options or {}), self.options()
        for key in given:
            if key not in known:
                raise ParameterError(
                    f"{self.name} has no option {key!r}; expected one of {', '.join(known) or 'none'}"
                )
        if self.has_budget:
            if epsilon is None:
                raise ParameterError(f"{self.name} needs an epsilon, such as 1")
            given["epsilon"] = epsilon
        elif epsilon is not None:
            raise ParameterError(
                f"{self.name} has no epsilon: it is not differential privacy; leave epsilon (--epsilon) out"
            )
        if self.model is not None:
            of_model = {name: given.pop(name) for name in self.model.options() if name in given}
            given["trust"] = self.model.make(of_model)
        return self.mechanism.make(given)


_CURATOR = "mapveil.trust.curator:Curator"
_SECURE = "mapveil.trust.secure_aggregation.model:SecureAggregation"
_OPERATORS = "mapveil.trust.two_operators:TwoOperators"
_WHOLE_NOISE = "mapveil.trust.secure_aggregation.model:WholeNoise"

_TRUST = {_CURATOR: "central", _OPERATORS: "operators"}

_PLANS: tuple[tuple[str, str, tuple[str, ...]], ...] = (  # name, class, trust models that can answer
    ("multiscale", "multiscale:Multiscale", (_CURATOR, _SECURE, _OPERATORS)),
    ("adaptive", "adaptive_histogram:AdaptiveHistogram", (_CURATOR, _SECURE, _OPERATORS)),
    ("emd", "emd_heatmap:EmdHeatmap", (_CURATOR, _SECURE, _OPERATORS)),
    ("adaptive-grid", "adaptive_grid:AdaptiveGrid", (_CURATOR, _SECURE, _OPERATORS)),
    ("privtree", "privtree:PrivTree", (_CURATOR,)),
    ("spatial-decomposition", "spatial_decomposition:SpatialDecomposition", (_CURATOR, _SECURE, _OPERATORS)),
    ("uniform", "uniform_grid:UniformGrid", (_CURATOR, _SECURE, _OPERATORS)),
    ("hierarchical", "hierarchical_histogram:HierarchicalHistogram", (_CURATOR, _SECURE, _OPERATORS)),
    ("laplace", "laplace_histogram:LaplaceHistogram", (_CURATOR, _SECURE, _OPERATORS)),
    ("thresholded", "thresholded_histogram:ThresholdedHistogram", (_CURATOR, _SECURE, _OPERATORS)),
    ("private-fourier-kde", "private_fourier_kde:PrivateFourierKde", (_CURATOR,)),
    ("count-min", "count_min_histogram:CountMinHistogram", (_SECURE, _OPERATORS)),
    ("local-laplace", "local_laplace:LocalLaplace", (_WHOLE_NOISE,)),
    ("proportions", "proportion_histogram:ProportionHistogram", (_SECURE,)),
)
_LOCAL = (
    ("subset", "subset_selection:SubsetSelection"),
    ("disk", "disk_area:DiskArea"),
    ("srr", "staircase_response:StaircaseResponse"),
    ("olh", "local_hashing:LocalHashing"),
    ("olh-h", "hierarchical_hashing:HierarchicalHashing"),
    ("unary", "unary_encoding:UnaryEncoding"),
    ("hr", "hadamard_response:HadamardResponse"),
    ("grr", "generalized_response:GeneralizedRandomizedResponse"),
    ("planar-laplace", "planar_laplace:PlanarLaplace"),
)
_RANDOM_FEATURES = (
    ("fourier-kde", "fourier_kde:FourierKde"),
    ("federated-kde", "federated_kde:FederatedKde"),
    ("planar-laplace", "geo_indistinguishability:PlanarLaplace"),
    ("zero-features", "zero_features:ZeroFeatures"),
)

METHODS: tuple[Method, ...] = (
    *(
        Method(
            name,
            _TRUST.get(model, "distributed"),
            Row(name, f"mapveil.mechanisms.{path}"),
            Row(name, model),
        )
        for name, path, models in _PLANS
        for model in models
    ),
    *(Method(name, "local", Row(name, f"mapveil.local.randomizers.{path}")) for name, path in _LOCAL),
    *(
        Method(name, "random-features", Row(name, f"mapveil.random_features.{path}"))
        for name, path in _RANDOM_FEATURES
    ),
)


_SUMMING = {"central": _CURATOR, "distributed": _SECURE, "operators": _OPERATORS}

_SERIES = Row[AnyMechanism]("multiscale-series", "mapveil.mechanisms.multiscale_series:MultiscaleSeries")
SERIES: Final[Mapping[str, Method]] = {
    **{
        trust: Method("multiscale-series", trust, _SERIES, Row("multiscale-series", model))
        for trust, model in _SUMMING.items()
    },
    "local": Method("olh-h-series", "local", Row("olh-h-series", "mapveil.local.local_series:LocalSeries")),
}
"""The method of a series by trust model; it needs windows, so that the table above has no row of it."""


_SUMS = Row[AnyMechanism]("signal-sums", "mapveil.mechanisms.signal_sums:SignalSums")
_REPORTS = Row[AnyMechanism]("signal-reports", "mapveil.local.signal_reports:SignalReports")
COVERAGE_SUMS: Final[Mapping[str, Method]] = {
    **{
        trust: Method("signal-sums", trust, _SUMS, Row("signal-sums", model))
        for trust, model in _SUMMING.items()
    },
    "local": Method("signal-reports", "local", _REPORTS),
}
"""The sums of coverage maps by trust model."""


def signal_sums(
    epsilon: EpsilonLike,
    trust: str = "central",
    options: Mapping[str, Any] | None = None,
    *,
    accept_large_epsilon: bool = False,
) -> SignalSums | SignalReports:
    """The sums that coverage maps are made of: of measurements, so no method of a release.

    Raises
    ------
    ParameterError
        No such trust model or option, or a value outside its range.
    """
    check(trust in COVERAGE_SUMS, "trust (--trust)", f"one of {', '.join(COVERAGE_SUMS)}", trust)
    made = COVERAGE_SUMS[trust].make(epsilon, options)
    found: SignalSums | SignalReports = replace(cast("Any", made), accept_large_epsilon=accept_large_epsilon)
    return found


def flow_blocks(
    epsilon: EpsilonLike,
    trust: str = "central",
    options: Mapping[str, Any] | None = None,
    *,
    most: int = 5000,
    least: float = 0.0,
    accept_large_epsilon: bool = False,
) -> FlowBlocks:
    """Flows from noisy sums, over time with an option ``windows``: of trips, so no method of a release.

    Raises
    ------
    ParameterError
        No such trust model or option, or a value outside its range.
    """
    from mapveil.mechanisms.flow_blocks import FlowBlocks

    check(trust in _SUMMING, "trust (--trust)", f"one of {', '.join(_SUMMING)}", trust)
    given = {**(options or {}), "most": most, "least": least}
    of_series = "windows" in given
    name, path = (
        ("flow-series", "flow_series:FlowSeries") if of_series else ("flow-blocks", "flow_blocks:FlowBlocks")
    )
    row: Row[Any] = Row(name, f"mapveil.mechanisms.{path}")
    made: Any = Method(name, trust, row, Row(name, _SUMMING[trust])).make(epsilon, given)
    assert isinstance(made, FlowBlocks)
    return replace(made, accept_large_epsilon=accept_large_epsilon)


def find_method(name: str | None = None, trust: str = "central") -> Method:
    """The row of a name and a trust model; without a name, the default of the trust model.

    Raises
    ------
    ParameterError
        No such trust model, or no method of it has the name; the message lists the names.
    """
    check(trust in DEFAULT_METHODS, "trust (--trust)", f"one of {', '.join(DEFAULT_METHODS)}", trust)
    wanted = name or DEFAULT_METHODS[trust]
    for method in METHODS:
        if method.name == wanted and method.trust == trust:
            return method
    names = ", ".join(method.name for method in METHODS if method.trust == trust)
    elsewhere = [method for method in METHODS if method.name == wanted]
    hint = ""
    if elsewhere:
        why = getattr(elsewhere[0].load(), "unanswerable", {}).get(trust)
        trusts = ", ".join(f"trust {method.trust}" for method in elsewhere)
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
