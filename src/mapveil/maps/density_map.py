"""Density maps: an estimate of users per cell, with its noisy sums and error bounds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil.inference.supported_blocks import FALSE_RATE, Blocks, supported_blocks, whole_block
from mapveil.maps.block_scene import NOT_KNOWN, ONE_BLOCK, above_the_floor, in_one_block, with_blocks
from mapveil.maps.counting import counting_note
from mapveil.maps.measurement import INTERVAL_ALPHA, EstimatedUsers, Interval, Measurement
from mapveil.maps.released import ReleasedMap, check_shape, function_of
from mapveil.maps.round_cost import RoundCost
from mapveil.maps.scene import Layer, ScaleKind, Scene, Shading
from mapveil.privacy.claim import TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError, check

if TYPE_CHECKING:
    from mapveil.inference.linear_totals import Total
    from mapveil.inference.zone_results import RankedZones, ZonesAbove, ZoneTotals

Detail = Literal["supported", "cells"]


@dataclass(frozen=True, eq=False)
class DensityMap(ReleasedMap):
    """A released map: estimated users per cell, with its guarantee.

    Each user counts 1 in total, divided over the cells they were in unless trust model or scale have it in one.

    Parameters
    ----------
    values : ndarray of float64, shape (tiling.size,)
        Estimated users per cell.
    tiling, guarantee, method, parameters, notes, version
        See :class:`~mapveil.maps.released.ReleasedMap`.
    measurements : tuple of Measurement
        The noisy sums it was made from.
    outside : float
        Users merged out of small cells, see :meth:`merge_below`.
    rounds : tuple of RoundCost
        Cost of each round to a device, where devices reported.
    noise_floor : float
        Noise floor of the density, users per km²; 0 where it is not known. Colours begin there.
    placement : ndarray of float64, shape (tiling.size,), optional
        Users of each cell by which the users of a measured block are placed in it, from other noisy sums than its own:
        of a window of a series, those of all windows. By the number of cells where it is None.
    stand_in : str
        Name of the window of a live series whose map stands for this one; empty for a map of its own.
    repeated : tuple of Measurement
        The noisy sums of that window: they say what may be drawn, and answer no question about this one.
    """

    values: FloatArray
    tiling: Tiling
    guarantee: Guarantee
    method: str
    measurements: tuple[Measurement, ...] = ()
    outside: float = 0.0
    rounds: tuple[RoundCost, ...] = ()
    noise_floor: float = 0.0
    placement: FloatArray | None = field(default=None, kw_only=True)
    stand_in: str = field(default="", kw_only=True)
    repeated: tuple[Measurement, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        check_shape("values", self.values, self.tiling)

    def per_km2(self) -> FloatArray:
        """Estimated density, users per square kilometre, shape (cells,).

        Without georeference nothing is known of kilometres: it is users per unit cell of the raster.
        """
        area = self.tiling.area_m2() / (1e6 if self.tiling.region.georeferenced else 1.0)
        # A site can be nearest to no place of a polygon: a cell without area.
        return np.divide(self.values, area, out=np.zeros(self.tiling.size), where=area > 0)

    def normalised(self) -> FloatArray:
        """The values over their sum (uniform by area where the sum is zero), shape (cells,)."""
        kept = np.maximum(self.values, 0.0)
        total = kept.sum()
        if total > 0:
            return np.asarray(kept / total)
        area = self.tiling.area_m2()
        return np.asarray(area / area.sum())

    def error(self, alpha: float = 0.05) -> Interval:
        r"""Bounds that hold for each cell's true sum with probability at least 1 - alpha.

        A cell's sum is at most that of any group it belongs to, and is that group's sum where it is
        its only member. With K measurements covering the cell, each has the two-sided quantile of its noise at
        :math:`\alpha / K`:

        .. math:: \max(0, \max_k \tilde{s}_k - t_k) \le s \le \min_k \tilde{s}_k + t_k

        where: :math:`\tilde{s}_k` is the noisy sum of the cell's group in measurement k, :math:`t_k`
        is ``measurement.half_width(alpha / K)``, and the lower bound uses single-cell groups only. Of estimates from
        reports only the finest level counts.

        The bounds are pointwise and concern the noise alone, not users who are missing from the table. Run by:
        anybody who holds the map; costs no privacy.

        Parameters
        ----------
        alpha : float
            Largest probability, over the noise, that one given cell's bounds miss its sum; in (0, 1).

        Raises
        ------
        ParameterError
            ``alpha`` is outside (0, 1), or the map carries no measurements.
        """
        check(0 < alpha < 1, "alpha", "between 0 and 1", alpha)
        if not self.measurements:
            raise ParameterError(
                f"a map of {self.method} carries no measurements, so it has no error bounds: {self.unmeasured}"
            )
        lower = np.zeros(self.tiling.size)
        upper = np.full(self.tiling.size, np.inf)
        certain = [each for each in self.measurements if each.deviation() == 0]
        uncertain = [each for each in self.measurements if each.deviation() > 0]
        # Of reports the finest level alone: coarser ones would widen the bounds more than they say of a cell.
        if all(isinstance(each, EstimatedUsers) for each in uncertain):
            uncertain = uncertain[-1:]
        for measurement in (*certain, *uncertain):
            half = measurement.half_width(alpha / max(len(uncertain), 1))
            covered = measurement.groups >= 0
            group = np.where(covered, measurement.groups, 0)
            noisy = measurement.noisy[group]
            alone = np.bincount(measurement.groups[covered], minlength=measurement.noisy.size)[group] == 1
            upper = np.where(covered, np.minimum(upper, noisy + half), upper)
            lower = np.where(covered & alone, np.maximum(lower, noisy - half), lower)
        return Interval(lower, np.maximum(upper, lower))

    @property
    def unmeasured(self) -> str:
        """The reason why a map carries no measurements, in words."""
        if self.stand_in:
            return f"{self.stand_in} stands for it; ask that"
        return "its method has none, or its file was written before files carried them"

    def interval(self) -> Interval | None:
        """The bounds of every export: ``error(INTERVAL_ALPHA)``, None without measurements."""
        return self.error(INTERVAL_ALPHA) if self.measurements else None

    def layers(self) -> tuple[Layer, ...]:
        """Further numbers of each cell, beside users and their bounds; none here."""
        return ()

    def columns(self) -> tuple[Layer, ...]:
        """Every number of a cell, for the exports: users, density, bounds where known, and :meth:`layers`."""
        found = [Layer("users", "users, estimate", "users per cell", self.values)]
        if self.tiling.region.georeferenced:
            found.append(Layer("users_per_km2", "users per km²", "users/km2", self.per_km2(), derived=True))
        interval = self.interval()
        if interval is not None:
            for side, bound in (("lower", interval.lower), ("upper", interval.upper)):
                title = f"users, {side} bound of the {100 * (1 - INTERVAL_ALPHA):g} % interval"
                found.append(Layer(side, title, "users per cell", bound))
        return (*found, *self.layers())

    def total(self, zone: Any = None, *, repair: bool = False) -> Total:
        """The users of a zone, by default of the whole map; see :func:`mapveil.analysis.zone_totals.total`."""
        asked = self.tiling.region.outline() if zone is None else zone
        made: Total = function_of("analysis.zone_totals:total")(self, asked, repair=repair)
        return made

    def totals(self, zones: Any, *, alpha: float = INTERVAL_ALPHA, **read: Any) -> ZoneTotals:
        """The users of every zone; see :func:`mapveil.analysis.zone_totals.totals`."""
        made: ZoneTotals = function_of("analysis.zone_totals:totals")(self, zones, alpha=alpha, **read)
        return made

    def top(self, count: int, zones: Any, *, alpha: float = INTERVAL_ALPHA, **read: Any) -> RankedZones:
        """The busiest zones, with the ranks each may have; see :func:`mapveil.analysis.zone_ranks.top`."""
        made: RankedZones = function_of("analysis.zone_ranks:top")(self, count, zones, alpha=alpha, **read)
        return made

    def above(self, zones: Any, limit: float, *, alpha: float = INTERVAL_ALPHA, **read: Any) -> ZonesAbove:
        """The zones called above a number of users; see :func:`mapveil.analysis.zone_ranks.above`."""
        made: ZonesAbove = function_of("analysis.zone_ranks:above")(self, zones, limit, alpha=alpha, **read)
        return made

    def density(self) -> FloatArray:
        """:meth:`per_km2` with NaN outside the region's polygon, shape (cells,): what pictures show."""
        inside = getattr(self.tiling, "inside", None)
        if self.tiling.region.polygon is None or inside is None:
            return self.per_km2()
        return np.where(inside(), self.per_km2(), np.nan)

    def supported(self, *, false_rate: float = FALSE_RATE, alpha: float = INTERVAL_ALPHA) -> Blocks:
        """The finest blocks of cells that the noisy sums tell from zero, with an interval each.

        Run by: anybody who holds the map; costs no privacy. See
        :func:`~mapveil.inference.supported_blocks.supported_blocks` for the parameters.

        Raises
        ------
        ParameterError
            A parameter is outside (0, 1), or the map carries no measurements.
        """
        if not self.measurements:
            raise ParameterError(
                f"a map of {self.method} carries no measurements, so no block can be tested: {self.unmeasured}"
            )
        return supported_blocks(self.measurements, self.tiling.lattice(), false_rate=false_rate, alpha=alpha)

    def scene(
        self, *, page: bool = False, scale: ScaleKind | None = None, detail: Detail = "supported"
    ) -> Scene:
        """The density of the supported blocks, and on a page users with their bounds and the further layers.

        Parameters
        ----------
        page : bool
            Whether it is for a page, which can show more than a picture.
        scale : str, optional
            From values to colours: "log", which copes with skew, by default, or "linear".
        detail : str
            ``"supported"``, or ``"cells"``: the estimate of every cell, whether the measurements support it or not.
        """
        scene = self.cell_scene(scale)
        if detail == "cells":
            return scene
        measured = self.measurements or self.repeated
        if measured:
            blocks = supported_blocks(measured, self.tiling.lattice())
            # Reports of devices bear no estimate at all where the noise is larger than everybody.
            if blocks.testable or isinstance(measured[-1], EstimatedUsers):
                return with_blocks(scene, self.values, self.tiling, blocks, self.counting)
            if self.parameters.get("windows") is None and any(each.noisy.size > 1 for each in measured):
                return scene._replace(reading=NOT_KNOWN)
            whole = whole_block(measured)
            if self.parameters.get("windows") is None:
                return in_one_block(scene, self.values, self.tiling, whole, self.counting)
            # Of a window, in whose blocks the cells lie as in all windows together: a pattern that is not its own.
            made = with_blocks(scene, self.values, self.tiling, whole, self.counting)
            said = f"{ONE_BLOCK} {self.counting[:1].upper()}{self.counting[1:]}."
            return made._replace(reading=said) if whole.size else made
        return above_the_floor(scene, self.noise_floor) if self.noise_floor else scene

    def cell_scene(self, scale: ScaleKind | None = None) -> Scene:
        """The density of every cell, users with their bounds and the further layers."""
        shading = Shading(scale or "log", noise_floor=self.noise_floor)
        on_earth = self.tiling.region.georeferenced
        name, unit = ("users_per_km2", "users per km²") if on_earth else ("density", "users per cell")
        density = Layer(name, "Density", unit, self.density(), shading, derived=True)
        users = Layer("users", "Estimated users", "", self.values)
        interval = self.interval()
        made = [("Outside the cells", f"{self.outside:.6g} users, merged out of small cells")]
        noise = "The bounds are about the noise alone: not about people who are missing from the table."
        return Scene(
            title="Where people are",
            layers=(density, users, *self.layers()),
            main=1,
            bounds=None if interval is None else (*interval, f"{100 * (1 - INTERVAL_ALPHA):g} %"),
            made=tuple(made if self.outside else ()),
            tables=(("What a device sent", [(each.purpose, each.in_words()) for each in self.rounds]),),
            notes=(
                f"{self.counting[:1].upper()}{self.counting[1:]}; an estimate may be a fraction.",
                *((noise,) if self.measurements else ()),
                *self.notes,
            ),
            left_out="cells estimated at zero",
        )

    @property
    def counting(self) -> str:
        """A note on the users that one user counts as, and the cells they count in."""
        return counting_note(self.parameters, self._counted_in())

    def _counted_in(self) -> str:
        """The cells that a user counts in, in words."""
        if self.guarantee.model is TrustModel.LOCAL:
            return "in the one cell that their device reported about"
        if self.parameters.get("scale") == 1:  # a single unit is not divided
            return "in the one cell they were in most often"
        return "divided over the cells they were in"

    def merge_below(self, minimum: float) -> DensityMap:
        """Move every cell whose estimate is below ``minimum`` users into ``outside``.

        Post-processing: costs no privacy, and protects no one by itself.
        """
        check(0 <= minimum < np.inf, "minimum", "at least 0 users", minimum)
        small = self.values < minimum
        return replace(
            self,
            values=np.where(small, 0.0, self.values),
            outside=self.outside + float(self.values[small].sum()),
            notes=(*self.notes, f"cells estimated below {minimum:g} users are merged into 'outside'"),
        )

    def about(self) -> dict[str, Any]:
        """The metadata that are particular to a density map."""
        interval = {"alpha": INTERVAL_ALPHA, "of": "each cell's true sum"}
        return {
            "unit": "users per cell",
            "interval": interval if self.measurements else None,
            "outside": self.outside,
            **({"noise_floor_per_km2": self.noise_floor} if self.noise_floor else {}),
            **({"stand_in": self.stand_in} if self.stand_in else {}),
            **({"rounds": [each.to_dict() for each in self.rounds]} if self.rounds else {}),
        }

    def __repr__(self) -> str:
        return f"DensityMap({self.method}, {self.tiling.spec}, {self.tiling.size} cells)\n{self.guarantee!r}"
