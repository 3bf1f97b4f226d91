"""Kriging: a Gaussian process over places, on block averages, with an error that the rows of one trace share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from mapveil.analysis.signal_models.signal_model import (
    FittedSignalModel,
    LocalPlane,
    SignalModel,
    SignalPrediction,
)
from mapveil.geo.collection_roles import user_days
from mapveil.geo.measurements import RSS, Measurements
from mapveil.inference.normal_interval import NORMAL_95, few_groups_factor
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import check
from mapveil_client.randomness.random import Randomness, as_randomness

_LEARNT: Final = 400  # blocks that the lengths are learnt on: the likelihood costs their cube at every step
_BLOCK: Final = 4096
_ROWS: Final = 1024  # whose covariances with all places of some means are held at once
_FINEST_M: Final = 5.0
_ROUNDING: Final = 1 / 12  # dB^2: strengths are reported in whole dBm
_STEPS: Final = 40  # of the search for the likeliest field
_LEAST: Final = 1e-3  # dB^2, of a variance
_FOLDS: Final = 5  # of the traces, each judged by the others' map
_JUDGED: Final = 4000  # rows that the folds are judged at: a prediction costs the square of the blocks
_LEVEL: Final = 0.95  # of an interval


class FieldLaw(NamedTuple):
    """Covariance of a field and of what the rows of one trace have in common."""

    variance: float  # of the field, dB^2
    length_m: float
    trace_variance: float  # dB^2; 0 where all rows are of one trace
    trace_length_m: float


@dataclass(frozen=True, kw_only=True)
class Kriging(SignalModel):
    r"""A Gaussian process with Matérn kernels over places.

    .. math:: x_3(s) = m + f(s) + g_t(s) + e, \qquad
              \operatorname{cov}[f(s), f(s')] = v\, M_{3/2}(\lVert s - s' \rVert / \ell), \qquad
              \operatorname{cov}[g_t(s), g_t(s')] = w\, M_{3/2}(\lVert s - s' \rVert / \lambda)

    where: s and s' are places (metres), m is the field's mean, estimated by generalised least squares, f the field,
    :math:`g_t` the error that the rows of trace t share, independent between traces, and e the spread of measurements
    of one trace at one place. A trace is a user's day. The variances v, w and lengths :math:`\ell`, :math:`\lambda` are
    learnt by maximum likelihood, the variance of e is taken from within the blocks. Without :math:`g_t` a thousand
    rows of one drive would count as a thousand visits. Measurements are averaged over square blocks, the finest of at
    most ``blocks`` of them: that is kriging of block averages, exact for a field that is flat inside one.

    Parameters
    ----------
    blocks : int
        Most blocks: the fit costs their cube.

    Source: C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning" (2006), algorithm 2.1 and
    section 2.7. R. Dunn, L. Wasserman and A. Ramdas, "Distribution-free prediction sets for two-layer hierarchical
    models" (Journal of the American Statistical Association, 2023), for rows that are exchangeable by trace only.
    """

    name: ClassVar[str] = "kriging"

    blocks: int = 1500

    def __post_init__(self) -> None:
        check(self.blocks >= 10, "blocks", "at least 10", self.blocks)
        check(self.features == (), "features", "() (kriging looks at places alone)", self.features)

    def fit(self, measurements: Measurements, *, rng: Randomness | int | None = None) -> FittedKriging:
        """Average over blocks, learn the covariances, and solve."""
        self._check_rows(measurements, 3)
        rows, stream = measurements.rows, as_randomness(rng)
        plane = LocalPlane.around(rows)
        trace = user_days(measurements)
        places = plane.metres(rows)
        block = _blocks(places, self.blocks)
        averages = _averages(places, rows[:, RSS], trace, block)
        chosen = stream.generator().permutation(len(averages.mean))[:_LEARNT]
        several = len(np.unique(trace)) > 1
        law = _likeliest(averages.take(chosen), traces=several)
        fitted = FittedKriging(
            measurements.names,
            rows.mean(axis=0),
            plane,
            averages,
            law,
            _solved(averages, law),
            np.unique(np.floor(places / _FINEST_M), axis=0) * _FINEST_M + _FINEST_M / 2,
        )
        if not several:
            return fitted
        scores = _scores_by_trace(fitted, rows, trace, block, stream.child("folds").generator())
        return replace(fitted, widened=max(few_groups_factor(trace), scores / NORMAL_95))


class BlockAverages(NamedTuple):
    """Averages of measurements over blocks."""

    centres: FloatArray  # metres, shape (blocks, 2)
    mean: FloatArray  # dBm
    overlap: FloatArray  # shape (blocks, blocks): chance that a measurement of each is of the same trace
    noise: FloatArray  # dB^2, variance of the spread e in each average
    spread: float  # dB^2, variance of e

    def take(self, kept: IntArray) -> BlockAverages:
        """Some of the blocks."""
        return BlockAverages(
            self.centres[kept],
            self.mean[kept],
            self.overlap[np.ix_(kept, kept)],
            self.noise[kept],
            self.spread,
        )


class Solved(NamedTuple):
    """The process given the averages."""

    factor: FloatArray  # Cholesky factor of the averages' covariance, lower triangle
    ones: FloatArray  # covariance^-1 1
    weights: FloatArray  # covariance^-1 (mean - middle)
    middle: float  # m, dBm


class FieldMeans(NamedTuple):
    """Weighted means of the field, and what the averages tell of them."""

    places: FloatArray  # metres, shape (places, 2)
    weights: Any  # sparse, shape (means, places)
    across: FloatArray  # whitened covariance with the averages, shape (blocks, means)
    rest: FloatArray  # fraction of the middle that the averages do not tell, shape (means,)


@dataclass(frozen=True, eq=False, repr=False)
class FittedKriging(FittedSignalModel):
    """A fitted Gaussian process."""

    plane: LocalPlane
    averages: BlockAverages
    law: FieldLaw
    solved: Solved
    measured: FloatArray  # middles of the squares of 5 m that hold rows, metres, shape (squares, 2)
    widened: float = 1.0  # of an interval, as traces that the map was not made of ask for

    @property
    def length_m(self) -> float:
        """Correlation length of the field, metres."""
        return self.law.length_m

    @property
    def row_variance(self) -> float:
        """Variance of one measurement of a new trace around the field, dB^2."""
        return self.law.trace_variance + self.averages.spread

    def interval_factor(self) -> float:
        """The factor that held-out traces ask for; 1 where all rows are of one."""
        return self.widened

    def predict(self, rows: FloatArray) -> SignalPrediction:
        """Mean of the field, and the deviation of one measurement of a new trace: field, trace and spread."""
        places = self.plane.metres(rows)
        mean, variance = np.empty(len(rows)), np.empty(len(rows))
        for at in range(0, len(rows), _BLOCK):
            part = slice(at, at + _BLOCK)
            mean[part], across, rest = self._known(places[part])
            total = (
                self.law.variance - np.square(across).sum(axis=0) + np.square(rest) / self.solved.ones.sum()
            )
            variance[part] = np.maximum(total, 0.0)
        return SignalPrediction(mean, np.sqrt(variance + self.row_variance))

    def mean_dbm(self, rows: FloatArray) -> FloatArray:
        """Mean of the field alone, at a thousandth of the cost."""
        places = self.plane.metres(rows)
        parts = [
            self._covariance(places[at : at + _BLOCK]) @ self.solved.weights
            for at in range(0, len(rows), _BLOCK)
        ]
        return np.asarray(np.concatenate(parts) + self.solved.middle)

    def means(self, rows: FloatArray, weights: Any) -> FieldMeans:
        """Weighted means of the field over places, for :meth:`covariance`.

        Parameters
        ----------
        rows : ndarray of float64, shape (places, columns)
            Rows at the places.
        weights : scipy.sparse.csr_matrix, shape (means, places)
            Weight of each place in each mean.
        """
        places = self.plane.metres(rows)
        _, across, rest = self._known(places)
        return FieldMeans(places, weights, across @ weights.T, weights @ rest)

    def covariance(self, rows: FloatArray, means: FieldMeans) -> FloatArray:
        """Covariance of the field and of its means, given the measurements, dB^2, shape (rows, means)."""
        places = self.plane.metres(rows)
        found = np.empty((len(rows), len(means.rest)))
        for at in range(0, len(rows), _ROWS):
            part = slice(at, at + _ROWS)
            _, across, rest = self._known(places[part])
            prior = self.law.variance * matern(places[part], means.places, self.law.length_m)
            found[part] = prior @ means.weights.T - across.T @ means.across
            found[part] += np.outer(rest, means.rest) / self.solved.ones.sum()
        return found

    def _covariance(self, places: FloatArray) -> FloatArray:
        return self.law.variance * matern(places, self.averages.centres, self.law.length_m)

    def _known(self, places: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, whitened covariance with the averages, and the share of the middle that they do not tell."""
        from scipy.linalg import solve_triangular

        cross = self._covariance(places)
        across = solve_triangular(self.solved.factor, cross.T, lower=True)
        return cross @ self.solved.weights + self.solved.middle, across, 1 - cross @ self.solved.ones


def matern(places: FloatArray, others: FloatArray, length_m: float) -> FloatArray:
    r"""Matérn correlation of smoothness 3/2, shape (places, others).

    .. math:: M_{3/2}(r) = (1 + \sqrt 3\, r)\, e^{-\sqrt 3\, r}

    where: r is the distance of ``places`` and ``others`` (metres) in units of ``length_m``.
    """
    from scipy.spatial.distance import cdist

    return _matern(cdist(places, others), length_m)


def _matern(apart: FloatArray, length_m: float) -> FloatArray:
    scaled = apart * (np.sqrt(3) / length_m)
    return np.asarray((1 + scaled) * np.exp(-scaled))


def _slope(apart: FloatArray, length_m: float) -> FloatArray:
    """Derivative of :func:`matern` by the logarithm of the length."""
    scaled = apart * (np.sqrt(3) / length_m)
    return np.asarray(np.square(scaled) * np.exp(-scaled))


def _scores_by_trace(
    fitted: FittedKriging, rows: FloatArray, trace: IntArray, block: IntArray, draw: np.random.Generator
) -> float:
    """95 % quantile of errors in deviations, of rows of traces that the process was not given; each trace the same."""
    traces, trace = np.unique(trace, return_inverse=True)
    fold = draw.permutation(len(traces))[trace] % _FOLDS
    judged = np.sort(draw.permutation(len(rows))[:_JUDGED])
    places, scores = fitted.plane.metres(rows), np.empty(len(rows))
    for each in np.unique(fold[judged]):
        kept, asked = fold != each, judged[fold[judged] == each]
        averages = _averages(
            places[kept], rows[kept, RSS], trace[kept], np.unique(block[kept], return_inverse=True)[1]
        )
        without = replace(fitted, averages=averages, solved=_solved(averages, fitted.law))
        found = without.predict(rows[asked])
        scores[asked] = np.abs(rows[asked, RSS] - found.mean_dbm) / found.deviation_db
    weight = 1 / np.bincount(trace[judged], minlength=len(traces))[trace[judged]]
    order = np.argsort(scores[judged])
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(scores[judged][order][np.searchsorted(reached, _LEVEL)])


def _averages(places: FloatArray, strength: FloatArray, trace: IntArray, block: IntArray) -> BlockAverages:
    from scipy.sparse import csr_matrix

    counts = np.bincount(block).astype(np.float64)
    centres = np.stack([np.bincount(block, each) / counts for each in places.T], axis=1)
    mean = np.bincount(block, strength) / counts
    pairs, visit = np.unique(np.column_stack([block, trace]), axis=0, return_inverse=True)
    visit = visit.ravel()
    visits = np.bincount(visit).astype(np.float64)
    own = np.bincount(visit, strength) / visits
    inside = np.square(strength - own[visit]).sum() / max(len(strength) - len(visits), 1)
    spread = max(float(inside), _ROUNDING)
    share: Any = csr_matrix((visits / counts[pairs[:, 0]], (pairs[:, 0], pairs[:, 1])))
    return BlockAverages(centres, mean, (share @ share.T).toarray(), spread / counts, spread)


def _solved(averages: BlockAverages, law: FieldLaw) -> Solved:
    from scipy.linalg import cho_solve, cholesky

    kernel = law.variance * matern(averages.centres, averages.centres, law.length_m)
    if law.trace_variance > 0:
        shared = matern(averages.centres, averages.centres, law.trace_length_m)
        kernel += law.trace_variance * averages.overlap * shared
    kernel[np.diag_indices_from(kernel)] += averages.noise + _LEAST
    factor = cholesky(kernel, lower=True)
    ones = cho_solve((factor, True), np.ones(len(averages.mean)))
    middle = float(ones @ averages.mean / ones.sum())
    return Solved(factor, ones, cho_solve((factor, True), averages.mean - middle), middle)


def _likeliest(averages: BlockAverages, *, traces: bool) -> FieldLaw:
    r"""The covariances under which the averages are likeliest, a length at its bound is an answer.

    .. math:: L = \tfrac12 (x - m)^T K^{-1} (x - m) + \tfrac12 \ln \det K, \qquad
              \frac{\partial L}{\partial \theta} = \tfrac12 \operatorname{tr}\Big[(K^{-1} - \alpha \alpha^T)
              \frac{\partial K}{\partial \theta}\Big]

    where: x are the averages, m their generalised mean, K their covariance, :math:`\alpha = K^{-1} (x - m)` and
    :math:`\theta` the logarithms of variances and lengths. Source: equation 5.9 of Rasmussen and Williams (2006).
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize
    from scipy.spatial.distance import cdist

    apart = cdist(averages.centres, averages.centres)
    extent = float(max(np.ptp(averages.centres, axis=0).max(), 10 * _FINEST_M))
    variance = max(float(averages.mean.var()), 0.01)
    lengths, powers = tuple(np.log([_FINEST_M, 3 * extent])), tuple(np.log([_LEAST, 1e4]))
    masks = [None, averages.overlap] if traces else [None]

    def loss(at: FloatArray) -> tuple[float, FloatArray]:
        kernel, slopes = np.diag(averages.noise + _LEAST), []
        for mask, power, length in zip(masks, np.exp(at[::2]), np.exp(at[1::2]), strict=True):
            scale = power if mask is None else power * mask
            slopes += [scale * _matern(apart, length), scale * _slope(apart, length)]
            kernel += slopes[-2]
        factor = cho_factor(kernel, lower=True)
        inverse = cho_solve(factor, np.eye(len(kernel)))
        ones = inverse.sum(axis=0)
        off = averages.mean - ones @ averages.mean / ones.sum()
        weights = inverse @ off
        inverse -= np.outer(weights, weights)
        value = 0.5 * off @ weights + np.log(np.diag(factor[0])).sum()
        return float(value), np.array([0.5 * np.vdot(inverse, slope) for slope in slopes])

    start = [np.log(variance), np.log(extent / 20)] + [np.log(variance / 4), np.log(extent / 20)] * traces
    found = minimize(
        loss,
        np.array(start),
        jac=True,
        method="L-BFGS-B",
        bounds=[powers, lengths] * len(masks),
        options={"maxiter": _STEPS},
    )
    v, length, w, other = np.exp(found.x) if traces else (*np.exp(found.x), 0.0, 1.0)
    return FieldLaw(float(v), float(length), float(w), float(other))


def _blocks(places: FloatArray, most: int) -> IntArray:
    """The block of every place: squares, doubled in size until there are few enough."""
    side = _FINEST_M
    while True:
        cells = np.floor((places - places.min(axis=0)) / side).astype(np.int64)
        code = cells[:, 0] * (cells[:, 1].max() + 1) + cells[:, 1]
        kept, block = np.unique(code, return_inverse=True)
        if len(kept) <= most:
            return np.asarray(block, dtype=np.int64)
        side *= 2**0.25
