"""The parameter of a privatizer that meets constraints, and whether to collect at all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.evaluation.collection_trials import REFERENCES
from mapveil.evaluation.coverage_trials import SUMS
from mapveil.evaluation.signal_tradeoff import KNOBS, MEASURES, TradeoffPoint
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError

_GAIN_LOW: Final = "gain_db_low"
"""Lower end of the interval of the gain that holds for all values at once; NaN of one trial."""

_UTILITIES: Final = ("u1", "u2", "u", "rmse_dbm", "gain_db")
_FINE: Final = 400


class Constraint(NamedTuple):
    """A bound on one measure."""

    measure: str  # of TradeoffPoint.means
    bound: float
    at_most: bool
    words: str

    @classmethod
    def named(cls, name: str, bound: float) -> Constraint:
        """A bound on a cost or an error by its name, one of :data:`CONSTRAINTS`."""
        measure, sign = CONSTRAINTS[name]
        at_most = name.endswith("at_most")
        return cls(measure, sign * bound, at_most == (sign > 0), f"{name.replace('_', ' ')} {bound:g}")

    def margin(self, values: FloatArray) -> FloatArray:
        """By how much values keep it; negative where they do not."""
        return self.bound - values if self.at_most else values - self.bound


CONSTRAINTS: Final[Mapping[str, tuple[str, int]]] = {
    "distortion_at_most": ("u1", -1),
    "map_error_at_most": ("u2", -1),
    "rmse_at_most": ("rmse_dbm", 1),
    "user_error_at_least": ("p1", 1),
    "location_error_at_least": ("p2_m", 1),
    "gain_at_least": ("gain_db", 1),
    "epsilon_at_most": ("epsilon", 1),
}
"""Measure behind each named bound, and its sign: a utility is minus a cost."""


class Choice(NamedTuple):
    """Value of a privatizer's parameter; None where no value keeps the constraints and gains."""

    privatizer: str
    knob: str
    value: float | None
    expected: Mapping[str, float]  # interpolated; empty without a value
    keeps: bool = True  # whether a value keeps the constraints, whatever its map gains

    @property
    def told(self) -> bool:
        """Whether its map is told from those for which nothing is collected; a single trial tells nothing."""
        return self.expected.get(_GAIN_LOW, math.nan) > 0

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {
            "privatizer": self.privatizer,
            "parameter": self.knob,
            "value": self.value,
            "keeps": self.keeps,
            **({"expected": dict(self.expected)} if self.expected else {}),
        }


def choose_parameters(
    points: Sequence[TradeoffPoint], constraints: Sequence[Constraint]
) -> tuple[Choice, ...]:
    """Choose the value of each privatizer's parameter that keeps the constraints and gives the most of the rest.

    Between two measured values the measures are interpolated. Among the values that keep every constraint and whose map
    is better than those for which nothing is collected, of those whose gain is told from zero where there are any, the
    one with the most privacy P is taken where utility is constrained, and the one with the largest gain where only
    privacy is. The best choice comes first; those without a value come last. Where none has one, or none is told
    (:attr:`Choice.told`), the answer is not to collect. Lines at which nothing is collected, or nothing is private,
    are no choices.

    A gain is told where the lower end of its interval over the trials is above zero, at the level that holds for all
    measured values at once (Bonferroni): the best of many is above zero by chance. Trials are splits of the same
    people and days, and tell nothing of others.

    Source: Section 6.4 and Figure 12 of Zhang et al. 2022.
    """
    if not constraints:
        raise ParameterError("constraints must hold at least one, such as a largest distortion")
    goal = "p" if any(each.measure in _UTILITIES for each in constraints) else "gain_db"
    choices, ways = [], [point for point in points if point.privatizer not in REFERENCES]
    for name in dict.fromkeys(point.privatizer for point in ways):
        own = sorted((point for point in ways if point.privatizer == name), key=lambda point: point.value)
        values, measured = _fine(own, KNOBS[name].log if name in KNOBS else name in SUMS, len(ways))
        keeps = np.all([each.margin(measured[each.measure]) >= 0 for each in constraints], axis=0)
        kept = np.flatnonzero(keeps & (measured["gain_db"] > 0))
        if not kept.size:
            choices.append((-math.inf, Choice(name, own[0].knob, None, {}, bool(keeps.any()))))
            continue
        surely = kept[measured[_GAIN_LOW][kept] > 0]
        kept = surely if surely.size else kept
        at = int(kept[np.argmax(measured[goal][kept])])
        expected = {measure: float(column[at]) for measure, column in measured.items()}
        choices.append((expected[goal], Choice(name, own[0].knob, float(values[at]), expected)))
    return tuple(choice for _, choice in sorted(choices, key=lambda pair: -pair[0]))


