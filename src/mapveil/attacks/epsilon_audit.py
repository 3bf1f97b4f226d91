r"""An empirical lower bound on epsilon: does a mechanism keep what it claims?

If some event E of the output has :math:`\Pr[E \mid D] = p` and :math:`\Pr[E \mid D'] = p'` for neighbouring inputs
:math:`D, D'`, then no :math:`\epsilon < \ln(p / p')` can be true of the mechanism. Running it many times on both
bounds both probabilities, hence epsilon from below:

.. math:: \hat\epsilon = \ln \frac{L_\beta(k, n)}{U_\beta(k', n)}

where: k and k' of n runs on :math:`D` and :math:`D'` fell into E; :math:`L_\beta` and :math:`U_\beta` are the
one-sided Clopper-Pearson bounds of error :math:`\beta` = (1 - ``confidence``) / 2 each. The pair, the statistic and
the event are chosen on one half of the runs and judged on the other, so nothing is tested more than once.

A bound above the claim refutes it, up to the stated confidence. A bound below the claim proves nothing: it says
that this adversary, with these inputs and so many runs, found no fault.

Source: Jagielski, Ullman, Oprea, "Auditing Differentially Private Machine Learning" (2020), for the bound; Ding,
Wang, Wang, Zhang, Kifer, "Detecting Violations of Differential Privacy" (2018), for the choice of events.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.attacks.audited_runs import audited_devices, least_noise, report_likelihoods
from mapveil.engines import UNIT, UserSums
from mapveil.geo.tiling import Tiling
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.mechanisms.mechanism import AnyMechanism, Mechanism
from mapveil.mechanisms.private_fourier_kde import PrivateFourierKde
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Estimate, Execution
from mapveil.trust.queries import run as run_plan
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import ParameterError, check
from mapveil_client.randomness.random import Randomness, as_randomness

STATISTICS: Final = (
    "likelihood ratio of the noisy sums",
    "released value where the user is",
    "share of the map where the user is",
    "total of the map",
    "highest value of the map",
)
NO_EPSILON: Final = "{} claims no epsilon: it is not differential privacy, and this audit tests an epsilon"
_REPORT: Final = ("likelihood ratio of a report",)
_SHAPES: Final = 3  # how many of the commonest shapes an event may ask for
_THRESHOLDS: Final = 100
_FEWEST: Final = 100


class Neighbours(NamedTuple):
    """Exact sums that differ by one user: by one more, or by the cell of the only one."""

    name: str
    tiling: Tiling
    without: IntArray  # (tiling.size,), units of 1 / UNIT user
    with_one: IntArray  # the same and one user more; of a local mechanism, one user in another cell


class AuditReport(NamedTuple):
    """Result of an audit."""

    epsilon_lower: float  # the true epsilon is above this, at the stated confidence
    claimed: Fraction
    trials: int  # runs on each input
    statistic: str  # the event that told most
    neighbours: str  # the inputs it told apart
    confidence: float

    @property
    def holds(self) -> bool:
        """Whether the claim stands unrefuted."""
        return self.epsilon_lower <= self.claimed

    def __repr__(self) -> str:
        verdict = "no fault found" if self.holds else "REFUTED"
        return (
            f"Epsilon audit: {verdict}; claimed {float(self.claimed):.6g}, at least {self.epsilon_lower:.4g} "
            f"at {self.confidence:.4%} confidence\n"
            f"  inputs    {self.neighbours}, {self.trials} runs on each\n"
            f"  told by   {self.statistic}"
        )


class _Runs(NamedTuple):
    statistics: FloatArray  # (runs, statistics)
    shapes: IntArray  # (runs,)


class _Event(NamedTuple):
    statistic: int
    shape: int | None  # None: any
    threshold: float
    above: bool
    swapped: bool  # likelier without the user

    def holds(self, runs: _Runs) -> npt.NDArray[np.bool_]:
        """Whether the event happened, for each run."""
        column = runs.statistics[:, self.statistic]
        inside = column >= self.threshold if self.above else column <= self.threshold
        return inside if self.shape is None else inside & (runs.shapes == self.shape)

    def in_words(self, statistics: Sequence[str]) -> str:
        """The event for a person, of statistics of these names."""
        shape = "" if self.shape is None else f", with {self.shape} groups measured"
        side = "at least" if self.above else "at most"
        return f"{statistics[self.statistic]} {side} {self.threshold:.4g}{shape}"


def worst_neighbours(tiling: Tiling) -> tuple[Neighbours, ...]:
    """Pairs that strain the mechanisms of this package: where presence could show most.

    One user in an empty map; one more in a cell of a few, or of many, others (near the thresholds at which trees
    split and histograms cut); one user divided over the four corners beside a crowd.

    Parameters
    ----------
    tiling : Tiling
        Cells, few of them: an audit takes thousands of runs.
    """
    cell = tiling.size // 3
    pairs = []
    for crowd in (0, 2, 30):
        without = np.zeros(tiling.size, dtype=np.int64)
        without[cell] = crowd * UNIT
        name = f"one more beside {crowd} in one cell" if crowd else "one user in an empty map"
        pairs.append(Neighbours(name, tiling, without, _plus(without, np.array([cell]))))
    lattice = tiling.lattice()
    sides = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    corners = np.unique([np.argmin(down * lattice.row + across * lattice.col) for down, across in sides])
    without = np.zeros(tiling.size, dtype=np.int64)
    without[cell] = 5 * UNIT
    pairs.append(Neighbours("one user divided over the corners", tiling, without, _plus(without, corners)))
    return tuple(pairs)


def worst_replacements(tiling: Tiling) -> tuple[Neighbours, ...]:
    """Pairs that strain local mechanisms: one user in a cell or in another one, far from it and near it.

    Parameters
    ----------
    tiling : Tiling
        The cells, two or more.
    """
    users = np.eye(tiling.size, dtype=np.int64) * UNIT
    last = tiling.size - 1
    return tuple(
        Neighbours(f"one user in cell {cell} or in cell {other}", tiling, users[other], users[cell])
        for cell, other in dict.fromkeys([(0, last), (last, 0), (0, 1), (tiling.size // 3, last)])
        if cell != other
    )


def _plus(sums: IntArray, cells: IntArray) -> IntArray:
    more = sums.copy()
    more[cells] += UNIT // cells.size
    return more


def audit_epsilon(
    mechanism: AnyMechanism,
    neighbours: Sequence[Neighbours],
    *,
    claimed: EpsilonLike | None = None,
    trials: int = 20_000,
    confidence: float = 0.999,
    rng: Randomness | int | None = None,
) -> AuditReport:
    """Bound a mechanism's epsilon from below by running it on neighbouring inputs. Run by: an auditor.

    Half of the runs, shared among the pairs, choose the pair and the event; the other half, all on that pair,
    judge it. The formula is in the module's header.

    Parameters
    ----------
    mechanism : AnyMechanism
        The mechanism under audit: a curator's; one over secure sums, under the least noise its guarantee allows; or a
        local one, by single reports (:mod:`mapveil.attacks.audited_runs`).
    neighbours : sequence of Neighbours
        The pairs to try, such as those of :func:`worst_neighbours`, or of :func:`worst_replacements` where the
        mechanism is local.
    claimed : int, float, str, Decimal or Fraction, optional
        The epsilon under test; the mechanism's own if left out.
    trials : int
        Runs on each side.
    confidence : float
        Probability that a true claim is not refuted, in (0, 1).
    rng : Randomness, int or None
        The mechanism's source of bits.

    Raises
    ------
    ParameterError
        No pairs, a pair that does not differ by one user, too few trials, no such confidence, or a mechanism that
        claims no epsilon or whose noise no map shows.

    Examples
    --------
    >>> import mapveil as mv
    >>> from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
    >>> tiling = mv.Quadtree(mv.Region.from_bbox(0, 0, 1, 1), depth=1)
    >>> audit_epsilon(LaplaceHistogram(epsilon=1), worst_neighbours(tiling), trials=2000, rng=1).holds
    True
    """
    if not isinstance(mechanism, Mechanism):
        raise ParameterError(NO_EPSILON.format(mechanism.name))
    if isinstance(mechanism, PrivateFourierKde):
        raise ParameterError(
            f"{mechanism.name} claims epsilon {mechanism.budget} for each user, but this audit cannot test the claim: "
            "the noise is on sums of random Fourier features, which no cell of a map shows; "
            "tests/mechanisms/test_private_fourier_kde.py audits those sums"
        )
    _check(neighbours, isinstance(mechanism, LocalMechanism), trials, confidence)
    stream = as_randomness(rng)
    error = (1 - confidence) / 2
    share = trials // 2 // len(neighbours)
    candidates = []
    for pair in neighbours:
        with_one, without = (_run(mechanism, pair, side, share, stream) for side in (True, False))
        candidates.append((*_choose(with_one, without, error), pair))
    bound, event, chosen = max(candidates, key=lambda candidate: candidate[0])
    rest = trials - share * len(neighbours)
    present = int(event.holds(_run(mechanism, chosen, True, rest, stream)).sum())
    absent = int(event.holds(_run(mechanism, chosen, False, rest, stream)).sum())
    likely, rare = (absent, present) if event.swapped else (present, absent)
    bound = float(_log_ratio(np.array([likely]), np.array([rare]), rest, error)[0])
    return AuditReport(
        epsilon_lower=max(bound, 0.0),
        claimed=mechanism.budget if claimed is None else as_epsilon(claimed, "claimed"),
        trials=trials,
        statistic=event.in_words(_REPORT if isinstance(mechanism, LocalMechanism) else STATISTICS),
        neighbours=chosen.name,
        confidence=confidence,
    )


def _check(neighbours: Sequence[Neighbours], replaced: bool, trials: int, confidence: float) -> None:
    if not neighbours:
        raise ParameterError("neighbours is empty; expected at least one pair")
    for pair in neighbours:
        more = pair.with_one - pair.without
        if replaced:
            one = all(sums.max() == sums.sum() == UNIT for sums in (pair.with_one, pair.without))
            neighbouring = one and (pair.without >= 0).all() and (pair.with_one >= 0).all() and more.any()
        else:
            neighbouring = (more >= 0).all() and 0 < more.sum() <= UNIT
        if pair.without.shape != (pair.tiling.size,) or not neighbouring:
            wanted = "be one user in two different cells" if replaced else "differ by one user"
            raise ParameterError(f"the pair {pair.name!r} is not of neighbours: its sums must {wanted}")
    check(trials >= _FEWEST * len(neighbours), "trials", f"at least {_FEWEST} for each pair", trials)
    check(0 < confidence < 1, "confidence", "a number between 0 and 1", confidence)


def _run(mechanism: Mechanism, pair: Neighbours, present: bool, runs: int, rng: Randomness) -> _Runs:
    """Run the mechanism on one side of a pair, and keep what an adversary would look at."""
    if isinstance(mechanism, LocalMechanism):
        cell, other = (int(np.argmax(sums)) for sums in (pair.with_one, pair.without))
        ratios = report_likelihoods(mechanism, pair.tiling, cell, other, present, runs, rng)
        return _Runs(ratios[:, None], np.zeros(runs, dtype=np.int64))
    once = _once(mechanism, pair, present)
    made = _Runs(np.empty((runs, len(STATISTICS))), np.empty(runs, dtype=np.int64))
    for run in range(runs):
        estimate = once(rng)
        made.statistics[run] = _statistics(estimate, pair)
        made.shapes[run] = sum(measurement.noisy.size for measurement in estimate.measurements)
    return made


def _once(mechanism: Mechanism, pair: Neighbours, present: bool) -> Callable[[Randomness], Estimate]:
    """One run of a mechanism on one side of a pair."""
    if not isinstance(mechanism, SumMechanism):
        raise ParameterError(
            f"{mechanism.name} claims epsilon {mechanism.budget}, but this audit cannot run mechanisms of its kind"
        )
    curator = mechanism.trust
    if not isinstance(curator, Curator):
        user = pair.with_one - pair.without if present else None
        return least_noise(mechanism, pair.tiling, audited_devices(pair.tiling, pair.without, user))
    sums, raster = pair.with_one if present else pair.without, mechanism.raster(pair.tiling)

    def once(rng: Randomness) -> Estimate:
        answerer = curator.answerer(UserSums(sums, pair.tiling), pair.tiling, raster, Execution(rng))
        return raster.on_cells(run_plan(mechanism.plan(answerer.setting), answerer.answer))

    return once


def _statistics(estimate: Estimate, pair: Neighbours) -> tuple[float, ...]:
    """The scalars of one run, in the order of ``STATISTICS``."""
    ratio = 0.0
    for measurement in estimate.measurements:
        covered = measurement.groups >= 0
        groups, size = measurement.groups[covered], measurement.noisy.size
        without, with_one = (
            np.bincount(groups, sums[covered], size) / UNIT for sums in (pair.without, pair.with_one)
        )
        apart = np.abs(measurement.noisy - without) - np.abs(measurement.noisy - with_one)
        ratio += float(measurement.epsilon) * float(apart.sum())
    user = pair.with_one - pair.without
    here = float(estimate.values @ user) / float(user.sum())
    total = float(estimate.values.sum())
    return ratio, here, here / total if total else 0.0, total, float(estimate.values.max())


def _choose(present: _Runs, absent: _Runs, error: float) -> tuple[float, _Event]:
    """The event that tells most, and its bound on the runs it was chosen from."""
    runs = present.shapes.size
    shapes, times = np.unique(np.concatenate([present.shapes, absent.shapes]), return_counts=True)
    wanted: list[int | None] = [None]
    if shapes.size > 1:
        wanted += [int(shape) for shape in shapes[np.argsort(times)[::-1][:_SHAPES]]]
    best = (-np.inf, _Event(0, None, 0.0, True, False))
    for statistic in range(present.statistics.shape[1]):
        columns = present.statistics[:, statistic], absent.statistics[:, statistic]
        pooled = np.concatenate(columns)
        thresholds = np.unique(np.quantile(pooled, np.linspace(0, 1, _THRESHOLDS), method="nearest"))
        for shape in wanted:
            first, second = (
                np.sort(column if shape is None else column[made.shapes == shape])
                for column, made in zip(columns, (present, absent), strict=True)
            )
            for above in (True, False):
                k, other = (
                    values.size - np.searchsorted(values, thresholds, side="left")
                    if above
                    else np.searchsorted(values, thresholds, side="right")
                    for values in (first, second)
                )
                for swapped in (False, True):
                    likely, rare = (other, k) if swapped else (k, other)
                    bounds = _log_ratio(likely, rare, runs, error)
                    at = int(np.argmax(bounds))
                    if bounds[at] > best[0]:
                        event = _Event(statistic, shape, float(thresholds[at]), above, swapped)
                        best = (float(bounds[at]), event)
    return best


def _log_ratio(likely: IntArray, rare: IntArray, runs: int, error: float) -> FloatArray:
    """The logarithm of the lower bound of one probability over the upper bound of the other."""
    from scipy.special import betaincinv

    # Clopper-Pearson; both functions are undefined where the bound is 0 or 1 by definition.
    lower = np.where(likely > 0, betaincinv(np.maximum(likely, 1), runs - likely + 1, error), 0.0)
    upper = np.where(rare < runs, betaincinv(rare + 1, np.maximum(runs - rare, 1), 1 - error), 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(lower) - np.log(upper), dtype=np.float64)
