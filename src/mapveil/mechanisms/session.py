"""A session: one budget for several releases of the same people, split exactly."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.release import release
from mapveil.privacy.account import OWN, Account, charges_of, check_account
from mapveil.privacy.charges import Charges
from mapveil_client.epsilon import EpsilonLike, as_epsilon, readable
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError, check, is_whole
from mapveil_client.randomness.random import Randomness, as_randomness


@dataclass(frozen=True)
class _Watched(Account):
    """An account that keeps the charges made to it."""

    made: list[Charges] = field(default_factory=list)

    def charges(self, data: Any, about: Mapping[str, Any], request: Mapping[str, Any]) -> Charges:
        self.made.append(super().charges(data, about, request))
        return self.made[-1]


class Session:
    r"""A budget for several releases of the same people; with a split, each release takes the next share.

    .. math:: \epsilon_i = \epsilon \frac{w_i}{\sum_j w_j}

    where: :math:`\epsilon` is ``epsilon``, :math:`w_i` the i-th weight, all equal for an even split; the shares are
    exact fractions. By basic composition the releases are :math:`\epsilon`-DP together (their deltas add up). Each
    is charged to the account when it is made; what is not used is not charged.

    Parameters
    ----------
    points : Points or Counts
        The data of every release.
    epsilon : int, float, str, Decimal or Fraction
        The whole budget, above 0.
    account : Account, optional
        The budget that is charged, which must allow all of ``epsilon`` now, or where a release is resumed each part
        when it is released; None: not accounted.
    split_evenly_over : int, optional
        Number of releases with equal shares.
    split_by_weights : sequence of int, float, str, Decimal or Fraction, optional
        Weights of the releases, above 0. Without a split each release names its ``epsilon``.
    accept_large_epsilon : bool
        Whether ``epsilon`` may be above 20, in the session and in each release.

    Raises
    ------
    ParameterError
        Epsilon is above 20 and not accepted.
    BudgetExceeded
        The account does not allow the epsilon.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=500, seed=1)
    >>> session = mv.Session(city, epsilon=1, account=None, split_by_weights=[2, 1])
    >>> session.release(mv.Quadtree(city.region, depth=4)).guarantee.epsilon, session.remaining
    (Fraction(2, 3), Fraction(1, 3))
    """

    def __init__(
        self,
        points: Points | Counts,
        epsilon: EpsilonLike,
        *,
        account: Account | None = OWN,
        split_evenly_over: int | None = None,
        split_by_weights: Sequence[EpsilonLike] | None = None,
        accept_large_epsilon: bool = False,
    ) -> None:
        if split_evenly_over is not None and split_by_weights is not None:
            raise ParameterError("split_evenly_over and split_by_weights exclude each other, got both")
        many = split_evenly_over
        good = many is None or is_whole(many, 1, 1 << 20)
        check(good, "split_evenly_over", "a whole number of at least 1", many)
        given = [1] * many if many is not None else split_by_weights
        check(given is None or len(given) > 0, "split_by_weights", "at least one weight", given)
        self.remaining = as_epsilon(epsilon)
        """Epsilon that is left for further releases."""
        weights = [as_epsilon(weight, "weight") for weight in given or ()]
        self._shares = [self.remaining * weight / sum(weights) for weight in weights]
        self._split = given is not None
        self._points, self._account = points, account
        self._large = accept_large_epsilon
        self._lock = threading.Lock()  # one release at a time: threads share the budget
        check_account(account)
        if account is None or not account.resume:  # else a part is charged already
            about = (self.remaining, "session", dict[str, Any](), "")
            charges_of(account, points, *about, seeded=False, accept_large_epsilon=accept_large_epsilon)

    def release(
        self,
        tiling: Tiling | str | None = None,
        *,
        epsilon: EpsilonLike | None = None,
        rng: Randomness | int | None = None,
        **parameters: Any,
    ) -> DensityMap:
        """Release a map with the next share, or with ``epsilon`` where the session has no split.

        A release that is refused before it is charged leaves its share, and so does a seeded one.

        The parameters are those of :func:`mapveil.mechanisms.release.release` but for the account.

        Raises
        ------
        BudgetExceeded
            The session's budget does not allow it.
        """
        with self._lock:
            share, stream = self._next(epsilon), as_randomness(rng)
            own = self._account
            copied = {each.name: getattr(own, each.name) for each in fields(Account)} if own else {}
            watched = _Watched(**copied) if own else None
            parameters = {"accept_large_epsilon": self._large, **parameters}
            try:
                made = release(self._points, tiling, epsilon=share, account=watched, rng=stream, **parameters)
            except BaseException as error:
                # Without an account only bad input is known to reveal nothing.
                revealed = not isinstance(error, InputError)
                if revealed if watched is None else any(charges.charged for charges in watched.made):
                    self._take(share)
                raise
            if not stream.seeded:
                self._take(share)
            return made

    def _next(self, epsilon: EpsilonLike | None) -> Fraction:
        if self._split:
            if epsilon is not None:
                raise ParameterError(f"epsilon must be left out, for the session is split, got {epsilon}")
            if not self._shares:
                raise BudgetExceeded("the session's shares are used up, so nothing is released")
            return self._shares[0]
        if epsilon is None:
            raise ParameterError("epsilon is required, for the session is not split")
        asked = as_epsilon(epsilon)
        if asked > self.remaining:
            raise BudgetExceeded(
                f"epsilon {readable(asked)} asked, {readable(self.remaining)} left in the session, so nothing is "
                "released"
            )
        return asked

    def _take(self, share: Fraction) -> None:
        self.remaining -= share
        self._shares = self._shares[1:]
        if self._account is not None:
            self._account = replace(self._account, resume=False)  # what was cut short is one release
