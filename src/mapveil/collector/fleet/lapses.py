"""Simulated lapses of a fleet: devices that drop out of a round, and slow devices."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from mapveil_client.arrays import IntArray
from mapveil_client.errors import check
from mapveil_client.secure_sum.states import ServerState, phase_name, server_phases

_PHASES: Final = tuple(
    phase_name(phase) for phase in server_phases(active=True) if phase.value <= ServerState.INPUTS.value
)
"""Phases in which a device drops out: before its masked vector arrived, as in a simulated release."""


@dataclass(frozen=True, kw_only=True)
class Lapses:
    """Simulated lapses of a fleet.

    Parameters
    ----------
    drop : float
        Fraction of the devices asked in a round that drop out of it, at a random phase before their vector is sent,
        and never answer again; of reports, the fraction that is never sent.
    slow : float
        Fraction of the devices that are slow.
    slow_s : float
        Time that a slow device waits before each message, seconds.
    seed : int, optional
        Chooses these devices; nothing else is seeded.

    Raises
    ------
    ParameterError
        A fraction outside 0 to 1, or a time below 0.
    """

    drop: float = 0.0
    slow: float = 0.0
    slow_s: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, part in (("drop", self.drop), ("slow", self.slow)):
            check(0 <= part < 1, name, "a fraction from 0 to below 1", part)
        check(0 <= self.slow_s < 3600, "slow_s", "seconds from 0 to below 3600", self.slow_s)


class LapsePlan:
    """The devices of a fleet that lapse, and when.

    Attributes
    ----------
    slow, gone : ndarray of bool, shape (devices,)
        Slow devices, and those that have dropped out so far.
    """

    def __init__(self, devices: int, lapses: Lapses) -> None:
        self._devices, self._drop = devices, lapses.drop
        self._simulation = np.random.default_rng(lapses.seed)
        self.slow = self._simulation.random(devices) < lapses.slow
        self.gone = np.zeros(devices, dtype=np.bool_)
        self._rounds: dict[tuple[str, int], IntArray] = {}

    def drops(self, device: int, collection: str, number: int, phase: str) -> bool:
        """Whether a device is gone when its message of this phase is due; round 0 is a report."""
        key = (collection, number)
        if key not in self._rounds:
            leaves = self._simulation.random(self._devices) < self._drop
            at = self._simulation.integers(0, len(_PHASES), self._devices) if number else 0
            self._rounds[key] = np.where(leaves, at, len(_PHASES))
        before = _PHASES.index(phase) if phase in _PHASES else 0
        if self._rounds[key][device] <= before and (phase in _PHASES or number == 0):
            self.gone[device] = True
        return bool(self.gone[device])
