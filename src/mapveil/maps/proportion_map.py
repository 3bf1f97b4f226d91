"""Maps of the proportion of users with a label in each cell, such as a test's result."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from mapveil.inference.wilson import noisy_wilson, normal_quantile
from mapveil.maps.density_map import DensityMap, Detail
from mapveil.maps.measurement import INTERVAL_ALPHA, EstimatedUsers, Interval, Measurement
from mapveil.maps.scene import Layer, ScaleKind, Scene, Shading
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError, check_whole


@dataclass(frozen=True, eq=False)
class LabelMeasurement(Measurement):
    """Noisy sums by label over groups of cells; as a measurement, that of the sums over all labels.

    Parameters
    ----------
    groups, noisy, epsilon, unit, terms, sensitivity
        As for :class:`~mapveil.maps.measurement.Measurement`: ``noisy`` is the sum over the labels, ``terms`` that of
        one label times the number of labels.
    by_label : ndarray of float64, shape (groups, labels)
        Noisy sum of each label, users, their noise independent and alike.
    """

    by_label: FloatArray = field(kw_only=True)

    @property
    def labels(self) -> int:
        """Number of labels."""
        return int(self.by_label.shape[1])

    @property
    def of_one_label(self) -> Measurement:
        """A measurement with the noise of one label's sums: those of label 0."""
        terms = self.terms / self.labels
        return Measurement(self.groups, self.by_label[:, 0], self.epsilon, self.unit, terms, self.sensitivity)

    def of_label(self, label: int) -> Measurement:
        """The measurement of one label's sums."""
        return replace(self.of_one_label, noisy=self.by_label[:, label])

    def contrast_variance(self, users: FloatArray) -> FloatArray:
        """Variance of the difference of two labels' sums around that of the contributions, users^2, shape (groups,).

        Parameters
        ----------
        users : ndarray of float64, shape (groups,)
            Users in each group, from 0.
        """
        return np.full(users.shape, self.deviation() ** 2)

    def proportions(self) -> FloatArray:
        r"""Estimated proportion of each label, shape (groups, labels): they add up to 1.

        .. math:: \hat p_l = \max(0, \tilde y_l) \Big/ \sum_m \max(0, \tilde y_m)

        where: :math:`\tilde y_l` is the noisy sum of label l; NaN where none is above zero.
        """
        kept = np.maximum(self.by_label, 0.0)
        total = kept.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(kept, total, out=np.full(kept.shape, np.nan), where=total > 0))

    def bounds(self, alpha: float, label: int, *, sampling: bool = True) -> Interval:
        r"""Bounds on a label's proportion in each group, shape (groups,).

        :func:`mapveil.inference.wilson.noisy_wilson`, where the noise of one sum is taken to stray as far as
        :math:`\max(z s, t)`: z times its standard deviation s, or the two-sided quantile t of its own law, which
        has heavier tails than the normal one.
        """
        single = self.of_one_label
        z = normal_quantile(alpha)
        noise = max(z * single.deviation(), single.half_width(alpha))
        return noisy_wilson(self.by_label[:, label], self.noisy, z, noise, self.labels, sampling=sampling)


@dataclass(frozen=True, eq=False)
class EstimatedLabels(LabelMeasurement, EstimatedUsers):
    r"""Unbiased estimates of the users at each node by label, from randomized reports of a node and a label.

    A user's label is drawn with a probability that tells a value between the two (a mean of which the sums are wanted),
    so that the difference of two labels' sums has the variance

    .. math:: n v_0 + s\, k N_v + N_v / k

    where: n is ``reports``, :math:`v_0` the variance of a report's term at a node where nobody is, s is ``slope``, k is
    ``reports_each``, :math:`N_v` the users at node v, and the last term bounds that of the labels' draws.

    Parameters
    ----------
    groups, noisy, epsilon, unit, by_label
        As for :class:`LabelMeasurement`.
    reports, variance, step, slope, independent
        As for :class:`~mapveil.maps.measurement.EstimatedUsers`, of sums over the labels.
    reports_each : int
        Reports of a user.
    """

    reports_each: int = field(default=1, kw_only=True)

    def contrast_variance(self, users: FloatArray) -> FloatArray:
        """See :meth:`LabelMeasurement.contrast_variance`."""
        empty = self.reports * (self.variance - self.slope)
        return np.asarray(empty + users * (self.slope * self.reports_each + 1 / self.reports_each))


