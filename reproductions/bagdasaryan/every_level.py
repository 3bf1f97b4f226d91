"""A mechanism of several levels, shown at each: so that a choice made with the truth in hand can be repeated."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mapveil.maps.measurement import Measurement
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.trust.queries import Estimate, NoisySums, Plan, Setting

_UNIT = 1  # what is shown is in users


@dataclass(frozen=True, kw_only=True)
class EveryLevel(SumMechanism):
    """Ask what ``inner`` asks, once, and show the answer at each of ``levels``, as the map's measurements.

    The plan depends on nothing but the setting and the sums, so the same sums are sent to it again with its
    parameter ``level`` set. The map itself is that of the first level. Run by: a simulation.

    Parameters
    ----------
    inner : SumMechanism
        A mechanism with a parameter ``level``.
    levels : tuple of int
        Levels to be shown; the map has the first, and others that it does not have are left out.
    """

    name: ClassVar[str] = "every level"
    summary: ClassVar[str] = "another mechanism, shown at several levels"
    source: ClassVar[str] = "Bagdasaryan et al. 2022, section 6.2"

    inner: SumMechanism
    levels: tuple[int, ...]

    @classmethod
    def of(cls, inner: SumMechanism, levels: tuple[int, ...]) -> EveryLevel:
        """The same parameters, shown at ``levels``."""
        return cls(inner=inner, levels=levels, epsilon=inner.epsilon, trust=inner.trust)

    def plan(self, setting: Setting) -> Plan:
        """The inner mechanism's queries; see :meth:`SumMechanism.plan`."""
        answers: list[NoisySums] = []
        made = yield from _recorded(_at(self.inner, self.levels[0]).plan(setting), answers)
        shown = []
        for level in self.levels:
            if level > setting.depth:
                continue
            again = _at(self.inner, level).plan(setting)
            values = made.values if level == self.levels[0] else _replayed(again, answers).values
            groups = np.arange(values.size) >> (2 * (setting.depth - level))
            sums = np.bincount(groups, values).astype(np.float64)
            shown.append(Measurement(groups, sums, self.budget, _UNIT))
        return Estimate(made.values, tuple(shown), made.notes)


def _at(mechanism: SumMechanism, level: int) -> SumMechanism:
    changed: dict[str, Any] = {"level": level}
    return dataclasses.replace(mechanism, **changed)


def _recorded(server: Plan, answers: list[NoisySums]) -> Plan:
    """Pass the queries on and keep the answers."""
    query = next(server)
    while True:
        answers.append((yield query))
        try:
            query = server.send(answers[-1])
        except StopIteration as stop:
            made: Estimate = stop.value
            return made


def _replayed(server: Plan, answers: list[NoisySums]) -> Estimate:
    """Send the answers again, which are the same to the same queries."""
    next(server)
    for answer in answers:
        try:
            server.send(answer)
        except StopIteration as stop:
            made: Estimate = stop.value
            return made
    raise AssertionError("a server half asked for more than it did before")
