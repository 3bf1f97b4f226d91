"""The expected error of each method on synthetic cities, before anything is spent: reads no data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from mapveil.engines import UNIT, UserSums
from mapveil.evaluation.comparison import interval_of_mean, table_csv
from mapveil.evaluation.html_report import text_table
from mapveil.evaluation.sampled_people import population
from mapveil.evaluation.scoring import EMD_METRES, TITLES, Scoring, higher_is_better
from mapveil.evaluation.trials import Progress, exact_epsilons, material, parse_methods
from mapveil.geo.parse_tiling import parse_tiling
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.default_tiling import declared_tiling
from mapveil.metrics.misplaced import finest_cell, misplaced_fractions
from mapveil.random_features.fourier_kde import FourierKde
from mapveil_client.arrays import IntArray
from mapveil_client.cells import Lattice
from mapveil_client.epsilon import EpsilonLike
from mapveil_client.errors import InputError, ParameterError, PromiseError, check
from mapveil_client.randomness.random import Randomness

_METRICS: Final = ("l1", EMD_METRES, "kl", "similarity")
_ERROR: Final = "error per cell"
_SHARE: Final = "misplaced fraction"
_MOST_DRAWN: Final = 50_000
_MOST_USERS: Final = 1 << 34
_EMD_TOLERANCE: Final = 0.04


class Expectation(NamedTuple):
    """One metric of one method at one epsilon, over the synthetic cities."""

    method: str
    epsilon: float
    metric: str
    mean: float
    low: float  # of the 95 % confidence interval of the mean
    high: float


class Recommendation(NamedTuple):
    """The method to take at one epsilon, and the finest useful cell of its map."""

    epsilon: float
    method: str
    finest_cell_m: float | None  # side of the finest useful cell; None where even the coarsest is not
    rows: int  # of the map at that resolution, 0 where none is useful
    typical_error: float  # users per cell, root mean square over the cells of the tiling


@dataclass(frozen=True)
class Forecast:
    """The result of :func:`plan`: expectations, and a recommendation per epsilon. Based on no real data."""

    users: int  # declared
    tiling: str  # its spec
    region: str
    expectations: tuple[Expectation, ...]  # of every method, epsilon and metric
    recommendations: tuple[Recommendation, ...]  # one per epsilon
    random_features: str  # what a map from random Fourier features would be worth, in words

    def to_csv(self) -> str:
        """The expectations as CSV text, a header first."""
        return table_csv(Expectation._fields, self.expectations)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows: a line per epsilon and method, a column per metric."""
        metrics = list(dict.fromkeys(item.metric for item in self.expectations))
        found = {(item.epsilon, item.method, item.metric): item.mean for item in self.expectations}
        rows = [
            [f"{epsilon:g}", method, *(f"{found[epsilon, method, metric]:.3g}" for metric in metrics)]
            for epsilon, method in dict.fromkeys((item.epsilon, item.method) for item in self.expectations)
        ]
        return ["epsilon", "method", *(TITLES.get(metric, metric) for metric in metrics)], rows

    def text(self) -> str:
        """The table and the recommendations, for a terminal."""
        lines = [text_table(*self.table())]
        for item in self.recommendations:
            finest = (
                f"readable down to cells of about {_rounded(item.finest_cell_m)} m ({item.rows} rows)"
                if item.finest_cell_m
                else "no resolution is useful: more users or a larger epsilon are needed"
            )
            lines.append(f"epsilon {item.epsilon:g}: take {item.method}; {finest}")
        lines.append(f"without an epsilon, from devices: {self.random_features}")
        return "\n".join(lines)


