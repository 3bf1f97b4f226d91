r"""Distances between an estimated map and the true one: every metric by its formula, in one table.

Throughout, :math:`t` and :math:`e` are the values of ``truth`` and ``estimate`` in their :math:`n` cells, :math:`p` and
:math:`q` the same normalised to sum 1. Run by: the evaluator, who holds the true map.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from mapveil.metrics.distribution import MapLike, distribution_pair, value_pair
from mapveil.metrics.emd_bounds import emd_within
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check

EPSILON = 2.0**-52
"""Term inside the logarithm of the KL divergence, as in the saliency literature."""


class Metric(NamedTuple):
    """A row of the table."""

    name: str
    function: Callable[[MapLike, MapLike], float]
    unit: str
    higher_is_better: bool = False  # whether it grows as the maps become alike

    def __call__(self, truth: MapLike, estimate: MapLike) -> float:
        """The metric between two maps."""
        return self.function(truth, estimate)


def mse(truth: MapLike, estimate: MapLike) -> float:
    r"""Mean squared error, :math:`\frac1n \sum_i (t_i - e_i)^2`; give it normalised maps to compare distributions."""
    t, e = value_pair(truth, estimate)
    return float(np.mean((t - e) ** 2))


def l1(truth: MapLike, estimate: MapLike) -> float:
    r"""Sum of absolute errors, :math:`\sum_i |t_i - e_i|`."""
    t, e = value_pair(truth, estimate)
    return float(np.abs(t - e).sum())


def l2(truth: MapLike, estimate: MapLike) -> float:
    r"""Euclidean norm of the errors, :math:`(\sum_i (t_i - e_i)^2)^{1/2}`."""
    t, e = value_pair(truth, estimate)
    return float(np.linalg.norm((t - e).ravel()))


def kl(truth: MapLike, estimate: MapLike) -> float:
    r"""Kullback-Leibler divergence of the estimate from the truth, nats, regularised as for saliency maps.

    .. math:: \sum_i p_i \ln\left(\frac{p_i}{q_i + \varepsilon} + \varepsilon\right), \qquad
        \varepsilon = 2^{-52}

    An empty cell of the estimate under mass of the truth costs about 36 nats times that mass, not infinity.
    Identical maps give 0 up to :math:`n \varepsilon`. Source: Bylinskii et al. (2019), as used by Ghazi et al.
    (2023).
    """
    p, q = distribution_pair(truth, estimate)
    return float((p * np.log(p / (q + EPSILON) + EPSILON)).sum())


def jensen_shannon(truth: MapLike, estimate: MapLike) -> float:
    r"""Jensen-Shannon divergence, nats, from 0 (alike) to :math:`\ln 2` (disjoint); symmetric.

    .. math:: \tfrac12 \sum_i p_i \ln\frac{p_i}{m_i} + \tfrac12 \sum_i q_i \ln\frac{q_i}{m_i},
        \qquad m = \tfrac12 (p + q), \quad 0 \ln 0 = 0
    """
    p, q = distribution_pair(truth, estimate)
    middle = (p + q) / 2
    total = 0.0
    for part in (p, q):
        some = part > 0
        total += float((part[some] * np.log(part[some] / middle[some])).sum()) / 2
    return max(total, 0.0)


def similarity(truth: MapLike, estimate: MapLike) -> float:
    r"""Common mass, from 0 (disjoint) to 1 (alike): :math:`\sum_i \min(p_i, q_i)`.

    Source: Bylinskii et al. (2019).
    """
    p, q = distribution_pair(truth, estimate)
    return float(np.minimum(p, q).sum())


def top_ten(truth: MapLike, estimate: MapLike) -> float:
    r"""The mass of the ten fullest cells that the estimate finds.

    .. math:: \sum_{i \in T} \min(p_i, q_i) \Big/ \sum_{i \in T} p_i

    where: T are the ten cells of largest :math:`p_i`, the first of equal ones. 1 where the estimate puts at least as
    much into each of them as the truth.
    """
    p, q = (values.ravel() for values in distribution_pair(truth, estimate))
    fullest = np.argsort(-p, kind="stable")[:10]
    return float(np.minimum(p, q)[fullest].sum() / p[fullest].sum())


def density_mse(truth: MapLike, estimate: MapLike) -> float:
    r"""Mean squared error of densities that sum to one, :math:`\frac1n \sum_i (p_i - q_i)^2`.

    Source: Bagdasaryan et al. (2022), section 6.
    """
    return mse(*distribution_pair(truth, estimate))


def pearson(truth: MapLike, estimate: MapLike) -> float:
    r"""Linear correlation of the values, from -1 to 1.

    .. math:: \frac{\sum_i (t_i - \bar t)(e_i - \bar e)}
              {\sqrt{\sum_i (t_i - \bar t)^2 \sum_i (e_i - \bar e)^2}}

    Where a map is constant (to 1e-12 of its largest value) this is undefined: it is 1 if both are, else 0.
    """
    return _correlation(*value_pair(truth, estimate))


def spearman(truth: MapLike, estimate: MapLike) -> float:
    """Rank correlation: :func:`pearson` of the values' ranks, equal values sharing their mean rank."""
    from scipy.stats import rankdata

    t, e = value_pair(truth, estimate)
    return _correlation(np.asarray(rankdata(t), np.float64), np.asarray(rankdata(e), np.float64))


