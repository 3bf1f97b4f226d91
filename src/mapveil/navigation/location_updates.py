"""The client half of navigation: when a device tells where it is, and how often at most."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mapveil.local.randomizers.randomizer import Randomizer
from mapveil.local.randomizers.report import Reports
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import BudgetExceeded, ParameterError
from mapveil_client.randomness.random import Randomness


@dataclass(frozen=True)
class UpdateRule:
    r"""When an update is due: late by more than theta, and some left.

    .. math:: \mathrm{Agg}^t(x_o, x_i) - \mathrm{Agg}^p(x_o, x_i) > \theta

    where: the two are the actual and the predicted time from origin :math:`x_o` (or the last update, after which the
    prediction is made anew) to the present place :math:`x_i`.

    Parameters
    ----------
    theta_s : float
        :math:`\theta`, seconds, above 0.
    most : int
        :math:`\lambda`, updates of a trip, at least 1.

    Raises
    ------
    ParameterError
        A parameter is outside its range.
    """

    theta_s: float
    most: int

    def __post_init__(self) -> None:
        if not (np.isfinite(self.theta_s) and self.theta_s > 0):
            raise ParameterError(f"theta_s is {self.theta_s!r}; seconds above 0 are accepted")
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 1:
            raise ParameterError(f"most is {self.most!r}; a number of updates of at least 1 is accepted")

    def due(self, late_s: npt.ArrayLike, sent: npt.ArrayLike) -> BoolArray:
        """Whether to send one now. Run by: the client.

        Parameters
        ----------
        late_s : array_like of float
            How much longer than predicted the trip has taken, seconds.
        sent : array_like of int
            Updates sent so far.
        """
        return np.asarray((np.asarray(late_s) > self.theta_s) & (np.asarray(sent) < self.most))


class LocationUpdates:
    r"""Location updates of one trip of each device: randomized, and counted.

    Every update is one report of the randomizer's epsilon; at most :math:`\lambda` are sent, so that what a trip says
    of where the device was is :math:`\lambda \epsilon`-LDP by sequential composition. What is beyond is refused: the
    device goes on without.

    That an update is sent, and when, is not hidden: who sends one is late.

    Source: Wang et al. (2022), section 4.2. Deviation: there :math:`\lambda` is as many updates as it happened to be;
    here it is a limit, since a promise must hold before the trip.

    Parameters
    ----------
    randomizer : Randomizer
        Of each update.
    rule : UpdateRule
        When one is due, and how many there are.
    devices : int
        How many devices this object stands for: one on a device, all of them in a simulation.

    Raises
    ------
    ParameterError
        ``devices`` is below 1.

    Examples
    --------
    >>> import mapveil as mv
    >>> from mapveil.local.randomizers.domain import Domain
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
            raise ParameterError(f"devices is {devices!r}; at least 1 is accepted")
        self.randomizer, self.rule = randomizer, rule
        self._sent = np.zeros(devices, dtype=np.int64)

    def due(self, devices: npt.ArrayLike, late_s: npt.ArrayLike) -> BoolArray:
        """Which devices shall send an update now; see :meth:`UpdateRule.due`. Run by: the client."""
        return self.rule.due(late_s, self._sent[np.asarray(devices)])

    def send(self, devices: npt.ArrayLike, cells: npt.ArrayLike, rng: Randomness) -> Reports:
        """Randomize where some devices are, one update each. Run by: the client.

        Parameters
        ----------
        devices : array_like of int
            Their numbers, each once.
        cells : array_like of int
            The tiling's cell of each.
        rng : Randomness
            The source of bits.

        Raises
        ------
        BudgetExceeded
            A device has sent all of its updates: nothing is sent.
        InputError
            A cell is outside the domain.
        """
        who = np.atleast_1d(np.asarray(devices, dtype=np.int64))
        if np.unique(who).size < who.size:
            raise ParameterError("a device is there twice; one update of each is accepted")
        if (self._sent[who] >= self.rule.most).any():
            raise BudgetExceeded(
                f"a further location update is refused: {self.rule.most} of epsilon "
                f"{float(self.randomizer.epsilon):g} each are all that this trip may send"
            )
        reports = self.randomizer.randomize(cells, rng)
        self._sent[who] += 1
        return reports

    @property
    def sent(self) -> IntArray:
        """Updates that each device has sent, shape (devices,)."""
        return self._sent.copy()

    @property
    def spent(self) -> Fraction:
        """The largest total epsilon of a device so far, exactly."""
        return int(self._sent.max()) * self.randomizer.epsilon
