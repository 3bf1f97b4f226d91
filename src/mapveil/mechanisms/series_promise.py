"""The promise of a live series: what it charges, and the guarantee that each map of its windows states."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from mapveil.mechanisms.series_file import SeriesFacts
from mapveil.privacy.claim import Assumes, Unit
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.sampling import sampling_delta


def epsilon_charged(facts: SeriesFacts) -> Fraction:
    """Epsilon of a user over all windows: that of every run of windows where runs are protected."""
    return _units(facts) * facts.epsilon


def _units(facts: SeriesFacts) -> int:
    """Runs of windows that all windows are divided into, where runs are protected; else the user alone."""
    return 1 if facts.run is None else -(-facts.windows.count // facts.run)


def least_epsilon(facts: SeriesFacts) -> Fraction:
    """The least epsilon that a window's map may have."""
    return facts.epsilon / (facts.most if facts.run is None else 2 * facts.run)


def promise_of_series(alone: Guarantee, facts: SeriesFacts) -> Guarantee:
    """The promise of a window's map, as that of the whole series."""
    if alone.unit is Unit.WINDOW_RUN:  # the map of another window has it already
        return alone
    counted = facts.most if facts.run is None else facts.run
    bound = alone.bound and alone.bound.times(counted)
    if facts.run is None:
        delta = min(facts.most * alone.delta, Fraction(1))  # a user moves so many maps
        return replace(alone, epsilon=facts.epsilon, delta=delta, bound=bound)
    added = (
        Assumes.COMPOSES(),
        Assumes.RUN_LENGTH(windows=facts.run),
        Assumes.UNITS_OF_USER(units=_units(facts)),
    )
    return replace(
        alone,
        unit=Unit.WINDOW_RUN,
        epsilon=facts.epsilon,
        # A comparison and a publication in each window, none of them with more than half of epsilon.
        delta=min(2 * facts.run * sampling_delta(facts.epsilon / 2), Fraction(1)),
        bound=bound,
        assumptions=(*alone.assumptions, *added),
    )
