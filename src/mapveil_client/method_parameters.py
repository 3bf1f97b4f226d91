"""The parameters of collections, as their terms name them; clients judge them, and both parties compute with them."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal

import numpy as np

from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Rounding
from mapveil_client.errors import Checked, ParameterError
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
from mapveil_client.random_features.feature_policy import FourierParameters
from mapveil_client.randomness.noise_shares import share_shape

TABLE_SCALE: Final = 1024
"""Units per client where a table of visits is collected and none are set."""

_WHOLE_NOISE: Final = ("local-laplace",)
"""Methods over secure sums whose clients each add the whole noise, not a share of it."""

Overflow = Literal["refuse", "wrap"]

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
class SumParameters(Checked):
    """Parameters of secure sums, which client and server share.

    Parameters
    ----------
    shard_size : int
        Maximum number of clients of one secure sum (S_max).
    tolerated_dropout : float
        Fraction of a shard that may drop out; the noise is provisioned for it. More than that: nothing is released.
    corrupt : float
        Fraction of a shard that may be corrupt and add no noise; provisioned for likewise.
        Deviation: the paper provisions for dropouts only.
    sample : int, optional
        Clients asked in each round (U); all of them by default.
    redraw : bool
        Whether every round asks a fresh sample (Algorithm 1) or all rounds the same (the paper's experiments).
    scale : int, optional
        Units that a client divides over its locations (gamma); with 1 it reports its most frequent location. By default
        1 for counts, where each user is at one location, and 1024 for a table of visits.
    rounding : str
        ``"largest-remainder"``: sensitivity gamma; or ``"stochastic"``, the paper's: gamma + d.
    bits : int, optional
        Vectors are summed modulo 2**bits; the smallest modulus that is safe by default.
    overflow : str
        ``"refuse"`` a modulus in which a sum overflows with probability 2^-40 or more; ``"wrap"`` lets it, for
        experiments.

    Raises
    ------
    ParameterError
        A parameter is outside its range.
    """

    whole_noise: ClassVar[bool] = False  # whether each client adds the noise of a whole sum

    shard_size: int = 10_000
    tolerated_dropout: float | Fraction = 0.1
    corrupt: float | Fraction = 0.05
    sample: int | None = None
    redraw: bool = False
    scale: int | None = None
    rounding: Rounding = "largest-remainder"
    bits: int | None = None
    overflow: Overflow = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.shard_size >= 1, "shard_size", "a whole number of at least 1")
        for name in ("tolerated_dropout", "corrupt"):
            self._check(0 <= getattr(self, name) < 1, name, "at least 0 and below 1")
        lost = float(self.tolerated_dropout) + float(self.corrupt)
        self._check(lost < 1, "corrupt", "below 1 together with tolerated_dropout")
        self._check(
            self.sample is None or self.sample >= 1, "sample", "a whole number of at least 1, or none"
        )
        self._check(self.scale is None or 1 <= self.scale <= 1 << 28, "scale", "from 1 to 2**28, or none")
        self._check(self.bits is None or 1 <= self.bits <= 64, "bits", "from 1 to 64, or none")

    @property
    def units(self) -> int:
        """Units that a client divides over its locations."""
        return self.scale or TABLE_SCALE

    def alpha(self, smallest: int) -> Fraction:
        """Each client's part of a discrete Laplace variable, where the smallest shard has so many clients."""
        return (
            Fraction(1) if self.whole_noise else share_shape(smallest, self.tolerated_dropout, self.corrupt)
        )

    def asked(self, users: float) -> float:
        """Of so many users, those that are asked."""
        return users if self.sample is None else min(users, self.sample)


@dataclass(frozen=True, kw_only=True)
class WholeNoiseParameters(SumParameters):
    """As :class:`SumParameters`, where every client adds the noise of a whole sum: its report alone is private.

    Parameters
    ----------
    shard_size : int
        Reports drawn and added up at a time. Privacy does not depend on it, memory does.
    """

    whole_noise: ClassVar[bool] = True

    shard_size: int = 100


@dataclass(frozen=True, kw_only=True)
class OperatorParameters(Checked):
    """Parameters of sums by two operators, which client and operators share.

    Parameters
    ----------
    scale : int, optional
        Units that a client divides over its locations; with 1 it reports its most frequent location. By default 1.
    minimum_batch : int
        Least number of accepted reports: with fewer nothing is answered. Noise protects each client whatever the
        number; this keeps a collection of a handful from being published by mistake. Chosen, not measured.
    """

    scale: int | None = None
    minimum_batch: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.scale is None or 1 <= self.scale <= 1 << 28, "scale", "from 1 to 2**28, or none")
        self._check(self.minimum_batch >= 1, "minimum_batch", "a whole number of at least 1")

    @property
    def units(self) -> int:
        """Units of a device."""
        return self.scale or 1


Parameters = SumParameters | LocalMethod | FourierParameters | OperatorParameters


def shard_boundaries(asked: int, shard_size: int) -> IntArray:
    """First device of each shard, and the end, shape (shards + 1,): shards are as even as can be. Run by: both sides.

    Examples
    --------
    >>> shard_boundaries(10, 4).tolist()
    [0, 3, 6, 10]
    """
    shards = max(1, -(-asked // shard_size))
    return np.arange(shards + 1, dtype=np.int64) * asked // shards


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
    needs_epsilon = trust != "random-features"
    if needs_epsilon == (epsilon is None):
        raise ParameterError(f"{method} {'needs an' if needs_epsilon else 'has no'} epsilon")
    if trust in ("distributed", "operators"):
        kind: type[SumParameters | OperatorParameters] = SumParameters
        if trust == "operators":
            kind = OperatorParameters
        elif method in _WHOLE_NOISE:
            kind = WholeNoiseParameters
        known = {item.name for item in dataclasses.fields(kind)}
        # The other options are the plan's, which a client needs not know: it judges each round by itself.
        return _make(kind, method, {name: value for name, value in options.items() if name in known})
    made: type[Parameters] | None = _LOCAL.get(method) if trust == "local" else None
    if trust == "random-features" and method == FourierParameters.name:
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
