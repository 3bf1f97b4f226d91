"""Flow maps: an estimate of the trips from each cell to each other one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.tiling import Tiling
from mapveil.inference.false_discovery import adjusted
from mapveil.inference.supported_blocks import FALSE_RATE
from mapveil.maps.counting import counting_note
from mapveil.maps.released import LINE_SUFFIXES, ReleasedMap, function_of
from mapveil.maps.scene import LineWindows, Rows, Scene
from mapveil.privacy.claim import TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.errors import ParameterError, check

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from mapveil.inference.linear_totals import Total
    from mapveil.maps.flow_sums import FlowSums


ZoneNames = int | str | Iterable[int | str]
"""A zone, or several, by number or by name."""

_SMALL: Final = 0.25  # a false rate whose tail half_width finds
_NEARLY: Final = 0.99
_MOST_LEAVES: Final = 1 << 20  # of noisy sums behind a total that a release states by itself


class Ends(NamedTuple):
    """Ends of flows, WGS84 degrees (cells without georeference); every array has shape (flows,)."""

    origin_lon: FloatArray
    origin_lat: FloatArray
    destination_lon: FloatArray
    destination_lat: FloatArray


@dataclass(frozen=True, eq=False)
class FlowMap(ReleasedMap):
    """Estimated trips, or users, from cells to cells: the flows that were kept, largest first.

    Flows of randomized reports count trips. Where a curator or secure sums added them up, each user counts 1 in all,
    divided over their trips: these flows count users (:attr:`counted`).

    Parameters
    ----------
    origin, destination : ndarray of int64, shape (flows,)
        Cells; no pair twice.
    trips : ndarray of float64, shape (flows,)
        Estimated trips, or users, of each pair.
    tiling, guarantee, method, parameters, notes, version
        See :class:`~mapveil.maps.released.ReleasedMap`.
    deviation : ndarray of float64, shape (flows,), optional
        Standard deviation of an unbiased estimate of each pair, from the randomization or noise alone; NaN for
        a pair that was measured together with others only.
    unbiased : ndarray of float64, shape (flows,), optional
        That estimate, where reports were randomized: it may be negative.
    p_value : ndarray of float64, shape (flows,), optional
        Probability that the unbiased estimate of a pair without trips is at least as large.
    unlisted : float
        Estimated trips, or users, of the pairs that are not among these.
    sums : FlowSums, optional
        The noisy sums of a curator or of secure sums, which answer questions.

    Raises
    ------
    ParameterError
        Arrays of different lengths, unknown cells, a pair twice, or trips that are negative or not finite.

    Examples
    --------
    >>> import mapveil as mv
    >>> grid = mv.Grid(mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=2, columns=2)
    >>> promise = mv.mechanisms.GeneralizedRandomizedResponse(epsilon=3).guarantee()
    >>> ends = np.array([0, 1, 2]), np.array([1, 0, 3])
    >>> flows = FlowMap(*ends, np.array([3.0, 9.0, 1.0]), grid, promise, "by hand")
    >>> flows.origin.tolist(), flows.destination.tolist(), flows.trips.tolist()
    ([1, 0, 2], [0, 1, 3], [9.0, 3.0, 1.0])
    >>> flows.merge_below(2).unlisted
    1.0
    """

    suffixes: ClassVar[tuple[str, ...]] = LINE_SUFFIXES

    origin: IntArray
    destination: IntArray
    trips: FloatArray
    tiling: Tiling
    guarantee: Guarantee
    method: str
    deviation: FloatArray | None = None
    unlisted: float = 0.0
    sums: FlowSums | None = field(default=None, kw_only=True, repr=False)
    unbiased: FloatArray | None = field(default=None, kw_only=True)
    p_value: FloatArray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        origin, destination = (np.asarray(part, dtype=np.int64) for part in (self.origin, self.destination))
        trips = np.asarray(self.trips, dtype=np.float64)
        shapes = {origin.shape, destination.shape, trips.shape}
        shapes |= {each.shape for each in (self.deviation, self.unbiased, self.p_value) if each is not None}
        if len(shapes) > 1 or trips.ndim != 1:
            raise ParameterError(
                f"arrays of flows must have one dimension and one length, got shapes {sorted(shapes)}"
            )
        for name, cells in (("origin", origin), ("destination", destination)):
            outside = cells[(cells < 0) | (cells >= self.tiling.size)].tolist()
            check(not outside, name, f"cells of {self.tiling.spec}, 0 to {self.tiling.size - 1}", outside)
        if np.unique(origin * self.tiling.size + destination).size < trips.size:
            raise ParameterError("every pair of cells must have one flow at most: one is there twice")
        if not (np.isfinite(trips).all() and (trips >= 0).all()):
            raise ParameterError("trips must be finite and at least 0: one is negative or not finite")
        order = np.lexsort((destination, origin, -trips))
        arrays: dict[str, IntArray | FloatArray | None]
        arrays = {"origin": origin, "destination": destination, "trips": trips}
        arrays |= {"deviation": self.deviation, "unbiased": self.unbiased, "p_value": self.p_value}
        for name, values in arrays.items():
            object.__setattr__(self, name, None if values is None else values[order])

    @property
    def counted(self) -> str:
        """The unit of ``trips``: ``"users"`` where each user counts 1 in all, else ``"trips"``."""
        return "trips" if self.guarantee.model is TrustModel.LOCAL else "users"

    @property
    def counting(self) -> str:
        """A note on the users that one user counts as, where ``trips`` are users."""
        return counting_note(self.parameters, "divided over their trips")

    @property
    def all_trips(self) -> float:
        """The shown flows added up, the unlisted ones too: none is below 0, so of noisy sums it is biased upwards."""
        return float(self.trips.sum()) + self.unlisted

    def in_all(self) -> str:
        """All users, unbiased, with their 95 % interval, in as many digits as are known; of reports, their number."""
        if self.sums is None:
            return f"{self.all_trips:,.0f} {self.counted}"
        if self.sums.leaves.size > _MOST_LEAVES:
            return f"about {self.all_trips:,.0f} {self.counted}"
        total = self.total()
        (low, high), estimate = total.interval(), max(total.estimate, 0.0)
        digits = 1 - math.floor(math.log10(max(high - total.estimate, 0.01)))
        text = [f"{round(each, digits):,.{max(digits, 0)}f}" for each in (estimate, low, high)]
        return f"{text[0]} {self.counted} (95 %: {text[1]} to {text[2]})"

    @property
    def size(self) -> int:
        """Number of flows."""
        return int(self.trips.size)

    def matrix(self) -> csr_array:
        """The flows as a sparse matrix, shape (cells, cells): rows are origins."""
        from scipy.sparse import coo_array

        size = self.tiling.size
        return coo_array((self.trips, (self.origin, self.destination)), shape=(size, size)).tocsr()

    @cached_property
    def ends(self) -> Ends:
        """Origin and destination of each flow."""
        origin, destination = (self.tiling.centres(cells) for cells in (self.origin, self.destination))
        return Ends(origin.lon, origin.lat, destination.lon, destination.lat)

    def lengths_m(self) -> FloatArray:
        """Distance of the ends on the ellipsoid, metres (cells without georeference), shape (flows,)."""
        ends = self.ends
        if not self.tiling.region.georeferenced:
            return np.asarray(
                np.hypot(ends.origin_lon - ends.destination_lon, ends.origin_lat - ends.destination_lat)
            )
        from pyproj import Geod

        return np.asarray(Geod(ellps="WGS84").inv(*ends)[2], dtype=np.float64)

    def told_from_zero(self, false_rate: float = FALSE_RATE) -> BoolArray | None:
        """Which pairs have any flow, at a false discovery rate; shape (flows,).

        The null hypothesis is that nobody makes the trip, the p-value is ``p_value``, of the unbiased estimate and not
        of the listed one, and ``false_rate`` the expected fraction of those kept that are no flow at all, among all
        pairs of cells (:mod:`mapveil.inference.false_discovery`). Estimates of different pairs are taken as
        independent, as they nearly are. With noisy sums the p-value is that of the pair's own noisy sum, among the
        pairs measured alone; no other pair is kept. None where p-values are not known. Run by: anybody who holds the
        map; costs no privacy.
        """
        check(0 < false_rate < 1, "false_rate", "between 0 and 1", false_rate)
        if self.sums is not None:
            return self._above_noise(self.sums, false_rate)
        if self.p_value is None:
            return None
        return np.asarray(adjusted(self.p_value, self.tiling.size**2) <= false_rate)

    def with_told_note(self) -> FlowMap:
        """These flows with a note of how many of them :meth:`told_from_zero` keeps, where it can tell."""
        told = self.told_from_zero()
        if told is None:
            return self
        note = (
            f"{int(told.sum())} of {self.size} listed flows are told from zero, at a false discovery rate of "
            f"{100 * FALSE_RATE:g} %"
        )
        return replace(self, notes=(*self.notes, note))

    def _above_noise(self, sums: FlowSums, false_rate: float) -> BoolArray:
        """Flows that were measured alone, and whose noisy sums no noise explains: by the law of the noise."""
        from mapveil.privacy.weighted_noise import WeightedNoise, half_width, tail

        law, finest = sums.blocks[-1].law(), sums.blocks[-1]
        alone = sums.pairs == 1
        noise = WeightedNoise(*(np.array([float(each)]) for each in law))
        noisy = np.where(alone, finest.noisy[finest.groups], -np.inf)
        # A p-value above the rate is never kept, so most need not be found.
        near = noisy > (_NEARLY * half_width(noise, 2 * false_rate) if false_rate <= _SMALL else -np.inf)
        kept = np.zeros(sums.leaves.size, dtype=np.bool_)
        kept[near] = adjusted(tail(noise, noisy[near]), int(alone.sum())) <= false_rate
        return np.asarray(kept[sums.leaf_of(self.origin, self.destination)])

    def total(self, origins: ZoneNames | None = None, destinations: ZoneNames | None = None) -> Total:
        """Users, or trips, from some zones to some others, with an interval of the noise; all zones by default.

        Costs no privacy; see :func:`mapveil.analysis.flow_totals.flow_total`.
        """
        made: Total = function_of("analysis.flow_totals:flow_total")(self, origins, destinations)
        return made

    def outflow(self, zones: ZoneNames) -> Total:
        """Trips that begin in some zones; see :meth:`total`."""
        return self.total(zones)

    def inflow(self, zones: ZoneNames) -> Total:
        """Trips that end in some zones; see :meth:`total`."""
        return self.total(None, zones)

    def merge_below(self, minimum: float) -> FlowMap:
        """Move every flow estimated below ``minimum`` trips, or users, to the unlisted ones.

        Post-processing: costs no privacy, and protects no one by itself.
        """
        check(0 <= minimum < np.inf, "minimum", f"at least 0 {self.counted}", minimum)
        note = f"flows estimated below {minimum:g} {self.counted} are not listed"
        return replace(self.kept(self.trips >= minimum), notes=(*self.notes, note))

    def largest(self, count: int) -> FlowMap:
        """The ``count`` largest flows; the others become unlisted."""
        check(count >= 0, "count", "at least 0 flows", count)
        return self.kept(np.arange(self.size) < count)

    def kept(self, kept: npt.NDArray[np.bool_]) -> FlowMap:
        """The flows of a mask, shape (flows,); the others become unlisted."""
        return replace(self, **self._of_kept(kept))

    def _of_kept(self, kept: npt.NDArray[np.bool_]) -> dict[str, Any]:
        """The fields that change where only the flows of a mask are kept."""
        names = ("origin", "destination", "trips", "deviation", "unbiased", "p_value")
        given = {name: getattr(self, name) for name in names}
        made = {name: None if values is None else values[kept] for name, values in given.items()}
        return made | {"unlisted": self.unlisted + float(self.trips[~kept].sum())}

    def about(self) -> dict[str, Any]:
        """The metadata that are particular to flows."""
        return {
            "kind": "flows",
            "unit": f"{self.counted} per pair of cells",
            "flows": self.size,
            "unlisted": self.unlisted,
        }

    @property
    def zone_names(self) -> tuple[str, ...] | None:
        """Name of each cell, where cells have names."""
        names: tuple[str, ...] | None = getattr(self.tiling, "names", None)
        return names

    def names_of(self, cells: IntArray) -> list[str] | None:
        """Names of some cells, where cells have names."""
        names = self.zone_names
        return None if names is None else [names[cell] for cell in cells.tolist()]

    def rows(self) -> Rows:
        """One row per flow, the largest first: cells and their names, trips or users, deviation, length, ends."""
        columns: dict[str, Any] = {"origin": self.origin, "destination": self.destination}
        for name, cells in (("origin", self.origin), ("destination", self.destination)):
            called = self.names_of(cells)
            if called is not None:
                columns[f"{name}_name"] = called
        columns[self.counted] = self.trips
        if self.deviation is not None:
            columns["deviation"] = self.deviation
        if self.unbiased is not None:
            columns["unbiased"] = self.unbiased
        if self.p_value is not None:
            columns["p_value"] = self.p_value
        ends = self.ends
        columns["length_m"] = np.round(self.lengths_m(), 1)
        columns |= {name: np.round(degrees, 8) for name, degrees in ends._asdict().items()}
        return Rows(
            columns,
            np.stack([ends.origin_lon, ends.destination_lon], axis=1).ravel(),
            np.stack([ends.origin_lat, ends.destination_lat], axis=1).ravel(),
            2 * np.arange(self.size + 1),
        )

    def scene(self, *, page: bool = False, arcs: int = 200) -> Scene:
        """The largest flows between cells as arcs (``arcs`` in a picture, 4000 on a page); those within one as dots."""
        check(arcs >= 1, "arcs", "at least 1", arcs)
        made: Scene = function_of("maps.flow_scene:flow_scene")(self, page=page, arcs=arcs)
        return made

    def line_windows(self, between: BoolArray) -> LineWindows | None:
        """Flows between cells, and those within one, by window; None where there are no windows."""
        return None

    def __repr__(self) -> str:
        return f"FlowMap({self.method}, {self.tiling.spec}, {self.size} flows)\n{self.guarantee!r}"
