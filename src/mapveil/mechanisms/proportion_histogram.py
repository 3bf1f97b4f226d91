"""The fraction of users of each place with a label: Algorithm 2 with a count for each label at every node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.inference.wilson import noisy_wilson, normal_quantile
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import INTERVAL_ALPHA, Measurement
from mapveil.maps.proportion_map import LabelMeasurement, ProportionMap
from mapveil.mechanisms.adaptive_histogram import AdaptiveHistogram, RoundState, Verdict
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Estimate, NoisySums, Setting
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil.trust.two_operators import TwoOperators
from mapveil_client.arrays import FloatArray
from mapveil_client.encodings import Encoding, LabelEncoding, NodeEncoding
from mapveil_client.errors import InputError
from mapveil_client.morton import PrefixTree

if TYPE_CHECKING:
    from mapveil.engines import UserSums
    from mapveil_client.contribution import Devices


_CHILDREN = 4
_SLACK = 1.5  # so that a child with somewhat less than its quarter is not given up at once


@dataclass(frozen=True, kw_only=True)
class ProportionHistogram(AdaptiveHistogram):
    r"""The adaptive histogram by label, divided as far as counts and intervals of proportions allow.

    A place counts at the coordinate :math:`k i + l` of its node i and its label l, so a device still moves the
    sums by 1 in L1, and the k sums of a node add up to its people: their noise has k times the variance, which the
    schedule and the thresholds of :class:`~mapveil.mechanisms.adaptive_histogram.AdaptiveHistogram` allow for. Beyond
    its rules

    .. math:: \text{split only where } w(\tilde y_i / 4) \le \omega, \qquad
              \text{collapse also where } w(\tilde y_i) > \tfrac{3}{2} \omega

    where: :math:`\tilde y_i` are the k noisy sums of node i, w is the width of the widest of their labels' intervals
    (:mod:`mapveil.inference.wilson`, 95 %) with the noise that the remaining budget would give, and :math:`\omega` is
    ``width``: a node is divided while a quarter of its people would still tell the proportion as closely, and given up
    when its own people are far from it. Run by: the server.

    Source: Bagdasaryan et al. (2022), appendix B, which asks for this and gives no rule.

    Parameters
    ----------
    epsilon, c, b, k, threshold, ...
        As for :class:`~mapveil.mechanisms.adaptive_histogram.AdaptiveHistogram`.
    labels : int
        Labels, numbered from 0: at least 2. A place whose label is none of them counts nowhere.
    width : float, optional
        The widest interval of a proportion that is of use, in (0, 1]; without, counts alone decide.

    Examples
    --------
    >>> import mapveil as mv
    >>> generator = np.random.default_rng(1)
    >>> lon, lat = generator.uniform(0, 1, 5000), generator.uniform(0, 1, 5000)
    >>> ill = generator.random(5000) < np.where(lon > 0.5, 0.6, 0.1)  # more in the east
    >>> points = mv.Points.from_arrays(np.arange(5000), lon, lat, label=ill)
    >>> tiling = mv.Quadtree(mv.Region.from_bbox(0, 0, 1, 1), depth=3)
    >>> found = ProportionHistogram(epsilon=1).release(points, tiling, rng=1)
    >>> west, east = found.proportion()[[0, -1]]
    >>> bool(west < 0.2), bool(east > 0.5)
    (True, True)
    """

    name: ClassVar[str] = "proportions"
    summary: ClassVar[str] = "what part of the people of each place has a label, with intervals"
    source: ClassVar[str] = "Bagdasaryan et al. 2022, appendix B"

    unanswerable: ClassVar[Mapping[str, str]] = {
        "central": "a curator's sums per cell carry no labels",
        "operators": "its clients divide sites by label for coverage alone",
    }

    trust: Curator | SecureAggregation | TwoOperators = dataclasses.field(default_factory=SecureAggregation)
    labels: int = 2
    width: float | None = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(2 <= self.labels <= 1 << 16, "labels", "a whole number from 2 to 65536")
        self._check(self.width is None or 0 < self.width <= 1, "width", "a number from 0 to 1, or none")

    def check_source(self, points: Points | Counts | UserSums | Devices) -> None:
        """Refuse data without labels."""
        super().check_source(points)
        if isinstance(points, Counts) or (isinstance(points, Points) and points.columns.label is None):
            raise InputError(f"{points.source} has no labels: proportions need a table with a label column")

    def shown(self, heat: DensityMap) -> ProportionMap:
        """The map of proportions."""
        return ProportionMap.of(heat)

    @property
    def _parts(self) -> int:
        return self.labels

    def _encoding(self, asked: PrefixTree) -> Encoding:
        return LabelEncoding(NodeEncoding(asked), self.labels)

    def _verdict(self, state: RoundState) -> Verdict:
        by_label = state.sums.values.reshape(-1, self.labels)
        people = state.sums._replace(values=by_label.sum(axis=1))
        verdict = super()._verdict(state._replace(sums=people))
        if self.width is None:
            return verdict
        noise = state.noise._replace(terms=state.noise.terms / self.labels).deviation(state.remaining)
        narrow = self._widest(by_label / _CHILDREN, noise) <= self.width
        useless = self._widest(by_label, noise) > _SLACK * self.width
        return Verdict(verdict.split & narrow, verdict.collapse | useless)

    def _widest(self, by_label: FloatArray, noise: float) -> FloatArray:
        """Width of each node's widest interval, shape (nodes,), if its sums were these and had so much noise."""
        z = normal_quantile(INTERVAL_ALPHA)
        total = by_label.sum(axis=1, keepdims=True)
        found = noisy_wilson(by_label, total, z, z * noise, self.labels)
        return np.asarray((found.upper - found.lower).max(axis=1))

    def _estimate(self, asked: PrefixTree, sums: NoisySums, setting: Setting) -> Estimate:
        by_label = sums.values.reshape(-1, self.labels)
        people = sums._replace(values=by_label.sum(axis=1), terms=self.labels * sums.terms)
        made = super()._estimate(asked, people, setting)
        return made._replace(measurements=tuple(_labelled(each, by_label) for each in made.measurements))


def _labelled(measured: Measurement, by_label: FloatArray) -> LabelMeasurement:
    return LabelMeasurement(
        measured.groups,
        measured.noisy,
        measured.epsilon,
        measured.unit,
        measured.terms,
        measured.sensitivity,
        by_label=by_label,
    )
