"""Hierarchical encoding in count-min sketches: short vectors for many nodes, at the cost of noise."""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from mapveil.maps.measurement import Measurement
from mapveil.mechanisms.level_choice import LevelMechanism, LevelSums, show_levels
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Estimate, NoisySums, Plan, Query, Setting
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil.trust.two_operators import TwoOperators
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.level_encoding import SketchEncoding, level_members

SketchEstimator = Literal["best", "median", "mean", "min"]

_CHUNK = 1 << 16
_ABSENT = 1 << 12
_JOIN: dict[str, Callable[..., FloatArray]] = {"median": np.median, "mean": np.mean, "min": np.min}


class NodeEstimates(NamedTuple):
    """Estimates of nodes from a sketch."""

    values: FloatArray  # users, shape (nodes,)
    variance: float  # of the error of each, users squared: noise and collisions


def sketch_estimates(
    encoding: SketchEncoding, index: int, sums: FloatArray, nodes: IntArray, estimator: SketchEstimator
) -> NodeEstimates:
    r"""Estimate nodes of one level from its noisy sketch. Run by: the server.

    .. math:: \hat{n}_r(x) = \frac{w\, C_r[h_r(x)] - N}{w - 1}

    where: :math:`C_r` is row r, w the width and N the mean of the rows' totals, which takes off the part of strangers
    that falls on x on average. The rows' answers are joined by

    - ``median``: count-mean-min; a row in which x shares its coordinate with a crowded node hardly counts;
    - ``mean``: the same without that shelter;
    - ``min``: the least coordinate itself, the original sketch. Without noise it is never below the truth; with
      noise it is mostly far below.

    The sketch itself tells the error of noise and collisions together: it is asked for nodes that no location has
    (codes from :math:`4^l` on), where the truth is 0. The variance is the mean of their squares. ``best`` is the way
    with the least variance: the median where there is noise, the minimum where there is hardly any.

    Parameters
    ----------
    encoding : SketchEncoding
        The sketches.
    index : int
        Position of the level among those of ``encoding``.
    sums : ndarray of float64, shape (length,)
        The noisy sums of all coordinates.
    nodes : ndarray of int64, shape (nodes,)
        Morton codes at that level.
    estimator : str
        ``"best"``, ``"median"``, ``"mean"`` or ``"min"``.

    Source: Cormode, Muthukrishnan (2005) for ``min``; Deng, Rafiei (2007), section 4, for taking the mean of
    strangers off before the median.
    """
    absent = (1 << (2 * encoding.levels[index])) + np.arange(_ABSENT)

    def wrong(way: str) -> float:
        return float(np.square(_joined(encoding, index, sums, absent, way)).mean())

    way = min(_JOIN, key=wrong) if estimator == "best" else estimator
    return NodeEstimates(_joined(encoding, index, sums, nodes, way), wrong(way))


def _joined(encoding: SketchEncoding, index: int, sums: FloatArray, nodes: IntArray, way: str) -> FloatArray:
    """The rows' answers for each node, joined."""
    rows, width = encoding.rows, encoding.width
    answers = sums.reshape(-1, rows, width)[index]
    if way != "min":
        answers = (width * answers - answers.sum(axis=1).mean()) / (width - 1)
    values = np.empty(nodes.size)
    for start in range(0, nodes.size, _CHUNK):  # rows x chunk answers at a time
        part = nodes[start : start + _CHUNK]
        found = np.stack([answers[row, encoding.columns(index, row, part)] for row in range(rows)])
        values[start : start + _CHUNK] = _JOIN[way](found, axis=0)
    return values


@dataclass(frozen=True, kw_only=True)
class CountMinHistogram(LevelMechanism):
    r"""Ask for a count-min sketch of every level at once, and show each subregion at the level the noise allows.

    A place counts once in each of ``rows`` rows of each of the L levels 1 .. ``deepest``, so a device moves the vector
    by :math:`L\, r\, \gamma` units and the noise is as wide. With the paper's 2,000 x 20 the vector has 40,000
    coordinates for each level, 400,000 for ten.

    Deviation: rows are combined as the noise asks (:func:`sketch_estimates`); the paper does not say how. Deviation:
    the levels are chosen as by :class:`~mapveil.mechanisms.hierarchical_histogram.HierarchicalHistogram`. Deviation:
    the paper's Table 1 prints 40,000 for the vector, its text 400,000.

    Source: Bagdasaryan et al. (2022), section 5.1, and 6.2 for the numbers; Cormode, Muthukrishnan, "An Improved
    Data Stream Summary: The Count-Min Sketch and its Applications" (2005).

    Parameters
    ----------
    width : int
        Coordinates of a row, at least 2.
    rows : int
        Rows of a sketch (the paper's depth).
    estimator : str
        Combination of rows: ``"best"``, ``"median"``, ``"mean"`` or ``"min"``.
    key : str
        Public name of the hash functions.
    deepest, level, subregions
        See :class:`~mapveil.mechanisms.level_choice.LevelMechanism`.
    """

    name: ClassVar[str] = "count-min"
    summary: ClassVar[str] = "one round of count-min sketches of all levels of the quadtree"
    source: ClassVar[str] = "Bagdasaryan et al. 2022, section 5.1; Cormode and Muthukrishnan 2005"

    unanswerable: ClassVar[Mapping[str, str]] = {
        "central": "sketches shorten what clients send, at the cost of noise; a curator sends nothing"
    }

    trust: Curator | SecureAggregation | TwoOperators = dataclasses.field(default_factory=SecureAggregation)
    width: int = 2000
    rows: int = 20
    estimator: SketchEstimator = "best"
    key: str = "mapveil count-min 1"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(2 <= self.width <= 1 << 24, "width", "2 to 2**24")
        self._check(1 <= self.rows <= 1 << 10, "rows", "1 to 1024")
        self._check(
            len(self.key.encode()) <= hashlib.blake2b.MAX_KEY_SIZE, "key", "a name of at most 64 bytes"
        )

    def plan(self, setting: Setting) -> Plan:
        """One query; see :meth:`SumMechanism.plan`."""
        levels = self.levels(setting)
        encoding = SketchEncoding(setting.depth, levels, self.width, self.rows, self.key)
        sums = yield Query("sketches of every level", encoding, self.budget)
        held = level_members(setting.members)
        measured = []
        for index, level in enumerate(levels):
            nodes = np.flatnonzero(held[level])
            found = sketch_estimates(encoding, index, sums.values, nodes, self.estimator)
            filled = np.zeros(held[level].size)
            filled[nodes] = found.values
            measured.append(LevelSums(level, filled, found.variance))
        chosen = self.chosen(measured, setting)
        shown = ", ".join(str(level) for level in np.unique(chosen))
        return Estimate(
            show_levels(measured, setting.members, chosen),
            tuple(
                _first_row(encoding, index, sums, held[level], setting.depth)
                for index, level in enumerate(levels)
            ),
            (f"sketches of levels {levels[0]} to {levels[-1]} were asked for; level {shown} is shown",),
        )


def _first_row(
    encoding: SketchEncoding, index: int, sums: NoisySums, held: IntArray, depth: int
) -> Measurement:
    """One row of a sketch: sums over the groups of sites that share a coordinate."""
    column = encoding.columns(index, 0, np.arange(held.size))
    groups = np.where(held > 0, column, -1).repeat(1 << (2 * (depth - encoding.levels[index])))
    return sums.measurement(groups, sums.values.reshape(-1, encoding.rows, encoding.width)[index, 0])