def unmeasured(points: Sequence[TradeoffPoint], constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """The constraints on measures that no way to collect has on these data, such as an error of unknown users."""
    ways = [point for point in points if point.privatizer not in REFERENCES]
    return tuple(each for each in constraints if all(math.isnan(point.means[each.measure]) for point in ways))


def verdict(points: Sequence[TradeoffPoint], choices: Sequence[Choice]) -> str:
    """Whether to collect, in a line: the first choice whose gain is told from zero, or why there is none."""
    trials = min(point.trials for point in points)
    for each in choices:
        if each.told:
            gain = each.expected["gain_db"]
            return (
                f"collect: by {each.privatizer} at {each.knob} {each.value:.3g} the map gains {gain:.2g} dB over not "
                f"collecting, told from zero by {trials} trials"
            )
    if all(each.value is None for each in choices):
        return (
            "do not collect: no map is better than what is known without collecting, at held-out places and on "
            "later days"
        )
    why = (
        "one trial tells no gain from chance"
        if trials == 1
        else f"no gain is told from zero by {trials} trials, the best of all values tried being one by chance"
    )
    return f"do not collect: {why}; --trials {max(8, 2 * trials)} may tell"


def unbounded_verdict(points: Sequence[TradeoffPoint]) -> str:
    """The verdict where nothing is asked of privacy or utility but a gain."""
    anything = Constraint.named("location_error_at_least", 0)
    return verdict(points, choose_parameters(points, [anything]))


def _widened(trials: int, together: int) -> float:
    """By how much the 95 % intervals of means over trials are wider where so many hold together; NaN of one trial."""
    from scipy.special import stdtrit

    return float(stdtrit(trials - 1, 1 - 0.025 / together) / stdtrit(trials - 1, 0.975))


def _fine(own: Sequence[TradeoffPoint], log: bool, together: int) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Values between the measured ones, and the measures there; of so many values of all ways."""
    values = np.array([point.value for point in own])
    axis = np.log(values) if log and values[0] > 0 else values
    # The measured values themselves stay among the candidates.
    fine = np.union1d(np.linspace(axis[0], axis[-1], _FINE), axis)
    measured = {
        measure: np.interp(fine, axis, [point.means[measure] for point in own]) for measure in MEASURES
    }
    below = [(each.means["gain_db"] - each.lows["gain_db"]) * _widened(each.trials, together) for each in own]
    measured[_GAIN_LOW] = measured["gain_db"] - np.interp(fine, axis, below)
    exact = np.searchsorted(fine, axis)
    chosen = np.exp(fine) if log and values[0] > 0 else fine.copy()
    chosen[exact] = values
    # A worst case grows by factors; beside one that nothing bounds, nothing is bounded.
    worst = np.log(np.maximum([point.means["epsilon"] for point in own], 1e-300))
    with np.errstate(invalid="ignore"):
        measured["epsilon"] = np.exp(np.nan_to_num(np.interp(fine, axis, worst), nan=np.inf, posinf=np.inf))
    measured["epsilon"][exact] = [point.means["epsilon"] for point in own]
    return chosen, measured
