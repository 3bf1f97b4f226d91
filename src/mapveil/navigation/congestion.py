"""How much longer a road takes with people on it: two models of congestion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError


class Congestion(Protocol):
    """What users near a road cost whoever takes it."""

    def delay(self, users: FloatArray, seconds: FloatArray) -> FloatArray:
        """Further seconds of roads that take ``seconds`` when free, with ``users`` in their cell."""
        ...


@dataclass(frozen=True)
class StepDelay:
    """A fixed delay at every place where more than so many users are: the paper's.

    Source: Wang et al. (2022), appendix C.1: 50 users, 3 seconds.

    Parameters
    ----------
    threshold : float
        Users in a cell and window.
    seconds : float
        Delay of each road that ends there.

    Raises
    ------
    ParameterError
        A number that is not above 0.
    """

    threshold: float = 50.0
    seconds: float = 3.0

    def __post_init__(self) -> None:
        _check(threshold=self.threshold, seconds=self.seconds)

    def delay(self, users: FloatArray, seconds: FloatArray) -> FloatArray:
        """See :class:`Congestion`."""
        return np.where(users > self.threshold, self.seconds, 0.0) + np.zeros_like(seconds)


@dataclass(frozen=True)
class VolumeDelay:
    r"""A delay that grows with the fourth power of the load.

    .. math:: \Delta s = 0.15\, s\, \min(u / C, 3)^4

    where: s is the free time, u the users of the cell and C ``capacity``; three times the capacity is as bad as it
    gets. Source: the function of the US Bureau of Public Roads (1964).

    Parameters
    ----------
    capacity : float
        Users of a cell and window that its roads carry with a delay of 15 %.

    Raises
    ------
    ParameterError
        It is not above 0.
    """

    capacity: float = 50.0

    def __post_init__(self) -> None:
        _check(capacity=self.capacity)

    def delay(self, users: FloatArray, seconds: FloatArray) -> FloatArray:
        """See :class:`Congestion`."""
        load = np.clip(users / self.capacity, 0.0, 3.0)
        return np.asarray(0.15 * seconds * load**4)


def _check(**values: float) -> None:
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise ParameterError(f"{name} is {value!r}; a number above 0 is accepted")
