"""A coverage map: mean signal strength per cell, how sure it is, and where there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.measurements import RSS, Measurements
from mapveil.geo.tiling import Tiling
from mapveil.inference.normal_interval import NORMAL_95
from mapveil.maps.measured_cells import cell_means, located, nearest_m
from mapveil.maps.released import ReleasedMap, check_shape
from mapveil.maps.scene import Layer, Scene, Shading
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError, check

HOLE_DBM: Final = -110.0
"""Below this mean strength a cell is a coverage hole, unless a map says otherwise."""

_RARE: Final = 0.5  # per cent of the cells beyond either end of the ramp
_BORROWED: Final = 4.0  # measurements' worth of the whole map's variance in each cell's
_FALSE_RATE: Final = (
    0.05  # of the holes that are told, at most so many are expected to be covered: as of heat maps
)


class Coverage(NamedTuple):
    """Cells by what is known of them; the three add up to all cells."""

    covered: int
    holes: int
    unknown: int


@dataclass(frozen=True, eq=False)
class SignalMap(ReleasedMap):
    """Mean signal strength of each cell, with its guarantee.

    Parameters
    ----------
    mean_dbm : ndarray of float64, shape (tiling.size,)
        Estimated mean strength; NaN where nothing is known.
    deviation_db : ndarray of float64, shape (tiling.size,)
        Standard deviation of ``deviation_of``; NaN where nothing is known.
    measurements : ndarray of int64, shape (tiling.size,)
        Measurements that lie in each cell, as they were reported.
    tiling, guarantee, method, parameters, notes, version
        See :class:`~mapveil.maps.released.ReleasedMap`.
    hole_dbm : float
        Below it a cell is a coverage hole, dBm.
    deviation_of : str
        Subject of the deviation: a cell's estimated mean, or one new measurement there.
    counted : str
        What ``measurements`` counts, where it is not measurements as they were reported.
    holes_known : bool
        Whether a hole can be told from covered ground: not where rows were privatized, which may have moved there.
    extrapolated : ndarray of bool, shape (tiling.size,), optional
        Cells whose strength is a model's estimate, as nobody is known to have measured there; those without
        ``measurements`` by default.
    measured_dbm : ndarray of float64, shape (tiling.size,), optional
        Mean of each cell's own measurements where ``mean_dbm`` is a model's; NaN where there are none.

    Raises
    ------
    ParameterError
        The arrays are not one number a cell, a strength is known without its deviation, or one is infinite.
    """

    mean_dbm: FloatArray
    deviation_db: FloatArray
    measurements: IntArray
    tiling: Tiling
    guarantee: Guarantee
    method: str
    hole_dbm: float = HOLE_DBM
    deviation_of: str = "a cell's mean"
    counted: str = "measurements"
    holes_known: bool = True
    extrapolated: npt.NDArray[np.bool_] | None = None
    measured_dbm: FloatArray | None = None

    def __post_init__(self) -> None:
        for name in ("mean_dbm", "deviation_db", "measurements"):
            check_shape(name, getattr(self, name), self.tiling)
        for name in ("extrapolated", "measured_dbm"):
            if getattr(self, name) is not None:
                check_shape(name, getattr(self, name), self.tiling)
        known = np.isfinite(self.mean_dbm)
        if np.isinf(self.mean_dbm).any() or (known != np.isfinite(self.deviation_db)).any():
            raise ParameterError("mean_dbm and deviation_db must be finite, or NaN, in the same cells")
        if (self.deviation_db[known] < 0).any():
            raise ParameterError("deviation_db must be at least 0: one is negative")
        check(math.isfinite(self.hole_dbm), "hole_dbm", "a finite strength, such as -110", self.hole_dbm)

    @classmethod
    def from_measurements(
        cls,
        measurements: Measurements,
        tiling: Tiling,
        guarantee: Guarantee,
        *,
        least: int = 1,
        method: str = "cell means",
        **about: Any,
    ) -> SignalMap:
        r"""The mean of the measurements in each cell, privatized or not. Run by: the server.

        .. math:: \hat\mu_c = \frac1{n_c} \sum_i x_i, \qquad
                  \hat\sigma_c^2 = \frac{(n_c - 1) s_c^2 + \nu s^2}{n_c\,(n_c - 1 + \nu)}

        where: :math:`x_i` are the strengths of the :math:`n_c` measurements in cell c, :math:`s_c^2` their variance,
        :math:`s^2` the variance within cells of the whole map, which counts for :math:`\nu = 4` measurements: a cell
        with one measurement is not taken to be certain. Measurements of one phone in one place are not
        independent, so the deviation is the least there is.

        Parameters
        ----------
        measurements : Measurements
            Privatized or not; a note counts those outside the region, which are left aside.
        tiling, guarantee, method
            As for :class:`SignalMap`.
        least : int
            Cells with fewer measurements are unknown.
        **about
            Further fields of :class:`SignalMap`.

        Raises
        ------
        ParameterError
            ``least`` is below 1.
        """
        check(least >= 1, "least", "at least 1 measurement", least)
        cell = located(measurements, tiling)
        inside = cell >= 0
        strength, cell = measurements.rows[inside, RSS], cell[inside]
        counts = np.bincount(cell, minlength=tiling.size)
        shown = counts >= least
        sums = np.bincount(cell, strength, tiling.size)
        mean = np.divide(sums, counts, out=np.full(tiling.size, np.nan), where=shown)
        # Around a cell's own mean, whether it is shown or not: squares of dBm lose digits.
        own = np.divide(sums, counts, out=np.zeros(tiling.size), where=counts > 0)
        squares = np.bincount(cell, np.square(strength - own[cell]), tiling.size)
        freedom = int(np.maximum(counts - 1, 0).sum())
        pooled = (
            float(squares.sum()) / freedom if freedom else float(np.var(strength)) if strength.size else 0.0
        )
        variance = (squares + _BORROWED * pooled) / (np.maximum(counts - 1, 0) + _BORROWED)
        deviation = np.sqrt(np.divide(variance, counts, out=np.full(tiling.size, np.nan), where=shown))
        notes = tuple(about.pop("notes", ()))
        outside = len(measurements) - int(inside.sum())
        if outside:
            notes += (f"{outside} of {len(measurements)} measurements lie outside the region",)
        parameters = {"least": least, **about.pop("parameters", {})}
        return cls(
            mean, deviation, counts, tiling, guarantee, method, parameters=parameters, notes=notes, **about
        )

    @classmethod
    def from_prediction(
        cls,
        mean_dbm: FloatArray,
        deviation_db: FloatArray,
        measurements: Measurements,
        tiling: Tiling,
        guarantee: Guarantee,
        method: str,
        *,
        reach_m: float | None = None,
        **about: Any,
    ) -> SignalMap:
        """The prediction of a model at the centres of the cells.

        Parameters
        ----------
        mean_dbm, deviation_db : ndarray of float64, shape (tiling.size,)
            The prediction.
        measurements : Measurements
            Training data of the model, to be counted, and for the distance to the nearest one.
        tiling, guarantee, method
            As for :class:`SignalMap`.
        reach_m : float, optional
            Cells whose centre is farther than this from every measurement are unknown, metres.
        **about
            Further fields of :class:`SignalMap`.

        Raises
        ------
        ParameterError
            ``reach_m`` is not above 0.
        """
        counts, own = cell_means(measurements, tiling)
        parameters = dict(about.pop("parameters", {}))
        unknown = ~np.isfinite(mean_dbm)
        if reach_m is not None:
            check(reach_m > 0, "reach_m", "above 0", reach_m)
            parameters["reach_m"] = reach_m
            unknown |= (nearest_m(measurements, tiling) > reach_m) & (counts == 0)
        return cls(
            np.where(unknown, np.nan, mean_dbm),
            np.where(unknown, np.nan, deviation_db),
            counts,
            tiling,
            guarantee,
            method,
            parameters=parameters,
            deviation_of="one new measurement",
            measured_dbm=own,
            **about,
        )

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Cells with a known strength, shape (cells,)."""
        return np.isfinite(self.mean_dbm)

    @property
    def holes(self) -> npt.NDArray[np.bool_]:
        """Cells that are coverage holes: their mean is below ``hole_dbm``; shape (cells,)."""
        return np.asarray(self.mean_dbm < self.hole_dbm)

    def hole_chance(self) -> FloatArray:
        r"""The chance that ``deviation_of`` is below the limit, shape (cells,); NaN where nothing is known of it.

        .. math:: \Phi\big((h - \hat\mu_c) / \hat\sigma_c\big)

        where: h is ``hole_dbm``, :math:`\hat\mu_c` and :math:`\hat\sigma_c` mean and deviation of cell c and
        :math:`\Phi` the normal distribution.
        """
        from scipy.special import ndtr

        apart = self.hole_dbm - self.mean_dbm
        if not self.holes_known:
            return np.full(apart.shape, np.nan)
        certain = self.deviation_db == 0
        scaled = np.divide(apart, self.deviation_db, out=np.full(apart.shape, np.nan), where=~certain)
        return np.asarray(np.where(certain, (apart > 0).astype(np.float64), ndtr(scaled)))

    def holes_told(self) -> npt.NDArray[np.bool_]:
        r"""Holes that are told from covered ground, shape (cells,): the others may be a coin toss.

        .. math:: H = \{c_{(1)}, \dots, c_{(k)}\}, \qquad
                  k = \max \Big\{j : \frac1j \sum_{i=1}^{j} \big(1 - p_{c_{(i)}}\big) \le 0.05\Big\}

        where: p is :meth:`hole_chance`, of the holes in falling order. At most one in twenty of H is expected to be
        covered, if the deviations hold. Those of a model do not where it extrapolates: no hole is told where nobody
        measured, nor where the cell's own measurements (``measured_dbm``) average above the limit.

        Source: M. Newton, A. Noueiry, D. Sarkar, P. Ahlquist, "Detecting differential gene expression with a
        semiparametric hierarchical mixture method" (Biostatistics, 2004), equation 6.
        """
        seen = self.holes & ~self.unmeasured
        if self.measured_dbm is not None:
            seen &= self.measured_dbm < self.hole_dbm
        found = np.flatnonzero(seen)
        wrong = 1 - self.hole_chance()[found]
        order = np.argsort(wrong, kind="stable")
        expected = np.cumsum(wrong[order]) / np.arange(1, found.size + 1)
        told = np.zeros(self.tiling.size, dtype=np.bool_)
        told[found[order[expected <= _FALSE_RATE]]] = True
        return told

    @property
    def unmeasured(self) -> npt.NDArray[np.bool_]:
        """Cells of a known strength in which nobody is known to have measured, shape (cells,): extrapolated."""
        beyond = self.measurements == 0 if self.extrapolated is None else self.extrapolated
        return np.asarray(self.known & beyond)

    @property
    def evidence(self) -> str:
        """Words for a cell that is not extrapolated: somebody measured there, or a report names it."""
        return "measured" if self.holes_known else "in reports (whose places are privatized too)"

    def coverage(self) -> Coverage:
        """Numbers of cells that are covered, are holes, are unknown."""
        holes, known = int(self.holes.sum()), int(self.known.sum())
        return Coverage(known - holes, holes, self.tiling.size - known)

    def rmse_dbm(self, measurements: Measurements) -> float:
        """Root mean square error of the cells' means at true measurements, dB; NaN where none lies in a known cell.

        Parameters
        ----------
        measurements : Measurements
            Not privatized. Those outside the region or in unknown cells are left aside.
        """
        cell = located(measurements, self.tiling)
        judged = np.flatnonzero(cell >= 0)
        judged = judged[self.known[cell[judged]]]
        if not judged.size:
            return float("nan")
        errors = self.mean_dbm[cell[judged]] - measurements.rows[judged, RSS]
        return float(np.sqrt(np.square(errors).mean()))

    def columns(self) -> tuple[Layer, ...]:
        """Every number of a cell, for the exports; ``hole`` is 1 below the limit, 0 above it."""
        hole = np.where(self.known, self.holes.astype(np.float64), np.nan)
        low, top = self._span()
        strength = Shading("linear", low=low, top=top, holes=bool(self.holes.any()), blank=True)
        other, chance = Shading("linear", blank=True), Shading("linear", top=1.0, blank=True)
        limit = f"below {self.hole_dbm:g} dBm"
        of, count = self.deviation_of, self.measurements.astype(np.float64)
        half = NORMAL_95 * self.deviation_db
        low_end, high_end = self.mean_dbm - half, self.mean_dbm + half
        return (
            Layer("rss_dbm", "mean signal strength", "dBm", self.mean_dbm, strength),
            Layer("deviation_db", f"standard deviation of {of}", "dB", self.deviation_db, other),
            Layer("low_dbm", f"95 % interval of {of}: lower end", "dBm", low_end, other),
            Layer("high_dbm", f"95 % interval of {of}: upper end", "dBm", high_end, other),
            Layer("measurements", self.counted, "", count, other),
            Layer("hole", f"coverage hole: {limit}", "1", hole, chance, ("no", "yes")),
            Layer("hole_chance", f"chance that {of} is {limit}", "1", self.hole_chance(), chance),
        )

    def _span(self) -> tuple[float, float]:
        """Ends of the colour ramp, dBm: the range of all covered cells but one in two hundred; holes lie below."""
        shown = self.mean_dbm[self.known & ~self.holes]
        if not shown.size:
            return self.hole_dbm, self.hole_dbm + 10.0
        low, top = (float(each) for each in np.percentile(shown, [_RARE, 100 - _RARE]))
        low = self.hole_dbm if self.holes.any() else float(math.floor(low))
        return low, max(float(math.ceil(top)), low + 1.0)

    def scene(self, *, page: bool = False) -> Scene:
        """The strength, and on a page every other number of a cell."""
        count, size = self.coverage(), max(self.tiling.size, 1)
        total = int(self.measurements.sum())
        told, unmeasured = self.holes_told(), self.unmeasured
        unsure = self.holes & ~told
        strength, *others = self.columns()
        drawn = strength._replace(shading=strength.shading._replace(holes=bool(told.any())))
        # Reports whose places moved cover a part of the region that nobody chose.
        share = f" ({100 * count.covered / size:.0f} %)" if self.holes_known else ""
        orange, grey = " (orange)" if told.any() else "", " (left blank)" if count.unknown else ""
        covered = f"{count.covered:,} {'cell' if count.covered == 1 else 'cells'}"
        holes = f"{count.holes:,} {'hole' if count.holes == 1 else 'holes'}"
        measured = ""
        if unmeasured.any():
            seen = int((self.known & ~self.holes & ~unmeasured).sum())
            measured = f", {seen:,} of them {self.evidence} and {count.covered - seen:,} extrapolated"
        elif not self.holes_known:
            measured = f", all {self.evidence}"
        sure = self.deviation_db[self.known]
        error = (
            f" Median standard deviation of {self.deviation_of}: {np.median(sure):.1f} dB."
            if sure.size
            else ""
        )
        doubt = "Hatched: extrapolated, "
        doubt += "nobody is known to have measured" if self.holes_known else "no report names it"
        among = f"{int(told.sum())}" if self.holes_known else "as rows were privatized, none"
        of_these = f", {among} of them told from covered ground{orange}" if count.holes else ""
        return Scene(
            title="How strong the signal is",
            layers=(drawn, *others),
            reading=""
            if page
            else f"{covered} covered{share}{measured}; "
            f"{holes} (below {self.hole_dbm:g} dBm){of_these}; "
            f"{count.unknown:,} unknown{grey}.{error}",
            made=(
                ("Covered", f"{covered}{measured}"),
                ("Holes", f"{count.holes} cells below {self.hole_dbm:g} dBm{of_these}"),
                ("Unknown", f"{count.unknown} cells without a strength"),
                ("Extrapolated", f"{int(unmeasured.sum())} cells where no measurement is known"),
                *((("Measurements", f"{total} in the region"),) if total else ()),
            ),
            notes=(
                f"The deviation is that of {self.deviation_of}.",
                "A cell that nobody measured is unknown, or a model's estimate: that is no coverage hole.",
                *self.notes,
            ),
            left_out="cells without a strength",
            doubt=doubt if unmeasured.any() else "",
            hatched=unmeasured if unmeasured.any() else None,
            unsure=unsure if unsure.any() else None,
            dotted="Dotted: estimated to be a hole, not told from covered ground" if unsure.any() else "",
            hole=f"Orange: hole, below {self.hole_dbm:g} dBm" if told.any() else "",
        )

    def about(self) -> dict[str, Any]:
        """The metadata that are particular to a map of signal strength."""
        return {
            "kind": "signal",
            "unit": "dBm",
            "deviation_of": self.deviation_of,
            "hole_dbm": self.hole_dbm,
            "coverage": self.coverage()._asdict(),
        }

    def __repr__(self) -> str:
        return f"SignalMap({self.method}, {self.tiling.spec}, {self.tiling.size} cells)\n{self.guarantee!r}"
