r"""Pace of devices: the service tells each when to come again, so that they come spread evenly, as many as it bears.

.. math:: \text{pause} \sim U\left(\tfrac12 T, \tfrac32 T\right), \qquad T = N / r

where: N devices are expected, and the service bears r requests of devices a second. Devices that came all at once, as
after an outage, come apart after the first answer. Within a phase T is at most a quarter of the time left: each device
comes twice or more before the phase ends. The header of answers is ``Mapveil-Pause``, seconds.
"""

import math
import secrets
import time
from collections.abc import Callable
from typing import Final

HEADER: Final = b"mapveil-pause"
_LEAST_S: Final = 1.0
_MOST_S: Final = 3600.0
_PART: Final = 4
_COUNT_SECONDS: Final = 60.0  # for which a count of the devices is used
_RANDOM: Final = secrets.SystemRandom()


class Pace:
    """Pauses of the devices of one service.

    Parameters
    ----------
    rate : int
        Requests of devices a second that the service bears.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._counted: tuple[float, int] | None = None

    def pause(self, expected: int, left_s: float | None = None) -> float:
        """Seconds after which one of so many devices is to come again, drawn anew for each.

        Parameters
        ----------
        expected : int
            Devices that come.
        left_s : float, optional
            Time until they are waited for no more.
        """
        mean = expected / self._rate
        if left_s is not None:
            mean = min(mean, left_s / _PART)
        return min(max(mean, _LEAST_S), _MOST_S) * _RANDOM.uniform(0.5, 1.5)

    def header(self, expected: int, left_s: float | None = None) -> tuple[bytes, bytes]:
        """The header of an answer; see :meth:`pause`."""
        return HEADER, b"%.1f" % self.pause(expected, left_s)

    def short_phases(self, devices: int, phase_seconds: int) -> str:
        """A remark on phases that are too short for so many devices to keep to the pace; empty where they are not."""
        needed = math.ceil(_PART * devices / self._rate)
        if phase_seconds >= needed:
            return ""
        return (
            f"phases of {phase_seconds:,} s are short for {devices:,} devices: to visit at most {self._rate:,} times a "
            f"second, all together (--device-requests), they need phases of {needed:,} s (phase_seconds)"
        )

    def devices(self, count: Callable[[], int]) -> int:
        """Number of the devices, counted at most once a minute. Run by: a thread that may read the store."""
        known = self.counted()
        if known is None:
            known = count()
            self._counted = time.monotonic(), known
        return known

    def counted(self) -> int | None:
        """As :meth:`devices`, for an event loop: None where they must be counted."""
        counted = self._counted
        return counted[1] if counted is not None and time.monotonic() - counted[0] <= _COUNT_SECONDS else None
