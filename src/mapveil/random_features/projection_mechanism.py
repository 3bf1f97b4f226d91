"""The base of mechanisms on random Fourier features: a release without a budget, from devices to a map of users."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from mapveil.engines.contributions import NobodyInside
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.inference.simplex import simplex_level
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.mechanism import AnyMechanism, held_for, tiling_of
from mapveil.privacy.account import OWN, Account
from mapveil.privacy.claim import (
    Adversary,
    Assumption,
    ContributionBound,
    Disclosure,
    Measured,
    Share,
    TrustModel,
)
from mapveil.privacy.guarantee import Guarantee
from mapveil.random_features.map_points import MapPoints, inside_region, map_points
from mapveil.random_features.measured import hiding_warnings
from mapveil.trust.queries import Progress
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness, as_randomness

Negative = Literal["keep-total", "clip"]
"""Treatment of cells whose estimate is negative; see :func:`non_negative`."""


class Collected(NamedTuple):
    """The estimate that the server half makes of the reports."""

    users: FloatArray  # estimated users per cell, negative where chance says so; shape (cells,)
    devices: int
    notes: tuple[str, ...] = ()
    assumptions: tuple[Assumption, ...] = ()  # beyond the mechanism's own
    bandwidth: float | None = None  # that was asked, metres
    noise_floor: float = 0.0  # users per km² to which chance reaches; 0: not known
    drawn: bool = True  # whether the estimate is worth showing; the map is uniform otherwise


def check_bandwidth(bandwidth_m: float, tiling: Tiling) -> None:
    """Refuse degrees given for metres: an ``InputError`` for a bandwidth or a region below a metre on Earth."""
    region = tiling.region
    if region.georeferenced and bandwidth_m < 1:
        raise InputError(
            f"bandwidth_m must be at least 1 m, got {bandwidth_m:g} "
            f"(if these are degrees, give {bandwidth_m * 111_000:.3g})"
        )
    if region.georeferenced and max(region.width_m, region.height_m) < 1 and region.projection.in_metres:
        raise InputError(
            f"the region is {region.width_m:g} x {region.height_m:g} m; are its bounds degrees in a CRS of metres?"
        )


def non_negative(users: FloatArray, tiling: Tiling, negative: Negative) -> tuple[FloatArray, tuple[str, ...]]:
    r"""A non-negative map of estimated users per cell, none outside the region's polygon, and a note on the change.

    ``clip`` shows negative estimates as 0, which adds users. ``keep-total`` is the nearest non-negative map with the
    estimate's total, :math:`\max(x - t, 0)` with the t that keeps the total.
    """
    held = inside_region(tiling)
    users = np.where(held, users, 0.0)
    below = users < 0
    if not below.any():
        return users, ()
    kept, total = np.maximum(users, 0.0), math.fsum(users)
    said = f"{np.count_nonzero(below) / np.count_nonzero(held):.0%} of the cells came out negative, by chance"
    if negative == "clip" or total <= 0:
        more = f"they are shown as 0, which brings the total from {total:.6g} to {kept.sum():.6g} users"
        return kept, (f"{said}; {more}",)
    level = simplex_level(kept[held], total)
    kept = np.where(held, np.maximum(users - level, 0.0), 0.0)
    return kept, (
        f"{said}; they are shown as 0, and all others lowered by {level:.3g} users to keep the total",
    )


def uniform_users(devices: int, tiling: Tiling) -> FloatArray:
    """So many users spread evenly over the region, shape (cells,)."""
    area = np.where(inside_region(tiling), map_points(tiling).area, 0.0)
    return np.asarray(devices * area / area.sum())


@dataclass(frozen=True, kw_only=True)
class ProjectionMechanism(AnyMechanism):
    """A mechanism whose devices report for themselves, without a privacy budget."""

    bound: ClassVar[ContributionBound | None] = None
    known: ClassVar[tuple[Measured, ...]] = ()  # of any release

    @abstractmethod
    def collect(
        self, points: Points | Counts, tiling: Tiling, rng: Randomness, progress: Progress
    ) -> Collected:
        """Run every device's half, and the server's."""

    @property
    @abstractmethod
    def disclosure(self) -> Disclosure:
        """The content of a report."""

    @property
    @abstractmethod
    def assumptions(self) -> tuple[Assumption, ...]:
        """Assumptions of every release."""

    def promise(
        self, measured: tuple[Measured, ...], assumptions: tuple[Assumption, ...], *, seeded: bool
    ) -> Guarantee:
        """The guarantee of a release, with these measurements and further assumptions."""
        return Guarantee(
            model=TrustModel.RANDOM_FEATURES,
            epsilon=None,
            adversary=Adversary.REPORTS,
            bound=self.bound,
            disclosure=self.disclosure,
            assumptions=(*self.assumptions, *assumptions),
            measured=(*self.known, *measured),
            seeded=seeded,
        )

    def measure(self, tiling: Tiling, where: MapPoints, made: Collected) -> tuple[Measured, ...]:
        """The success of adversaries against the reports behind this map."""
        return ()

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The guarantee of a release with these parameters, without measurements on its region."""
        return self.promise((), (), seeded=seeded)

    def release(
        self,
        points: Points | Counts,
        tiling: Tiling | None = None,
        *,
        account: Account | None = OWN,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
        negative: Negative = "keep-total",
    ) -> DensityMap:
        """Run a whole collection in this process: every device's half, and the server's.

        Parameters
        ----------
        points : Points or Counts
            What each device knows: one device per user.
        tiling : Tiling, optional
            The cells; counts bring their own.
        account : Account, optional
            Not used: there is no epsilon to charge.
        rng : Randomness, int or None
            Leave it out for a release; an integer seeds the run and marks the map.
        progress : callable, optional
            Told the name and the done part of each step.
        negative : str
            What becomes of cells whose estimate is negative: ``keep-total`` or ``clip``.

        Raises
        ------
        InputError
            The table cannot be used, or the tiling has too many cells for a dense map.
        PromiseError
            The devices refuse the query: it is outside their policy. Nothing is answered.
        """
        stream = as_randomness(rng)
        cells = tiling_of(points, tiling)
        tell = progress or (lambda step, done: None)
        with held_for(points, cells, account) as held:
            try:
                made = self.collect(held, cells, stream, tell)
            except NobodyInside:
                made = Collected(np.zeros(cells.size), 0, ("nobody reported: the map is empty",))
        heat = self.map_of(made, cells, seeded=stream.seeded, progress=tell, negative=negative)
        return replace(heat, guarantee=heat.guarantee.as_simulation())

    def map_of(
        self,
        made: Collected,
        tiling: Tiling,
        *,
        seeded: bool = False,
        progress: Progress | None = None,
        negative: Negative = "keep-total",
    ) -> DensityMap:
        """The map of an estimate, ``seeded`` where its reports can be repeated. Run by: the server."""
        tell = progress or (lambda step, done: None)
        values, notes = non_negative(made.users, tiling, negative) if made.drawn else (None, ())
        if values is None:
            values = uniform_users(made.devices, tiling)
        tell("measure what a server could learn", 0.0)
        measured = self.measure(tiling, map_points(tiling), made) if made.devices else ()
        tell("measure what a server could learn", 1.0)
        parameters = self.parameters()
        if made.bandwidth is not None:
            # The bandwidth of the query, whoever chose it: a reader of the map can measure again.
            parameters["bandwidth_m"] = made.bandwidth
        return DensityMap(
            values=values,
            tiling=tiling,
            guarantee=self.promise(measured, made.assumptions, seeded=seeded),
            method=self.name,
            parameters=parameters,
            notes=(*hiding_warnings(measured), *made.notes, *notes),
            noise_floor=made.noise_floor if made.drawn else 0.0,
        )
