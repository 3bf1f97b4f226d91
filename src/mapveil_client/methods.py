"""The parameters of collections, as their terms name them: what a device judges and both halves compute with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from mapveil_client.contribution import Rounding
from mapveil_client.errors import ParameterError
from mapveil_client.local.disk_area import DiskArea
from mapveil_client.local.generalized_response import GeneralizedRandomizedResponse
from mapveil_client.local.hadamard_response import HadamardResponse
from mapveil_client.local.hierarchical_hashing import HierarchicalHashing
from mapveil_client.local.local_hashing import LocalHashing
from mapveil_client.local.planar_laplace import PlanarLaplace
from mapveil_client.local.randomizer import LocalMethod
from mapveil_client.local.staircase_response import StaircaseResponse
from mapveil_client.local.subset_selection import SubsetSelection
from mapveil_client.local.unary_encoding import UnaryEncoding
from mapveil_client.random_features.parameters import FourierParameters

TABLE_SCALE: Final = 1024
"""Units per client where a table of visits is collected and none are set."""

WHOLE_NOISE: Final = ("local-laplace",)
"""Methods over secure sums whose clients each add the whole noise, not a share of it."""

LABELLED: Final = ("proportions",)
"""Methods that need a label of every location."""

_LOCAL: Final[dict[str, type[LocalMethod]]] = {
    each.name: each
    for each in (
        *(SubsetSelection, DiskArea, StaircaseResponse, LocalHashing, HierarchicalHashing),
        *(UnaryEncoding, HadamardResponse, GeneralizedRandomizedResponse, PlanarLaplace),
    )
}


@dataclass(frozen=True, kw_only=True)
class SumParameters:
    """What a client must know of a method over secure sums; the other options are the server's.

    Parameters
    ----------
    shard_size : int
        Clients of one secure sum at most.
    tolerated_dropout : float or Fraction
        Fraction of a shard that may drop out; the noise is provisioned for it.
    corrupt : float or Fraction
        Fraction of a shard that may be corrupt and add no noise; provisioned for likewise.
    scale : int, optional
        Units that a client divides over its locations.
    rounding : str
        ``"largest-remainder"`` or ``"stochastic"``.
    overflow : str
        ``"refuse"``, or ``"wrap"``: sums may overflow.
    whole_noise : bool
        Whether each client adds the whole noise.

    Raises
    ------
    ParameterError
        A parameter is outside its range.
    """

    shard_size: int = 10_000
    tolerated_dropout: float | Fraction = 0.1
    corrupt: float | Fraction = 0.05
    scale: int | None = None
    rounding: Rounding = "largest-remainder"
    overflow: str = "refuse"
    whole_noise: bool = False

    def __post_init__(self) -> None:
        lost = float(self.tolerated_dropout) + float(self.corrupt)
        for name, good, range_ in (
            ("shard_size", self.shard_size >= 1, "at least 1"),
            ("tolerated_dropout", 0 <= self.tolerated_dropout < 1, "from 0 to below 1"),
            ("corrupt", self.corrupt >= 0 and lost < 1, "from 0, and below 1 with tolerated_dropout"),
            ("scale", self.scale is None or 1 <= self.scale <= 1 << 28, "1 to 2**28, or none"),
            (
                "rounding",
                self.rounding in ("largest-remainder", "stochastic"),
                "largest-remainder or stochastic",
            ),
            ("overflow", self.overflow in ("refuse", "wrap"), "refuse or wrap"),
        ):
            if not good:
                raise ParameterError(f"{name} must be {range_}, got {getattr(self, name)!r}")

    @property
    def units(self) -> int:
        """Units that a client divides over its locations."""
        return self.scale or TABLE_SCALE


Parameters = SumParameters | LocalMethod | FourierParameters


def read_parameters(
    trust: str, method: str, epsilon: Fraction | None, options: Mapping[str, Any]
) -> Parameters:
    """The parameters that the terms of a collection name. Run by: the client, that trusts nothing in them.

    Raises
    ------
    ParameterError
        There is no such method, an option is unknown, missing or outside its range, or there is an epsilon where there
        must be none (or none where there must be one).
    """
    needs_epsilon = trust != "projection"
    if needs_epsilon == (epsilon is None):
        raise ParameterError(f"{method} {'needs an' if needs_epsilon else 'has no'} epsilon")
    if trust == "distributed":
        known = {item.name for item in dataclasses.fields(SumParameters)} - {"whole_noise"}
        given = {name: value for name, value in options.items() if name in known}
        return _make(SumParameters, method, {**given, "whole_noise": method in WHOLE_NOISE})
    made: type[Parameters] | None = _LOCAL.get(method) if trust == "local" else None
    if trust == "projection" and method == FourierParameters.name:
        made = FourierParameters
    if made is None:
        names = ", ".join(_LOCAL if trust == "local" else (FourierParameters.name,))
        raise ParameterError(f"method must be one of {names}, got {method[:40]!r}")
    return _make(made, method, dict(options) if epsilon is None else {**options, "epsilon": epsilon})


def _make(kind: type[Parameters], method: str, given: Mapping[str, Any]) -> Parameters:
    try:
        return kind(**given)
    except TypeError as error:
        raise ParameterError(
            f"{method}: an option is unknown or has the wrong kind of value ({error})"
        ) from None
