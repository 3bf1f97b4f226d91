r"""How many neighbours a client needs, and how many of them must answer.

Of n clients, :math:`c = \lfloor \gamma n \rfloor` are corrupt (they tell the server all they know) and
:math:`d = \lfloor \delta n \rfloor` drop out; both sets are fixed before the ring is ordered at random,
so that k neighbours are a uniform draw from the other n - 1 clients. With :math:`h = k/2`, X
hypergeometric (draws from the population with that many marked), and union bounds over clients and
runs, the following are required; the first two with probability :math:`1 - 2^{-\sigma}` each, the
third with :math:`1 - 2^{-\eta}`:

1. nobody's secrets are known to the corrupt: :math:`n \Pr[X(n - 1, c, k) \ge t] \le 2^{-\sigma}`;
2. the honest survivors stay connected, so that nothing but their total can be computed. A ring in
   which each is joined to h on both sides falls apart only if two runs of h or more adjacent places
   are without honest survivors. Of :math:`r = c + d` such places, with falling factorials
   :math:`(x)_m`, the expected number of pairs of such runs is

   .. math:: \frac{n (n - 2h - 1)}{2} \cdot \frac{(r)_{2h}\, (n - r)_2}{(n)_{2h + 2}} \le 2^{-\sigma};

3. the sum comes out: :math:`n \Pr[X(n - 1, d, k) \ge k - t + 1] \le 2^{-\eta}`.

Against a server that lies about who dropped out (``active``), also

4. no client can be unmasked beside a gap, nor can both of its secrets be had, from the honest
   neighbours on one side and the corrupt ones on the other:
   :math:`n \Pr[X(n, c, h) \ge t - h] \le 2^{-\sigma}`.

Why 4 suffices: an honest client gives a share of one of i's two secrets only, a corrupt one of both.
Both secrets need :math:`2 t \le k + c_i` for :math:`c_i` corrupt neighbours, while 4 gives
:math:`c_i \le 2 (t - h - 1) = 2t - k - 2`. And whoever splits the ring needs a gap of h places without
answering honest clients beside some honest i; its own secret then gets shares from at most h neighbours
on the other side and fewer than t - h corrupt ones within the gap: fewer than t.

In the complete graph, k = n - 1, 1 to 3 are certain or impossible, and 4 reads :math:`2 t > k + c`.

Source: Bell et al. (2020), section 3.
"""

from __future__ import annotations

import functools
import math
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.errors import ParameterError

__all__ = ["Neighbourhood", "choose_neighbourhood"]

FloatArray = npt.NDArray[np.float64]

_LARGEST = 4096
"""No graph of more neighbours is tried, short of the complete one."""

_LOWEST = 2
"""At threshold 1 every share would be the secret itself."""

# Sums of logarithms of fewer than 2^14 numbers of at most 64 bits err by less than 1e-10.
_ROUNDING = 1e-9


class Neighbourhood(NamedTuple):
    """The degree of the neighbour graph, and the threshold of the secret sharing over it."""

    neighbours: int
    threshold: int


def _log_falling(x: int, count: int) -> FloatArray:
    """Logarithms of x (x - 1) ... (x - m + 1) for m = 0 .. count, shape (count + 1,)."""
    with np.errstate(divide="ignore"):
        terms = np.log(np.maximum(x - np.arange(count, dtype=np.float64), 0.0))
    return np.concatenate([[0.0], np.cumsum(terms)])


class _Urn:
    """Tails of the number of marked among ``draws`` taken from a population without return."""

    def __init__(self, population: int, marked: int, largest: int) -> None:
        largest = min(population, largest)
        self._marked = _log_falling(marked, largest)
        self._others = _log_falling(population - marked, largest)
        self._all = _log_falling(population, largest)
        self._factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, largest + 1)))])

    def log_tail(self, draws: int) -> FloatArray:
        """Logarithm of an upper bound on Pr[X >= x] for x = 0 .. draws + 1, shape (draws + 2,)."""
        chosen = np.arange(draws + 1)
        logs = (
            self._marked[chosen]
            + self._others[draws - chosen]
            - self._all[draws]
            - self._factorial[chosen]
            - self._factorial[draws - chosen]
            + self._factorial[draws]
        )
        tail = np.logaddexp.accumulate(logs[::-1])[::-1] + _ROUNDING
        return np.append(tail, -np.inf)


def _least(tail: FloatArray, limit: float) -> int:
    """The smallest x whose tail is at most ``limit``; tails fall."""
    return int(np.argmax(tail <= limit))


