"""Federated KDE by projection: Algorithm 2 of Zong et al. (2023)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mapveil.engines.contributions import count_users
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.projection import projection_of
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.maps.scene import Note
from mapveil.privacy.claim import Assumes, Assumption, Disclosure, Measured, Reveals
from mapveil.random_features.bandwidth import neighbour_bandwidth, public_bandwidth, smooth, smoothing_scale
from mapveil.random_features.known_population import FLOOR, population_cells, read_population
from mapveil.random_features.map_points import (
    MapPoints,
    inscribed_side,
    map_points,
    prior_cells,
    sum_of_features,
)
from mapveil.random_features.measured import hiding_facts
from mapveil.random_features.posterior import PriorCells, hiding
from mapveil.random_features.projection_mechanism import Collected, ProjectionMechanism, check_bandwidth
from mapveil.random_features.signal_to_noise import highest_by_chance, predicted_signal, users_needed
from mapveil.random_features.visits import Chunk, ChunkSum, all_places, sum_chunks, visits_of
from mapveil.trust.queries import Progress
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError
from mapveil_client.random_features.feature_policy import LEAST_SIDE_M, FourierParameters, largest_bandwidth
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.kernels import kernel_named
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Reports, client_reports
from mapveil_client.randomness.random import Randomness


class _Bandwidth(NamedTuple):
    metres: float
    note: str
    assumption: Assumption | None = None


@dataclass(frozen=True, kw_only=True)
class FourierKde(FourierParameters, ProjectionMechanism):
    r"""Every device answers with random Fourier features of its place; their sum tends to the kernel density.

    .. math:: \hat f(g) = \frac{1}{B \int k_h} \sum_i \sum_b \cos(\omega_{ib} \cdot (g - d_i)),
              \qquad h\, \omega_{ib} \sim p

    where: B is ``features``, h is ``bandwidth_m``, p the spectral law of ``kernel``, :math:`d_i` the place of device i
    (for several places the mean of the cosines); a cell's estimate is :math:`\hat f` at its middle times its area.
    The client half is :func:`mapveil_client.random_features.report.client_reports`, behind a
    :class:`mapveil_client.random_features.feature_policy.Policy`.

    Deviation: the paper's surface is the mean of the cosines; here it is divided by the kernel's integral, so that it
    is a density of users. In the paper each check-in is a user; here a user counts once.

    Below ``least_signal`` (:mod:`mapveil.random_features.signal_to_noise`) the map is uniform: chance is not drawn.

    Parameters
    ----------
    population : str
        File of what a server may know of where people are: a raster of people per cell from elsewhere, or a private
        map. The guarantee then measures that server too. Read before anything is asked, never sent to devices, and in
        no record. The other parameters are those of
        :class:`mapveil_client.random_features.feature_policy.FourierParameters`.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=500, seed=1)
    >>> heat = FourierKde(bandwidth_m=150).release(city, mv.Grid(city.region, 64, 64), rng=1)
    >>> heat.guarantee.epsilon is None
    True
    """

    summary: ClassVar[str] = (
        "each device sends random Fourier features of its place; their sum is the density. For tens of "
        "thousands of users, and without an epsilon"
    )
    source: ClassVar[str] = "Zong et al. 2023, Algorithm 2"

    population: str = field(default="", repr=False)

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record, without the population's path."""
        record = super().parameters()
        del record["population"]
        return record

    @cached_property
    def _population(self) -> DensityMap | Counts | None:
        return read_population(self.population) if self.population else None

    def query(self, where: MapPoints, bandwidth: float) -> Query:
        """The query of a collection. Run by: the server."""
        h = float(bandwidth)
        return Query((h, h), where.low, where.high, self.features, self.kernel, where.grid, where.crs)

    def collect(
        self, points: Points | Counts, tiling: Tiling, rng: Randomness, progress: Progress
    ) -> Collected:
        """See :class:`ProjectionMechanism`.

        Raises
        ------
        InputError
            The bandwidth looks like degrees, smoothing is asked where the cells are no even grid, or the population
            cannot be read or holds nobody here.
        PromiseError
            The devices refuse the query.
        """
        where = self._where(tiling)
        total = count_users(points, tiling)
        chosen = self._bandwidth(points, tiling, where, total, rng)
        query = self._checked(self.query(where, chosen.metres), tiling, where)

        def features_of(chunk: Chunk) -> FloatArray:
            units = unit_frequencies(chunk.visits.devices, self.features, query.law, 2, chunk.rng)
            visits = chunk.visits.jittered(query.low, self.jitter_m, chunk.rng)
            return sum_of_features(where, client_reports(units, visits, query), query, threads=chunk.threads)

        made = sum_chunks(
            visits_of(points, tiling, self.places),
            rng.child("devices"),
            features_of,
            lambda done: progress("sum the features", min(1.0, done / total)),
        )
        return self._collected(made, tiling, where, query, chosen)

    def public_query(self, tiling: Tiling, users: int) -> Query:
        """The query of a server that knows the number of users only. Run by: the server.

        Raises
        ------
        ParameterError
            The bandwidth rule reads places.
        InputError, PromiseError
            As :meth:`collect`.
        """
        where = self._where(tiling)
        chosen = self._public_bandwidth(tiling, where, users)
        return self._checked(self.query(where, chosen.metres), tiling, where)

    def of_reports(self, chunks: Iterable[Reports], tiling: Tiling, users: int) -> Collected:
        """The estimate from the answers to :meth:`public_query`. Run by: the server.

        Parameters
        ----------
        chunks : iterable of Reports
            Decoded and checked (:func:`mapveil_client.random_features.report.read_reports`); one is held at a time.
        tiling : Tiling
            The cells.
        users : int
            Number of users that the query was made for.

        Raises
        ------
        InputError
            There is no report, or as :meth:`public_query`.
        """
        where = self._where(tiling)
        chosen = self._public_bandwidth(tiling, where, users)
        query = self.query(where, chosen.metres)
        values, devices = np.zeros(tiling.size), 0
        for reports in chunks:
            values += sum_of_features(where, reports, query, threads=1)
            devices += reports.projections.shape[0]
        if not devices:
            raise InputError("a map needs at least one report, got none")
        return self._collected(ChunkSum(values, devices), tiling, where, query, chosen)

    def _where(self, tiling: Tiling) -> MapPoints:
        if self.bandwidth_m is not None:
            check_bandwidth(self.bandwidth_m, tiling)
        where = map_points(tiling)
        if self.smoothing == "reports" and where.grid is None:
            raise InputError(f"smoothing by the reports needs an even grid of metres; {tiling.spec} has none")
        if self.population:
            self._priors(tiling, where)  # what is wrong with the file must not cost the answers
        return where

    def _priors(self, tiling: Tiling, where: MapPoints) -> list[tuple[str, PriorCells]]:
        """The servers that are measured against, and the prior of each."""
        even = prior_cells(tiling, where)
        servers = [("a server that knows the region only", even)]
        if self._population is not None:
            known = population_cells(even, where, self._population, floor=FLOOR)
            servers.append(("a server that knows an external population", known))
        return servers

    def _checked(self, query: Query, tiling: Tiling, where: MapPoints) -> Query:
        """The query, if devices with the policy of these parameters answer it."""
        least = LEAST_SIDE_M if tiling.region.georeferenced else 0.0
        self.policy(query.bandwidth[0], smallest_side=least).check(
            query, side=inscribed_side(tiling, where), plane=projection_of(query.crs)
        )
        return query

    def _collected(
        self, made: ChunkSum, tiling: Tiling, where: MapPoints, query: Query, chosen: _Bandwidth
    ) -> Collected:
        """Users per cell from B times S."""
        kernel_sum, notes, floor = made.values / self.features, list[str]([chosen.note]), 0.0
        spread = math.sqrt(made.devices / (2 * self.features))
        area = float(where.area.sum())
        if self.smoothing == "reports":
            kernel_sum, note = self._smoothed(kernel_sum, where, query, made.devices)
            notes.append(note)
        else:
            per = 1e6 if tiling.region.georeferenced else 1.0
            unit = "users per km²" if tiling.region.georeferenced else "users per cell"
            error = spread / query.kernel_integral * per
            floor = error * highest_by_chance(query, area)
            notes.append(
                f"the random frequencies make a standard error of {error:.3g} {unit} everywhere, and by chance "
                f"hot spots of up to about {floor:.3g}"
            )
        signal, meaning = self._signal(query, area, made.devices)
        drawn = signal >= self.least_signal
        notes.append(meaning if drawn else Note(f"{meaning}; the map is uniform", "warning"))
        if not self.population:
            notes.append(
                "not measured: a server that knows where people are (option population=FILE: a raster of people from "
                "elsewhere, or a private map)"
            )
        return Collected(
            kernel_sum / query.kernel_integral * where.area,
            made.devices,
            tuple(notes),
            () if chosen.assumption is None else (chosen.assumption,),
            chosen.metres,
            floor,
            drawn,
        )

    def _signal(self, query: Query, area: float, users: int) -> tuple[float, str]:
        """The predicted signal to noise of a query to so many users, and its meaning in words."""
        signal = predicted_signal(query, area, users, jitter_m=self.jitter_m)
        meaning = (
            f"signal to noise: the mean density is {signal:.2g} standard errors (floor {self.least_signal:g})"
        )
        if signal >= self.least_signal:
            return signal, meaning
        needed = users_needed(query, area, self.least_signal, jitter_m=self.jitter_m)
        enough = "no number is enough" if needed is None else f"about {needed:,} are needed"
        return signal, (
            f"{meaning}; too few users ({users:,}): {enough} at this bandwidth, and planar-laplace or secure sums need "
            "fewer"
        )

    def predicted_signal(self, tiling: Tiling, users: int) -> tuple[float, str]:
        """The signal to noise of a collection from so many users, and in words. Run by: the server, before it asks.

        Raises
        ------
        InputError, ParameterError, PromiseError
            As :meth:`public_query`.
        """
        area = float(map_points(tiling).area.sum())
        return self._signal(self.public_query(tiling, users), area, users)

    def chosen_bandwidth(self, points: Points | Counts, tiling: Tiling, rng: Randomness) -> float:
        """The bandwidth of a release of these points, metres."""
        if self.bandwidth_m is not None:
            check_bandwidth(self.bandwidth_m, tiling)
        return self._bandwidth(points, tiling, map_points(tiling), count_users(points, tiling), rng).metres

    def _bandwidth(
        self, points: Points | Counts, tiling: Tiling, where: MapPoints, users: int, rng: Randomness
    ) -> _Bandwidth:
        if self.bandwidth_m is not None or self.bandwidth_rule == "public":
            return self._public_bandwidth(tiling, where, users)
        places = all_places(points, tiling)
        found = neighbour_bandwidth(places, rng.child("bandwidth"), neighbours=self.neighbours)
        return self._held(
            found,
            tiling,
            where,
            f"mean distance to neighbour {self.neighbours}; a tenth of the places were read in the clear for it",
            Assumes.BANDWIDTH_READ(),
        )

    def _public_bandwidth(self, tiling: Tiling, where: MapPoints, users: int) -> _Bandwidth:
        """The given bandwidth, or that of the rule that reads no place."""
        if self.bandwidth_m is not None:
            unit = "m" if tiling.region.georeferenced else "cells"
            return _Bandwidth(float(self.bandwidth_m), f"bandwidth {self.bandwidth_m:g} {unit} as given")
        self._check(self.bandwidth_rule == "public", "bandwidth_rule", "public")
        found = public_bandwidth(float(where.area.sum()), users, neighbours=self.neighbours)
        how = "from the region's area and the number of devices; no place was read for it"
        return self._held(found, tiling, where, how)

    def _held(
        self, found: float, tiling: Tiling, where: MapPoints, how: str, assumption: Assumption | None = None
    ) -> _Bandwidth:
        """A bandwidth that a rule found, held to Lemma 3's largest."""
        side = inscribed_side(tiling, where)
        most = largest_bandwidth(side, bands=self.bands, gamma=self.gamma, kernel=kernel_named(self.kernel))
        held = f"held to Lemma 3's largest, instead of {found:.4g} m " if found > most else ""
        return _Bandwidth(min(found, most), f"bandwidth {min(found, most):.4g} m {held}({how})", assumption)

    def _smoothed(
        self, kernel_sum: FloatArray, where: MapPoints, query: Query, devices: int
    ) -> tuple[FloatArray, str]:
        grid = where.grid
        if grid is None:
            raise AssertionError("smoothing was refused for a tiling without a grid")
        surface = np.empty(grid.count)
        surface[where.column, where.row] = kernel_sum
        found = smoothing_scale(surface, query, devices)
        note = f"smoothed by {found.scale:.4g} m to a bandwidth of {found.bandwidth:.4g} m, as the reports alone say"
        return where.on_cells(smooth(surface, grid, found.scale)), note

    def measure(self, tiling: Tiling, where: MapPoints, made: Collected) -> tuple[Measured, ...]:
        """The posterior error and places left, for a uniform prior and for the population.

        The released map is no prior: much of it is noise, where a server that trusted it would look in vain.
        """
        if made.bandwidth is None:
            raise AssertionError("a collection of random features has a bandwidth")
        query = self.query(where, made.bandwidth)
        unit = "m" if tiling.region.georeferenced else "cells"
        return tuple(
            fact
            for against, prior in self._priors(tiling, where)
            for fact in hiding_facts(
                hiding(query, prior, jitter_m=self.jitter_m), against, unit=unit, cell=prior.size[0]
            )
        )

    @property
    def disclosure(self) -> Disclosure:
        """See :class:`ProjectionMechanism`."""
        return Reveals.PHASES(features=self.features, jitter_m=float(self.jitter_m))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """See :class:`ProjectionMechanism`."""
        jitter_m = float(self.jitter_m)
        return (
            Assumes.ONE_CLIENT(),
            Assumes.FIXED_FREQUENCIES(),
            Assumes.PARTICIPATION_PUBLIC(),
            Assumes.COARSE_SITE_LIST(jitter_m=jitter_m) if jitter_m else Assumes.NO_SITE_LIST(),
            *((Assumes.SINGLE_LOCATION(),) if self.places == "mean" else ()),
        )
