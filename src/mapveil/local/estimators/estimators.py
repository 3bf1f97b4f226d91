"""The estimators by name: from a tally to a distribution of the users over the sites."""

import functools
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.places import Places
from mapveil.inference.simplex import norm_clip, project_to_simplex
from mapveil.local.estimators.candidate_sets import check_candidate_sets, solve_candidate_sets
from mapveil.local.estimators.estimate_shrinkage import shrink_estimates
from mapveil.local.estimators.maximum_likelihood import maximise_likelihood
from mapveil.local.estimators.smoothed_likelihood import smooth_likelihood
from mapveil.local.estimators.split_trees import usual_concentration
from mapveil.local.randomizers.randomizer import Randomizer, SymbolRandomizer, Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError, check


class Estimated(NamedTuple):
    """A distribution, and notes for the readers of its map."""

    distribution: FloatArray  # shape (sites,), not negative, sums to 1
    notes: tuple[str, ...] = ()
    moved: float = 0.0  # fraction of the users that a prior moved, where one was given


def estimate_distribution(
    randomizer: Randomizer, tally: Tally, estimator: str, prior: FloatArray | None = None
) -> Estimated:
    """Estimate where the users are. Run by: the server; costs no privacy.

    Parameters
    ----------
    randomizer : Randomizer
        Randomizer of the reports.
    tally : Tally
        Counts of the reports; without any, the distribution is uniform, of no user.
    estimator : str
        One of :data:`ESTIMATORS`.
    prior : ndarray of float64, shape (sites,), optional
        A public distribution of the users, for an estimator of :data:`LEANING`.

    Raises
    ------
    ParameterError
        No such estimator, one that has no use for a prior, or one that this randomizer's reports do not permit.
    """
    check_estimator(estimator)
    check_prior(estimator, prior)
    if tally.counts.shape != (randomizer.symbols,):
        raise ParameterError(f"a tally must have {randomizer.symbols} counts, got {tally.counts.size}")
    if tally.reports == 0:
        return Estimated(
            np.full(randomizer.size, 1 / randomizer.size), ("nobody reported: the map is empty",)
        )
    return ESTIMATORS[estimator](randomizer, tally, prior)


def check_estimator(estimator: str) -> None:
    """Refuse a name that no estimator has."""
    check(estimator in ESTIMATORS, "estimator", f"one of {', '.join(ESTIMATORS)}", estimator)


def check_prior(estimator: str, prior: object) -> None:
    """Refuse a prior that the estimator has no use for."""
    check(
        prior is None or estimator in LEANING, "estimator", f"{' or '.join(LEANING)} with a prior", estimator
    )


def check_reports(estimator: str, randomizer: Randomizer) -> None:
    """Refuse a randomizer whose reports the estimator does not permit, before anybody reports.

    Raises
    ------
    ParameterError
        ``"em"`` with reports that are sets, or ``"candidate-sets"`` with reports that are not sites, or too many.
    """
    if estimator == "em":
        _of_symbols(randomizer)
    elif estimator == "candidate-sets":
        check_candidate_sets(randomizer)


def _of_symbols(randomizer: Randomizer) -> SymbolRandomizer:
    if not isinstance(randomizer, SymbolRandomizer):
        raise ParameterError(
            "the estimator 'em' needs reports of one symbol each, got sets of sites; "
            "use simplex, norm-clip, multiscale or smoothed-em"
        )
    return randomizer


def _likeliest(randomizer: Randomizer, tally: Tally, prior: FloatArray | None) -> Estimated:
    del prior
    made = maximise_likelihood(_of_symbols(randomizer), tally)
    note = () if made.converged else (f"the likelihood was still rising after {made.steps} steps",)
    return Estimated(made.distribution, note)


def _projected(randomizer: Randomizer, tally: Tally, prior: FloatArray | None) -> Estimated:
    del prior
    return Estimated(project_to_simplex(randomizer.invert(tally)))


def _clipped(randomizer: Randomizer, tally: Tally, prior: FloatArray | None) -> Estimated:
    del prior
    return Estimated(norm_clip(randomizer.invert(tally)))


def _shrunk(randomizer: Randomizer, tally: Tally, prior: FloatArray | None) -> Estimated:
    del prior
    unbiased = randomizer.invert(tally)
    covariance = randomizer.covariance(norm_clip(unbiased))
    domain = randomizer.domain
    usual = functools.partial(usual_concentration, domain) if isinstance(domain.tiling, Places) else None
    return Estimated(shrink_estimates(unbiased, covariance, tally.reports, domain.plane, usual))


def _smoothed(randomizer: Randomizer, tally: Tally, prior: FloatArray | None) -> Estimated:
    made = smooth_likelihood(randomizer, tally, prior)
    notes: tuple[str, ...] = ()
    if not made.converged:
        notes += (f"the smoothed likelihood had not settled after {made.steps} steps",)
    if not made.told:
        baseline, shown = (
            ("the prior", "the prior's, as far as they agree with it")
            if made.moved
            else ("a uniform map", "uniform")
        )
        # Blocks are tested against nobody: some may be shown of a uniform map.
        notes += (
            f"the reports do not tell this map from {baseline}: the estimate of each cell is {shown}; any block that "
            "is shown is told from an empty one only",
        )
    return Estimated(made.distribution, notes, made.moved)


def _by_candidates(randomizer: Randomizer, tally: Tally, prior: FloatArray | None) -> Estimated:
    del prior
    return Estimated(project_to_simplex(solve_candidate_sets(randomizer, tally)))


LEANING: Final = ("smoothed-em",)
"""Estimators that can lean on a prior."""

ESTIMATORS: Final[dict[str, Callable[[Randomizer, Tally, FloatArray | None], Estimated]]] = {
    "em": _likeliest,
    "simplex": _projected,
    "norm-clip": _clipped,
    "candidate-sets": _by_candidates,
    "multiscale": _shrunk,
    "smoothed-em": _smoothed,
}
"""By name: maximum likelihood; the unbiased estimate projected on the distributions; the same clipped and normalised;
the equations over Hadamard candidate sets, projected; shrinkage at all scales of unbiased estimates; and smoothing at
all scales of the likelihood, which serves every randomizer at any size."""