def _exact(value: Fraction | float | str | Decimal, name: str) -> Fraction:
    try:
        exact = Fraction(value) if isinstance(value, Fraction | int) else Fraction(str(value))
    except ValueError:
        exact = Fraction(-1)
    if not 0 <= exact < 1:
        raise ParameterError(
            f"{name} is {value!r}; a fraction of the clients from 0 up to, not including, 1 is accepted"
        )
    return exact


def _complete(clients: int, corrupt: int, dropped: int, active: bool) -> Neighbourhood | None:
    """The complete graph, where nothing is left to chance."""
    neighbours = clients - 1
    least = max(_LOWEST, corrupt + 1)
    if active:
        least = max(least, (neighbours + corrupt) // 2 + 1)
    return Neighbourhood(neighbours, least) if least <= neighbours - dropped else None


@functools.lru_cache(maxsize=256)
def _choose(
    clients: int, corrupt: int, dropped: int, sigma: int, eta: int, active: bool
) -> Neighbourhood | None:
    limit = -sigma * math.log(2) - math.log(clients)
    largest = min(clients - 2, _LARGEST)
    corrupt_urn = _Urn(clients - 1, corrupt, largest)
    side_urn = _Urn(clients, corrupt, largest)
    dropped_urn = _Urn(clients - 1, dropped, largest)
    gone = corrupt + dropped
    gaps = _log_falling(gone, largest)
    places = _log_falling(clients, largest + 2)
    kept = math.log((clients - gone) * (clients - gone - 1)) if clients - gone > 1 else -math.inf
    for neighbours in range(2, largest + 1, 2):
        half = neighbours // 2
        pairs = clients * (clients - neighbours - 1) // 2
        split = math.log(max(pairs, 1)) + gaps[neighbours] + kept - places[neighbours + 2] + _ROUNDING
        if split > -sigma * math.log(2):
            continue
        least = max(_LOWEST, _least(corrupt_urn.log_tail(neighbours), limit))
        if active:
            least = max(least, half + _least(side_urn.log_tail(half), limit))
        bad = _least(dropped_urn.log_tail(neighbours), -eta * math.log(2) - math.log(clients))
        if least <= neighbours + 1 - bad:
            return Neighbourhood(neighbours, least)
    return _complete(clients, corrupt, dropped, active)


def choose_neighbourhood(
    clients: int,
    corrupt: Fraction | float,
    dropout: Fraction | float,
    *,
    sigma: int = 40,
    eta: int = 30,
    active: bool = False,
) -> Neighbourhood:
    r"""Find the fewest neighbours, and for them the lowest threshold, that keep the promises.

    The conditions are in the module's header: hypergeometric tails, summed term by term in
    logarithms and raised by more than their rounding. Run by: both sides, before a round.

    Parameters
    ----------
    clients : int
        n, at least 3.
    corrupt : Fraction
        :math:`\gamma`, the largest fraction of clients that may side with the server.
    dropout : Fraction
        :math:`\delta`, the largest fraction that may drop out.
    sigma : int
        Security holds but with probability :math:`2^{-\sigma}` (for each condition).
    eta : int
        The sum comes out but with probability :math:`2^{-\eta}`.
    active : bool
        Whether the server may lie about who dropped out.

    Returns
    -------
    Neighbourhood
        An even number of neighbours, or ``clients - 1``; and the threshold.

    Raises
    ------
    ParameterError
        A setting is outside its range, or no graph keeps the promises; says what would.

    Examples
    --------
    >>> choose_neighbourhood(10, Fraction(1, 5), Fraction(1, 5))
    Neighbourhood(neighbours=6, threshold=3)
    """
    if clients < 3:
        raise ParameterError(f"a secure sum of {clients} clients; 3 or more are accepted")
    if sigma < 1 or eta < 1:
        raise ParameterError(f"sigma {sigma} and eta {eta}; whole numbers of at least 1 are accepted")
    gamma, delta = _exact(corrupt, "corrupt"), _exact(dropout, "dropout")
    spies, gone = math.floor(gamma * clients), math.floor(delta * clients)
    found = _choose(clients, spies, gone, sigma, eta, active)
    if found is None:
        # The complete graph is the last resort: its condition says what is possible.
        bearable = clients - 2 - gone if not active else clients - 2 - 2 * gone
        what = f"at most {bearable} corrupt" if bearable >= 0 else "fewer dropouts"
        raise ParameterError(
            f"{spies} corrupt and {gone} dropped of {clients} clients cannot be borne"
            f"{' against a server that lies' if active else ''}; with {gone} dropped, {what} can"
        )
    return found
