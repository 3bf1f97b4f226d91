"""What the mechanisms over secure sums share: the server half asks, the client half answers, nobody sees a place."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from mapveil.distributed.query import NoisySums, Query, Setting
from mapveil.engines.devices import devices_of
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.maps.round_cost import RoundCost
from mapveil.mechanisms.mechanism import Estimate, Mechanism, Progress, check_tiling, tiling_of
from mapveil.privacy.claim import (
    Adversary,
    Assumes,
    ContributionBound,
    Neighbouring,
    Norm,
    Share,
    TrustModel,
)
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.sampling import sampling_delta
from mapveil_client.arrays import IntArray
from mapveil_client.cells import Lattice
from mapveil_client.errors import InputError
from mapveil_client.morton import interleave
from mapveil_client.randomness.random import Randomness, as_randomness
from mapveil_client.sum_report import Devices

if TYPE_CHECKING:
    from mapveil.distributed.round_terms import Overflow
    from mapveil.distributed.rounds import BeforeReveal, Collection
    from mapveil.secure_sum.drivers import SecureSum
    from mapveil_client.user_shares import Rounding


ServerHalf = Generator[Query, NoisySums, Estimate]
"""Yields queries, is sent noisy sums, returns an estimate.

A generator so that it reads like the paper's algorithm and is rebuilt from stored answers by sending them again:
all it depends on is the setting and the sums.
"""

TABLE_SCALE: Final = 1024
"""Units per device where a table of visits is collected and none are set."""


@dataclass(frozen=True, kw_only=True)
class DistributedMechanism(Mechanism):
    """A mechanism over secure sums.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole privacy budget of all rounds together.
    shard_size : int
        Devices of one secure sum at most (S_max).
    tolerated_dropout : float
        Part of a shard that may drop out; the noise is provisioned for it. More than that: nothing is released.
    corrupt : float
        Part of a shard that may be corrupt and add no noise; provisioned for likewise.
        Deviation: the paper provisions for dropouts only.
    sample : int, optional
        Devices asked in each round (U); all of them by default.
    redraw : bool
        Whether every round asks a fresh sample (Algorithm 1) or all rounds the same (the paper's experiments).
    scale : int, optional
        Units that a device divides over its places (gamma). With 1 a device reports the place it was at most. By
        default 1 for counts, where each user is at one place, and 1024 for a table of visits.
    rounding : str
        ``"largest-remainder"``: sensitivity gamma; or ``"stochastic"``, the paper's: gamma + d.
    bits : int, optional
        Vectors are summed modulo 2**bits; the smallest modulus that is safe by default.
    overflow : str
        ``"refuse"`` a modulus in which a sum overflows with probability 2^-40 or more; ``"wrap"`` lets it, for
        experiments.
    """

    whole_noise: ClassVar[bool] = False  # of each device, not shared with those of its shard

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
            self._check(0 <= getattr(self, name) < 1, name, "a part from 0 to less than 1")
        lost = float(self.tolerated_dropout) + float(self.corrupt)
        self._check(lost < 1, "corrupt", "a part that leaves somebody together with tolerated_dropout")
        self._check(
            self.sample is None or self.sample >= 1, "sample", "a whole number of at least 1, or none,"
        )
        self._check(self.scale is None or 1 <= self.scale <= 1 << 28, "scale", "1 to 2**28, or none,")
        self._check(
            self.rounding in ("largest-remainder", "stochastic"),
            "rounding",
            "largest-remainder or stochastic",
        )
        self._check(self.bits is None or 1 <= self.bits <= 64, "bits", "1 to 64, or none,")
        self._check(self.overflow in ("refuse", "wrap"), "overflow", "refuse or wrap")

    @abstractmethod
    def server(self, setting: Setting) -> ServerHalf:
        """The server half: from the public setting, through queries and noisy sums, to an estimate.

        The values of the estimate are per site of the raster, in Morton order, shape (4**depth,); its
        measurements' groups likewise. Run by: the server.
        """

    def release(
        self,
        points: Points | Counts | Devices,
        tiling: Tiling | None = None,
        *,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
        secure_sum: SecureSum | None = None,
        dropout: float = 0.0,
        before_reveal: BeforeReveal | None = None,
    ) -> DensityMap:
        """Run a whole collection in this process: every device's half, and the server's.

        Parameters
        ----------
        points : Points, Counts or Devices
            What each device knows: one device per user.
        tiling : Tiling, optional
            The cells; counts bring their own.
        rng : Randomness, int or None
            Leave it out for a release; an integer seeds the run and marks the map.
        progress : callable, optional
            Told the name and the done part of each step.
        secure_sum : SecureSum, optional
            What adds the vectors: ``ProtocolSum()`` with all the cryptography, or ``IdealSum()`` (the default),
            which adds the same vectors in the clear.
        dropout : float
            Part of each shard that drops out, to see what happens.
        before_reveal : callable, optional
            Told each round's share of epsilon before the server learns its sums; may refuse by raising.

        Raises
        ------
        InputError
            The table cannot be used, or the tiling has too many cells for a dense map.
        PromiseError
            Too many devices dropped out: nothing is released.
        """
        stream = as_randomness(rng)
        tell = progress or (lambda step, done: None)
        cells = tiling_of(points, tiling) if not isinstance(points, Devices) else _given(tiling)
        lattice = cells.lattice()
        devices = devices_of(points, cells, tell)
        collection = self.collection(
            devices,
            scale=1 if devices.starts is None else TABLE_SCALE,
            rng=stream,
            progress=tell,
            secure_sum=secure_sum,
            dropout=dropout,
            before_reveal=before_reveal,
        )
        server = self.server(collection.setting(lattice.depth, morton_members(lattice)))
        made = run_server(server, collection.ask)
        heat = self.map_of(
            made, cells, tuple(collection.revealed), tuple(collection.costs), seeded=stream.seeded
        )
        return dataclasses.replace(heat, guarantee=heat.guarantee.as_simulation())

    def map_of(
        self,
        made: Estimate,
        tiling: Tiling,
        revealed: tuple[Share, ...],
        costs: tuple[RoundCost, ...],
        *,
        seeded: bool = False,
    ) -> DensityMap:
        """The map of what the server half returned. Run by: the server.

        Parameters
        ----------
        made : Estimate
            Per site of the tiling's raster.
        tiling : Tiling
            The cells.
        revealed : tuple of Share
            What each round cost every device.
        costs : tuple of RoundCost
            What each round sent.
        seeded : bool
            Whether the devices' noise can be repeated.
        """
        on = on_cells(made, tiling.lattice())
        return DensityMap(
            values=on.values,
            tiling=tiling,
            guarantee=self.guarantee(revealed, seeded=seeded),
            method=self.name,
            parameters=self.parameters(),
            measurements=on.measurements,
            notes=(*on.notes, *_who(costs)),
            rounds=costs,
        )

    def collection(
        self,
        devices: Devices,
        *,
        scale: int,
        rng: Randomness,
        progress: Progress,
        secure_sum: SecureSum | None = None,
        dropout: float = 0.0,
        silent: float = 0.0,
        before_reveal: BeforeReveal | None = None,
    ) -> Collection:
        """The devices, asked as these parameters say; ``scale`` is used where none is set. See :meth:`release`."""
        from mapveil.distributed.rounds import Collection
        from mapveil.secure_sum.drivers import IdealSum

        return Collection(
            devices=devices,
            sample=self.sample,
            redraw=self.redraw,
            shard_size=self.shard_size,
            tolerated_dropout=_fraction(self.tolerated_dropout),
            corrupt=_fraction(self.corrupt),
            scale=self.scale or scale,
            rounding=self.rounding,
            bits=self.bits,
            overflow=self.overflow,
            dropout=dropout,
            silent=silent,
            secure_sum=secure_sum or IdealSum(),
            rng=rng,
            before_reveal=before_reveal or (lambda share: None),
            progress=progress,
            whole_noise=self.whole_noise,
        )

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release with these parameters."""
        self._spent(shares)
        return Guarantee(
            model=TrustModel.SECURE_AGGREGATION,
            neighbours=Neighbouring.ZERO_OUT,
            epsilon=self.budget,
            delta=sampling_delta(self.budget),
            adversary=Adversary.HONEST_SERVER,
            bound=ContributionBound(Norm.L1, Fraction(1)),
            assumptions=(
                Assumes.ONE_CLIENT(),
                Assumes.DROPOUT(tolerated=float(self.tolerated_dropout), corrupt=float(self.corrupt)),
                Assumes.SECURE_SUM(),
                Assumes.PARTICIPATION_PUBLIC(),
            ),
            shares=shares,
            seeded=seeded,
        )


def _fraction(part: float | Fraction) -> Fraction:
    """The part as people write it: 0.1 is a tenth exactly."""
    return Fraction(str(part))


def _given(tiling: Tiling | None) -> Tiling:
    if tiling is None:
        raise InputError("devices need the tiling whose lattice their sites are of")
    check_tiling(tiling)
    return tiling


def run_server(server: ServerHalf, ask: Callable[[Query], NoisySums]) -> Estimate:
    """Pass queries and answers between the halves until there is an estimate."""
    try:
        query = next(server)
        while True:
            query = server.send(ask(query))
    except StopIteration as stop:
        made: Estimate = stop.value
        return made


def _sites(lattice: Lattice) -> IntArray:
    return interleave(lattice.row, lattice.col)


def morton_members(lattice: Lattice) -> IntArray:
    """How many cells that can hold anybody lie on each site, shape (4**depth,)."""
    site = _sites(lattice)
    kept = site if lattice.inside is None else site[lattice.inside]
    return np.bincount(kept, minlength=1 << (2 * lattice.depth))


def on_cells(made: Estimate, lattice: Lattice) -> Estimate:
    """An estimate of sites as one of cells: each cell has the even part of its site's value, and its groups."""
    site = _sites(lattice)
    values = made.values[site] / np.maximum(morton_members(lattice)[site], 1)
    inside = np.ones(site.shape, dtype=np.bool_) if lattice.inside is None else lattice.inside
    measurements = tuple(
        dataclasses.replace(each, groups=np.where(inside, each.groups[site], -1))
        for each in made.measurements
    )
    return made._replace(values=np.where(inside, values, 0.0), measurements=measurements)


def _who(costs: Sequence[RoundCost]) -> tuple[str, ...]:
    least = min((each.included for each in costs), default=0)
    asked = max((each.devices for each in costs), default=0)
    rounds = f"{len(costs)} round{'s' if len(costs) != 1 else ''}"
    length = RoundCost.total_length(costs)
    return (
        f"{rounds} of {asked} devices, at least {least} of them in every sum; {length} coordinates sent by each",
    )
