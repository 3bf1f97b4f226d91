"""The client half of navigation: when a device reports its location, and the limit on its reports."""

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

    Raises
    ------
    ParameterError
        A parameter is outside its range.
    """

    theta_s: float
    most: int

    def __post_init__(self) -> None:
        if not (np.isfinite(self.theta_s) and self.theta_s > 0):
            raise ParameterError(f"theta_s must be seconds above 0, got {self.theta_s!r}")
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 1:
            raise ParameterError(f"most must be an integer of at least 1, got {self.most!r}")

    def due(self, late_s: npt.ArrayLike, sent: npt.ArrayLike) -> BoolArray:
        """Whether an update is due, by the delay so far (seconds) and the updates sent. Run by: the client."""
        return np.asarray((np.asarray(late_s) > self.theta_s) & (np.asarray(sent) < self.most))


class LocationUpdates:
    r"""Location updates of one trip of each device: randomized and counted.

    Every update is one report with the randomizer's epsilon; a trip sends at most :math:`\lambda`, so that its
    reports together are :math:`\lambda \epsilon`-LDP by sequential composition. A further update is refused. That an
    update is sent, and when, is not hidden: its sender is late.

    Source: Wang et al. (2022), section 4.2. Deviation: there :math:`\lambda` is the number of updates that occurred;
    here it is a limit, since a guarantee must hold before the trip.

    Parameters
    ----------
    randomizer : Randomizer
        The randomizer of each update.
    rule : UpdateRule
        When an update is due, and the limit.
    devices : int
        Number of devices of this object, at least 1: one on a device, all of them in a simulation.

    Examples
    --------
    >>> import mapveil as mv
    >>> from mapveil_client.local.domain import Domain
    >>> from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
    >>> grid = mv.Grid(mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=4, columns=4)
    >>> randomizer = GeneralizedRandomizedResponse(epsilon=1).on(Domain(grid))
    >>> phone = LocationUpdates(randomizer, UpdateRule(theta_s=40, most=2))
    >>> phone.due([0], [35.0]).tolist(), phone.due([0], [45.0]).tolist()
    ([False], [True])
    >>> for _ in range(2):
    ...     report = phone.send([0], [5], mv.Randomness())
    >>> phone.spent, phone.due([0], [100.0]).tolist()
    (Fraction(2, 1), [False])
    """

    def __init__(self, randomizer: Randomizer, rule: UpdateRule, devices: int = 1) -> None:
        if devices < 1:
            raise ParameterError(f"devices must be at least 1, got {devices!r}")
        self.randomizer, self.rule = randomizer, rule
        self._sent = np.zeros(devices, dtype=np.int64)

    def due(self, devices: npt.ArrayLike, late_s: npt.ArrayLike) -> BoolArray:
        """The devices that shall send an update; see :meth:`UpdateRule.due`. Run by: the client."""
        return self.rule.due(late_s, self._sent[np.asarray(devices)])

    def send(self, devices: npt.ArrayLike, cells: npt.ArrayLike, rng: Randomness) -> Reports:
        """Randomize the cells of some devices (each named once), one update each. Run by: the client.

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
        if (self._sent[who] >= self.rule.most).any():
            raise BudgetExceeded(
                f"the trip has sent its {self.rule.most} location updates of epsilon "
                f"{float(self.randomizer.epsilon):g} each; no further one is sent"
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