def plan(
    users: int,
    where: Region | Tiling,
    epsilons: Sequence[EpsilonLike],
    methods: Sequence[str] = ("multiscale", "emd", "adaptive-grid", "privtree", "laplace"),
    *,
    trials: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Forecast:
    r"""Expected error per method for so many users in a region, from synthetic cities. Costs no privacy.

    In each trial a new city is invented and released by every method at every epsilon. Per cell, the error is

    .. math:: \left( \tfrac{1}{C} \sum_c (\hat{s}_c - s_c)^2 \right)^{1/2}

    where: :math:`s` and :math:`\hat{s}` are true and released users in the :math:`C` cells. A resolution is
    useful while at most ``MISPLACED`` of the people are in a wrong cell: half the L1 distance of the normalised
    maps summed over blocks of that size. The method recommended has the best mean rank over L1, earth mover's
    distance, KL and similarity; a city of more than 50,000 users is a smaller one whose users are multiplied.
    Run by: anybody, before a release.

    Parameters
    ----------
    users : int
        A public estimate of the number of users; declared to the mechanisms.
    where : Region or Tiling
        The cells; or a region, with the default cells of the largest epsilon. Georeferenced.
    epsilons : sequence of int, float, str, Decimal or Fraction
        The budgets.
    methods : sequence of str
        As for :func:`mapveil.evaluation.compare.compare`.
    trials : int
        Cities.
    seed : int
        The same seed gives the same forecast.
    progress : callable, optional
        Called with a step's name and the fraction done.

    Raises
    ------
    ParameterError
        A number, method or option is unknown or outside its range, or the region has no georeference.
    """
    check(1 <= users <= _MOST_USERS, "users", f"a whole number from 1 to {_MOST_USERS}", users)
    check(trials >= 1, "trials", "at least 1", trials)
    specs = parse_methods(methods)
    for spec in specs:
        if "prior" in dict(spec.options):
            raise ParameterError(
                f"methods must have no prior in a plan, got {spec.label}: its synthetic cities are not where the "
                "prior is about; mapveil compare measures a prior on data that you may look at"
            )
    budgets = exact_epsilons(epsilons)
    tiling = (
        parse_tiling(declared_tiling(users, max(budgets)).spec, where) if isinstance(where, Region) else where
    )
    if not tiling.region.georeferenced:
        raise ParameterError("the region must be georeferenced, such as a box in degrees")
    lattice = tiling.lattice()
    tell = progress or (lambda step, done: None)
    values: dict[tuple[float, str, str], list[float]] = {}
    for trial in range(trials):
        tell("plan", trial / trials)
        sums = _city_sums(users, tiling, seed, trial)
        truth = sums / UNIT
        score = Scoring(_METRICS, emd_tolerance=_EMD_TOLERANCE).against(truth, tiling)
        stream = Randomness(seed).child(f"plan/{trial}")
        for budget in budgets:
            for spec in specs:
                rng = stream.child(f"{spec.label}/{budget}")
                source = material(spec, UserSums(sums, tiling))
                released = spec.mechanism(budget, users).release(source, tiling, account=None, rng=rng).values
                found = score(released)
                found[_ERROR] = math.sqrt(float(np.mean((released - truth) ** 2)))
                for level, share in enumerate(misplaced_fractions(truth, released, lattice)):
                    found[f"{_SHARE} {level}"] = share
                for metric, value in found.items():
                    values.setdefault((float(budget), spec.label, metric), []).append(value)
    tell("plan", 1.0)
    labels = tuple(spec.label for spec in specs)
    return Forecast(
        users=users,
        tiling=tiling.spec,
        region=str(tiling.region),
        expectations=tuple(
            Expectation(method, epsilon, metric, *interval_of_mean(sample))
            for (epsilon, method, metric), sample in values.items()
            if not metric.startswith(_SHARE)
        ),
        recommendations=tuple(
            _recommend(float(budget), labels, values, tiling, lattice) for budget in budgets
        ),
        random_features=_of_features(users, tiling),
    )


def _of_features(users: int, tiling: Tiling) -> str:
    """The predicted signal to noise of ``fourier-kde`` with its defaults, and whom it is for."""
    try:
        return f"fourier-kde: {FourierKde().predicted_signal(tiling, users)[1]}"
    except (InputError, PromiseError) as error:
        return f"fourier-kde would not be answered: {error}"


def _city_sums(users: int, tiling: Tiling, seed: int, trial: int) -> IntArray:
    from mapveil.synthetic import city

    drawn = min(users, _MOST_DRAWN)
    people = population(city(drawn, seed + trial, region=tiling.region), tiling)
    sums = people.draw(None, np.random.default_rng(0)).sums().sums
    if users == drawn:
        return sums
    return np.asarray(np.rint(sums * (users / drawn)), dtype=np.int64)


def _recommend(
    epsilon: float,
    methods: Sequence[str],
    values: dict[tuple[float, str, str], list[float]],
    tiling: Tiling,
    lattice: Lattice,
) -> Recommendation:
    mean = {key: float(np.mean(sample)) for key, sample in values.items()}
    ranks = dict.fromkeys(methods, 0)
    for metric in _METRICS:
        order = sorted(
            methods, key=lambda name: mean[epsilon, name, metric], reverse=higher_is_better(metric)
        )
        for rank, name in enumerate(order):
            ranks[name] += rank
    best = min(methods, key=lambda name: ranks[name])
    levels = range(lattice.depth + 1)
    finest = finest_cell([mean[epsilon, best, f"{_SHARE} {level}"] for level in levels], tiling)
    return Recommendation(epsilon, best, *finest, mean[epsilon, best, _ERROR])


def _rounded(length: float) -> str:
    """Two significant digits, without an exponent."""
    digits = 1 - math.floor(math.log10(length))
    return f"{round(length, digits):.{max(digits, 0)}f}"