def mape(truth: MapLike, estimate: MapLike) -> float:
    r"""Mean absolute percentage error over the cells that are not empty in truth, as a ratio (1 is 100 %).

    .. math:: \frac{1}{|\{i : t_i \ne 0\}|} \sum_{i : t_i \ne 0} \frac{|t_i - e_i|}{|t_i|}

    A truth without any user has no such cell: 0 if the estimate is empty too, else infinity.
    """
    t, e = value_pair(truth, estimate)
    some = t != 0
    if not some.any():
        return 0.0 if not e.any() else float("inf")
    return float(np.mean(np.abs((t[some] - e[some]) / t[some])))


def floored_mape(truth: MapLike, estimate: MapLike) -> float:
    r"""Mean absolute percentage error over all cells: an empty cell's is of the smallest value of the truth.

    .. math:: \frac{1}{n} \sum_i \frac{|t_i - e_i|}{d_i}, \qquad
        d_i = |t_i| \text{ if } t_i \ne 0 \text{ else } \min_{j : t_j \ne 0} |t_j|

    A truth without any user has no smallest value: 0 if the estimate is empty too, else infinity.
    Source: Bagdasaryan et al. (2022), appendix A.1, after Tabataba et al. (2017).
    """
    t, e = value_pair(truth, estimate)
    size = np.abs(t)
    if not size.any():
        return 0.0 if not e.any() else float("inf")
    return float(np.mean(np.abs(t - e) / np.where(size > 0, size, size[size > 0].min())))


def smape(truth: MapLike, estimate: MapLike) -> float:
    r"""Symmetric mean absolute percentage error, a ratio from 0 to 2; two empty maps give 0.

    .. math:: \frac{1}{|S|} \sum_{i \in S} \frac{2 |t_i - e_i|}{|t_i| + |e_i|},
        \qquad S = \{i : t_i \ne 0 \text{ or } e_i \ne 0\}
    """
    t, e = value_pair(truth, estimate)
    some = (t != 0) | (e != 0)
    if not some.any():
        return 0.0
    t, e = t[some], e[some]
    return float(np.mean(2 * np.abs(t - e) / (np.abs(t) + np.abs(e))))


def maape(truth: MapLike, estimate: MapLike) -> float:
    r"""Mean arctangent absolute percentage error over all cells, radians from 0 to :math:`\pi / 2`.

    .. math:: \frac{1}{n} \sum_i \arctan\frac{|t_i - e_i|}{|t_i|}

    A cell that is empty in truth counts 0 if it is so in the estimate, else :math:`\pi / 2`.
    Source: Kim and Kim (2016).
    """
    t, e = value_pair(truth, estimate)
    return float(np.mean(np.arctan2(np.abs(t - e), np.abs(t))))


METRICS: dict[str, Metric] = {
    row.name: row
    for row in (
        Metric("mse", mse, "users²"),
        Metric("l1", l1, "users"),
        Metric("l2", l2, "users"),
        Metric("kl", kl, "nats"),
        Metric("jensen_shannon", jensen_shannon, "nats"),
        Metric("similarity", similarity, "share", higher_is_better=True),
        Metric("top_ten", top_ten, "share", higher_is_better=True),
        Metric("density_mse", density_mse, ""),
        Metric("pearson", pearson, "", higher_is_better=True),
        Metric("spearman", spearman, "", higher_is_better=True),
        Metric("mape", mape, "ratio"),
        Metric("floored_mape", floored_mape, "ratio"),
        Metric("smape", smape, "ratio"),
        Metric("maape", maape, "radians"),
        Metric("emd", emd_within, "region widths, city-block"),
    )
}
"""Every metric by name. ``emd`` is :func:`mapveil.metrics.emd_bounds.emd_within`, certified to 1e-4 of itself;
the exact one is :func:`mapveil.metrics.emd.emd`."""


def compare(truth: MapLike, estimate: MapLike, metrics: Iterable[str] | None = None) -> dict[str, float]:
    """Several metrics between two maps over the same cells.

    Run by: the evaluator, who holds the true map; nothing here is private.

    Parameters
    ----------
    truth, estimate : DensityMap or array_like
        The maps; arrays of one shape, of two dimensions for ``emd``.
    metrics : iterable of str, optional
        Names in :data:`METRICS`; all by default.

    Raises
    ------
    ParameterError
        A name is not in the table, or the maps cannot be compared.

    Examples
    --------
    >>> compare([[3, 1], [0, 0]], [[1, 3], [0, 0]], ["similarity", "l1"])
    {'similarity': 0.5, 'l1': 4.0}
    """
    names = tuple(METRICS) if metrics is None else tuple(metrics)
    for name in names:
        check(name in METRICS, "the metric", f"one of {', '.join(METRICS)}", name)
    return {name: METRICS[name](truth, estimate) for name in names}


def _correlation(t: FloatArray, e: FloatArray) -> float:
    centred, constant = [], []
    for values in (t.ravel(), e.ravel()):
        largest = np.abs(values).max()
        scaled = values / largest if largest > 0 else values
        spread = scaled - scaled.mean()
        centred.append(spread)
        constant.append(bool(np.abs(spread).max() <= 1e-12))
    if any(constant):
        return 1.0 if all(constant) else 0.0
    a, b = centred
    return float(np.clip((a @ b) / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))
