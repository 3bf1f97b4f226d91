"""The client half: when a trip reports its location, and the limit on its reports."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mapveil.local.randomizers.randomizer import Randomizer
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import BudgetExceeded, ParameterError
from mapveil_client.local.randomizer import Reports
from mapveil_client.randomness.random import Randomness


@dataclass(frozen=True)
class UpdateRule:
    r"""The rule for updates: one is due when a trip is late by more than theta and has updates left.

    .. math:: \mathrm{Agg}^t(x_o, x_i) - \mathrm{Agg}^p(x_o, x_i) > \theta

    where: the two are the actual and the predicted time from origin :math:`x_o` (or the last update, after which the
    prediction is made anew) to the present location :math:`x_i`.

    Parameters
    ----------
    theta_s : float
        :math:`\theta`, seconds, above 0.
    most : int
        :math:`\lambda`, maximum updates of a trip, at least 1.
    """

    theta_s: float
    most: int

    def __post_init__(self) -> None:
        if not (np.isfinite(self.theta_s) and self.theta_s > 0):
            raise ParameterError(f"theta_s must be seconds above 0, got {self.theta_s!r}")
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 1:
            raise ParameterError(f"most must be an integer of at least 1, got {self.most!r}")

    def due(self, late_s: npt.ArrayLike, sent: npt.ArrayLike) -> BoolArray:
        """Whether an update is due, by the delay so far (seconds) and the updates sent."""
        return np.asarray((np.asarray(late_s) > self.theta_s) & (np.asarray(sent) < self.most))


class LocationUpdates:
    r"""Location updates of one trip of each device: randomized and counted.

    Every update is one report with the randomizer's epsilon; a trip sends at most :math:`\lambda` (``most``), so that
    its reports together are :math:`\lambda \epsilon`-LDP by sequential composition. The time of an update is not
    hidden: its sender is late.

    Source: Wang et al. (2022), section 4.2. Deviation: there :math:`\lambda` is the number of updates that occurred;
    here it is a limit, since a guarantee must hold before the trip.
    """

    def __init__(self, randomizer: Randomizer, most: int, devices: int) -> None:
        self.randomizer, self.most = randomizer, most
        self._sent = np.zeros(devices, dtype=np.int64)

    def send(self, devices: npt.ArrayLike, cells: npt.ArrayLike, rng: Randomness) -> Reports:
        """Randomize the cells of some devices (each named once), one update each.

        Raises
        ------
        BudgetExceeded
            A device has sent all of its updates: nothing is sent.
        InputError
            A cell is outside the domain.
        """
        who = np.atleast_1d(np.asarray(devices, dtype=np.int64))
        if np.unique(who).size < who.size:
            raise ParameterError("devices must be distinct: one update of each")
        if (self._sent[who] >= self.most).any():
            raise BudgetExceeded(
                f"the trip has sent its {self.most} location updates of epsilon {float(self.randomizer.epsilon):g} each"
            )
        reports = self.randomizer.randomize(cells, rng)
        self._sent[who] += 1
        return reports

    @property
    def sent(self) -> IntArray:
        """Updates sent by each device, shape (devices,)."""
        return self._sent.copy()

    @property
    def spent(self) -> Fraction:
        """The largest total epsilon of a device, exact."""
        return int(self._sent.max()) * self.randomizer.epsilon
