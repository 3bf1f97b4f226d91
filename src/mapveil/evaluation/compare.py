"""Compare mechanisms on the same data, the same samples and the same metrics.

A comparison reads the true data without privacy: its result is not for release.
"""

from collections.abc import Sequence
from typing import Final

from mapveil.engines import UNIT
from mapveil.evaluation.comparison import Comparison, Row
from mapveil.evaluation.sampled_people import CountedUsers, Population, population
from mapveil.evaluation.scoring import EMD_EUCLIDEAN, EMD_METRES, Scoring
from mapveil.evaluation.trials import (
    Progress,
    Task,
    exact_epsilons,
    in_processes,
    parse_methods,
    run_task,
    trial_sample_stream,
)
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.maps.frame import raster_frame
from mapveil_client.epsilon import EpsilonLike
from mapveil_client.errors import ParameterError, check

DEFAULT_METRICS: Final = ("similarity", "pearson", "kl", "emd")
"""The four of Ghazi et al. (2023)."""

COUNTED_USERS: Final = "people, not visits: each user counts 1, divided over their cells"
COUNTED_UNITS: Final = (
    "people: each unit of the raster is one user (of a raster of visits, each is one visit)"
)

_AT_ONCE: Final = 32


def compare(
    source: Points | Counts | Population,
    tiling: Tiling | None,
    methods: Sequence[str],
    epsilons: Sequence[EpsilonLike],
    trials: int = 10,
    *,
    users: int | None = None,
    sigma_cells: float = 0.0,
    sigma_m: float | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    of_everybody: bool = False,
    uniform: bool = False,
    seed: int = 0,
    first_trial: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> Comparison:
    """Release the same data by several methods and measure every map against the true one. NOT private.

    The true map is the sum of the users' shares without noise: it counts people, not visits. In each trial every
    method gets the same sample at every epsilon, so that differences are paired. A mechanism with a parameter
    ``users`` (a declared public number) gets ``users`` where that is set; a local method is given the cell that each
    user visits most. Run by: the evaluator.

    Parameters
    ----------
    source : Points, Counts or Population
        The data; counts are a raster with each unit one user, a population was read before.
    tiling : Tiling or None
        The cells; None for counts and a population, which bring their own.
    methods : sequence of str
        ``name`` or ``name:option=value:option=value``.
    epsilons : sequence of int, float, str, Decimal or Fraction
        The budgets.
    trials : int
        Repetitions.
    users : int, optional
        Draw so many users without replacement in each trial; all of them by default.
    sigma_cells : float
        Smooth both maps by a Gaussian filter of this many cells before they are measured.
    sigma_m : float, optional
        The same in metres, instead.
    metrics : sequence of str
        See :func:`mapveil.evaluation.scoring.metric_names`.
    of_everybody : bool
        Whether the true map is that of all users and not of those drawn.
    uniform : bool
        Whether to measure the uniform baseline as well, which asks nobody.
    seed : int
        The same seed gives the same comparison.
    first_trial : int
        Number of the first repetition: an earlier comparison of as many goes on with it.
    workers : int
        Processes; with more than 1 a script must guard its entry.
    progress : callable, optional
        Called with a step's name and the fraction done.

    Raises
    ------
    ParameterError
        A method, option, epsilon, metric or number is unknown or outside its range.
    InputError
        The data cannot be used.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=200, seed=1)
    >>> found = compare(city, mv.Quadtree(city.region, 4), ["laplace"], [1], 2, metrics=["kl"])
    >>> len(found.rows)
    2
    """
    check(trials >= 1, "trials", "at least 1", trials)
    check(first_trial >= 0, "first_trial", "at least 0", first_trial)
    specs = parse_methods(methods)
    budgets = exact_epsilons(epsilons)
    for spec in specs:
        for budget in budgets:
            spec.mechanism(budget, users)  # a bad option is said before the table is read
    Scoring(tuple(metrics))
    people = population(source, tiling)
    if sigma_m is not None:
        sigma_cells = sigma_in_cells(people.tiling, sigma_m)
    scoring = Scoring(tuple(dict.fromkeys(metrics)), sigma_cells)
    truth = (
        people.draw(None, trial_sample_stream(seed, "compare", 0)).sums().sums / UNIT
        if of_everybody
        else None
    )
    rows: list[Row] = []
    # In batches, so that no more than a few samples are in memory at once.
    for done in range(0, trials, _AT_ONCE):
        batch = range(first_trial + done, first_trial + min(done + _AT_ONCE, trials))
        tasks = [
            Task("compare", trial, drawn.sums().sums, people.tiling, users, specs, budgets, (scoring,), seed,
                 people=drawn, truth=truth, uniform=uniform)
            for trial in batch
            for drawn in [people.draw(users, trial_sample_stream(seed, "compare", trial))]
        ]  # fmt: skip
        tell = _part(progress, done / trials, len(batch) / trials)
        for outcome in in_processes(run_task, tasks, workers=workers, progress=tell, step="compare"):
            rows += outcome.rows[0]
    return Comparison(
        rows=tuple(rows),
        title=f"Comparison of methods on {people.source}",
        settings={
            "source": people.source,
            "tiling": people.tiling.spec,
            "region": str(people.tiling.region),
            "counted": COUNTED_UNITS if isinstance(people, CountedUsers) else COUNTED_USERS,
            "users per trial": "all" if users is None else users,
            "true map": "of all users" if of_everybody else "of the users of the trial",
            "trials": trials,
            "heatmap sigma, cells": round(sigma_cells, 6),
            "metrics": ", ".join(metrics),
            "seed": seed,
            "distances": f"emd city-block in widths of the region, within {scoring.emd_tolerance / 2:.2g} of itself"
            + (f"; {EMD_METRES} in city-block metres" if EMD_METRES in metrics else "")
            + (f"; {EMD_EUCLIDEAN} in Euclidean metres" if EMD_EUCLIDEAN in metrics else ""),
        },
    )


def sigma_in_cells(tiling: Tiling, sigma_m: float) -> float:
    """A length in metres in cells of a raster: in units of the square root of the cells' mean area."""
    frame = raster_frame(tiling)
    if frame is None or not tiling.region.georeferenced:
        raise ParameterError(
            f"sigma in metres needs a raster with georeference, which {tiling.spec} is not; give it in cells"
        )
    side = (tiling.region.area_m2 / (frame.rows * frame.columns)) ** 0.5
    return sigma_m / float(side)


def _part(progress: Progress | None, start: float, length: float) -> Progress | None:
    if progress is None:
        return None
    return lambda step, done: progress(step, start + done * length)
