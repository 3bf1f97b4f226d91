"""Estimates of users from the randomized reports of each window of a series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from mapveil.maps.measurement import EstimatedUsers
from mapveil_client.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class WindowEstimates(EstimatedUsers):
    """Unbiased estimates over groups of cells in each window; as a measurement, that of their sums over the windows.

    Parameters
    ----------
    groups, noisy, epsilon, unit, terms, sensitivity, reports, variance, step, slope, independent
        As for :class:`~mapveil.maps.measurement.EstimatedUsers`, of all windows together.
    by_label : ndarray of float64, shape (groups, windows)
        Estimated users in each window.
    reports_of : ndarray of int64, shape (windows,)
        Number of reports about each window.
    laws : ndarray of float64, shape (3, windows)
        ``variance``, ``step`` and ``slope`` of each window; NaN where no report tells of these groups.
    """

    by_label: FloatArray = field(kw_only=True)
    reports_of: IntArray = field(kw_only=True)
    laws: FloatArray = field(kw_only=True)

    @classmethod
    def of_windows(cls, found: Sequence[EstimatedUsers | None]) -> WindowEstimates:
        """The estimates of the same groups in each window, at least one of them; None where there is none."""
        known = [each for each in found if each is not None]
        nobody = np.full(3, np.nan)
        laws = [nobody if each is None else (each.variance, each.step, each.slope) for each in found]
        reports = sum(each.reports for each in known)
        variance = sum(each.reports * each.variance for each in known)
        whole = {item.name: getattr(known[0], item.name) for item in fields(EstimatedUsers)}
        whole |= {
            "noisy": np.sum([each.noisy for each in known], axis=0),
            "reports": reports,
            "variance": variance / max(reports, 1),
            "step": max(each.step for each in known),
            "slope": max(each.slope for each in known),
        }
        empty = np.zeros(known[0].noisy.size)
        return cls(
            **whole,
            by_label=np.stack([empty if each is None else each.noisy for each in found], axis=1),
            reports_of=np.array([0 if each is None else each.reports for each in found]),
            laws=np.array(laws).T,
        )

    @property
    def labels(self) -> int:
        """Number of windows."""
        return int(self.by_label.shape[1])

    def of_label(self, label: int) -> EstimatedUsers | None:
        """The estimates of one window, where its reports tell of them."""
        if np.isnan(self.laws[0, label]):
            return None
        whole = {item.name: getattr(self, item.name) for item in fields(EstimatedUsers)}
        variance, step, slope = (float(each) for each in self.laws[:, label])
        whole |= {"noisy": self.by_label[:, label], "reports": int(self.reports_of[label])}
        return EstimatedUsers(**whole | {"variance": variance, "step": step, "slope": slope})