@dataclass(frozen=True, eq=False)
class ProportionMap(DensityMap):
    """A released map of people by label: a density map of everybody, and the proportion of each label.

    Made by :class:`mapveil.mechanisms.proportion_histogram.ProportionHistogram`. Its ``values`` are users of all
    labels. A proportion is that of the group of cells it was measured in: cells of one group show the same.

    Parameters
    ----------
    values, tiling, guarantee, method, parameters, measurements, notes, outside, rounds, version
        As for :class:`~mapveil.maps.density_map.DensityMap`; one measurement is a :class:`LabelMeasurement`.

    Raises
    ------
    ParameterError
        There is no measurement by label, or more than one.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        count = sum(isinstance(each, LabelMeasurement) for each in self.measurements)
        if count != 1:
            raise ParameterError(f"a map of proportions must have one measurement by label, got {count}")

    @classmethod
    def of(cls, heat: DensityMap) -> ProportionMap:
        """The same map, when one of its measurements is by label."""
        return cls(**{item.name: getattr(heat, item.name) for item in fields(DensityMap)})

    @property
    def measured(self) -> LabelMeasurement:
        """The noisy sums by label."""
        return next(each for each in self.measurements if isinstance(each, LabelMeasurement))

    @property
    def labels(self) -> int:
        """Number of labels; they are numbered from 0."""
        return self.measured.labels

    def proportion(self, label: int = 1) -> FloatArray:
        """Estimated part of the people with a label, shape (cells,); NaN where the map expects nobody."""
        check_whole(label, "label", 0, self.labels - 1)
        found = self._of_cells(self.measured.proportions()[:, label])
        return np.where(self.values > 0, found, np.nan)

    def proportion_interval(
        self, alpha: float = INTERVAL_ALPHA, label: int = 1, *, sampling: bool = True
    ) -> Interval:
        """Bounds that hold for the proportion of each cell's group with probability about 1 - alpha.

        Wilson's interval widened for the noise of numerator and denominator (:mod:`mapveil.inference.wilson`); all of
        [0, 1] where nothing is known. The bounds are pointwise, and take the groups as given, although earlier rounds
        chose them. Run by: anybody who holds the map; costs no privacy.

        Parameters
        ----------
        alpha : float
            Probability that one group's bounds fail, in (0, 1).
        label : int
            Label, from 0.
        sampling : bool
            Whether the interval is about the population these users were drawn from, such as a prevalence; without, it
            is about the counted users, and only the noise of privacy is in the interval.

        Raises
        ------
        ParameterError
            ``alpha`` is outside (0, 1), or there is no such label.
        """
        check_whole(label, "label", 0, self.labels - 1)
        found = self.measured.bounds(alpha, label, sampling=sampling)
        return Interval(self._of_cells(found.lower, 0.0), self._of_cells(found.upper, 1.0))

    def layers(self) -> tuple[Layer, ...]:
        """Proportion and bounds of label 1, or of every label where there are more than two, for the exports."""
        coverage, shading = f"{100 * (1 - INTERVAL_ALPHA):g} % interval", Shading("linear")
        made: list[Layer] = []
        for label in (1,) if self.labels == 2 else range(self.labels):
            name, title = f"proportion_{label}", f"proportion of label {label}"
            lower, upper = self.proportion_interval(label=label)
            made += [
                Layer(name, f"{title}, estimate", "1", self.proportion(label), shading),
                Layer(f"{name}_lower", f"{title}, lower bound of the {coverage}", "1", lower, shading),
                Layer(f"{name}_upper", f"{title}, upper bound of the {coverage}", "1", upper, shading),
            ]
        return tuple(made)

    def scene(
        self,
        *,
        page: bool = False,
        scale: ScaleKind | None = None,
        detail: Detail = "supported",
        label: int = 1,
    ) -> Scene:
        """The proportion of ``label``, on a linear scale by default; a page shows the density first.

        With ``detail="supported"`` proportions are drawn where the people are told from zero only.
        """
        scene = super().scene(page=page, scale=scale if page else None, detail=detail)
        if page:
            return scene
        unit, shading = f"proportion of label {label}", Shading(scale or "linear")
        proportion = self.proportion(label)
        # Measured as one group, the map is its own block.
        if scene.blocks is not None and self.measured.noisy.size > 1:
            proportion = np.where(scene.blocks.of_cell >= 0, proportion, np.nan)
        shown = Layer(f"proportion_{label}", unit, unit, proportion, shading)
        return scene._replace(title=f"Proportion of people with label {label}", layers=(shown,), main=0)

    def about(self) -> dict[str, Any]:
        """The metadata that are particular to a map of proportions."""
        interval = {"alpha": INTERVAL_ALPHA, "of": "the proportion among those the people were drawn from"}
        return {**super().about(), "labels": self.labels, "proportion_interval": interval}

    def _of_cells(self, found: FloatArray, outside: float = np.nan) -> FloatArray:
        """Each cell's part of a number per group."""
        groups = self.measured.groups
        return np.append(found, outside)[np.where(groups >= 0, groups, found.size)]

    def __repr__(self) -> str:
        return f"ProportionMap({self.method}, {self.tiling.spec}, {self.labels} labels)\n{self.guarantee!r}"
