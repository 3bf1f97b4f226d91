r"""The sizes of the neighbour graph and of the committee: how many neighbours, shares and signatures a round needs.

Of n clients, :math:`c = \lfloor \gamma n \rfloor` are corrupt (they tell the server all they know) and
:math:`d = \lfloor \delta n \rfloor` drop out; both sets are fixed before the ring is ordered at random,
so that k neighbours are a uniform draw from the other n - 1 clients. With :math:`h = k/2` and
:math:`X(N, m, r)` hypergeometric (the marked among r drawn, where m of N are marked), security fails with
probability :math:`2^{-\sigma}` at most, and the sum fails to come out with probability :math:`2^{-\eta}` at most.
Where the server follows the protocol, k neighbours and a threshold of t shares fulfil

1. nobody's secrets are known to the corrupt: :math:`n \Pr[X(n - 1, c, k) \ge t] \le 2^{-\sigma - 1}`;
2. the honest survivors stay connected, so that nothing but their total can be computed. A ring in
   which each is joined to h on both sides falls apart only if two runs of h or more adjacent places
   are without honest survivors. Of :math:`r = c + d` such places, with falling factorials
   :math:`(x)_m`, the expected number of pairs of such runs is

   .. math:: \frac{n (n - 2h - 1)}{2} \cdot \frac{(r)_{2h}\, (n - r)_2}{(n)_{2h + 2}} \le 2^{-\sigma - 1};

3. the sum comes out: :math:`n \Pr[X(n - 1, d, k) > k - t] \le 2^{-\eta}`.

Against a malicious server (``active``) a committee of q clients signs the survivors, and Q of its signatures make a
quorum. The server can try :math:`2^g` orders of the ring (:math:`g` is :data:`GRINDING`). In each of them

4. nobody's secrets are known to the corrupt: :math:`2^g n \Pr[X(n - 1, c, k) \ge t] \le 2^{-\sigma - 2}`;
5. no two separate runs of h places hold :math:`t - h` corrupt clients each:
   :math:`2^g \binom{n}{2} \Pr[X(n, c, h) \ge t - h]^2 \le 2^{-\sigma - 2}` (in two separate runs the numbers of
   corrupt clients are negatively associated, so that the product bounds the probability of both);
6. two quorums share an honest member: :math:`2^g \Pr[X(n, c, q) \ge 2 Q - q] \le 2^{-\sigma - 1}`;

and 3 with :math:`2^{-\eta - 1}`, as for

7. a quorum is left: :math:`\Pr[X(n, d, q) > q - Q] \le 2^{-\eta - 1}`.

Then every sum that the server learns holds all honest clients of one set of survivors that is as large as was
promised. ``docs/explanation/secure-sums.md`` has the proof.

In the complete graph, k = n - 1, nothing is left to chance: 1 and 4 read :math:`t > c`, 3 reads
:math:`t \le k - d`, and 2 and 5 are void. A committee of everybody has a quorum where :math:`n > 2 d + c`.

Source: Bell et al. (2020), section 3, as the authors' own implementation computes it (Federated Compute,
``graph_parameter_finder``, 2020). Deviations: neighbours are drawn from n - 1 clients, not n, and in 2 a run
ends beside survivors; both are exact and move a few of its results by a step or two. And 4 to 7, where it asks
:math:`2 t > k + c_i` only, for one graph: that keeps a malicious server neither from naming different survivors to
different parts of the ring, nor from trying graphs. For 5: Joag-Dev, Proschan, "Negative Association of Random
Variables with Applications" (1983).
"""

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.epsilon import EpsilonLike, exact_number
from mapveil_client.errors import ParameterError, check

GRINDING = 40
"""Logarithm of the number of graphs that a malicious server can try: each costs a hash midstate and a partial
shuffle, about a microsecond, so that 2^40 take some 12 core-days; only the keys phase bounds the time for them."""

_LARGEST = 4096
"""No graph of more neighbours is tried, short of the complete one."""

_LOWEST = 2
"""At threshold 1 every share would be the secret itself."""

# Adding up at most 2^12 logarithms below 2^5 errs by less than 2^12 * 2^17 * 2^-53 < 1e-7.
_ROUNDING = 1e-6


class Neighbourhood(NamedTuple):
    """The degree of the neighbour graph, and the threshold of the secret sharing over it."""

    neighbours: int
    threshold: int


class Committee(NamedTuple):
    """The committee of an active round, and the number of its signatures that confirms the survivors."""

    size: int
    quorum: int


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


def _exact(value: EpsilonLike, name: str) -> Fraction:
    exact = exact_number(value)
    if exact is None or not 0 <= exact < 1:
        raise ParameterError(f"{name} must be a fraction of the clients from 0 to below 1, got {value!r}")
    return exact


def _log_split(clients: int, gone: int, largest: int) -> FloatArray:
    """Logarithm of condition 2's left side for h = 0 .. largest / 2, shape (largest // 2 + 1,)."""
    half = np.arange(largest // 2 + 1)
    runs, places = _log_falling(gone, largest), _log_falling(clients, largest + 2)
    with np.errstate(divide="ignore"):
        pairs = np.log(clients * np.maximum(clients - 2 * half - 1.0, 1.0) / 2)
        kept = np.log(float(max(clients - gone, 0)) * max(clients - gone - 1, 0))
    split: FloatArray = pairs + runs[2 * half] + kept - places[2 * half + 2] + _ROUNDING
    return split


def _complete(clients: int, corrupt: int, dropped: int) -> Neighbourhood | None:
    """The complete graph, where nothing is left to chance."""
    neighbours, least = clients - 1, max(_LOWEST, corrupt + 1)
    return Neighbourhood(neighbours, least) if least <= neighbours - dropped else None


def _refusal(clients: int, corrupt: int, dropped: int, active: bool) -> ParameterError:
    """An error with a hint: the most that the complete graph and a committee of everybody, the last resort, bear."""

    def bears(corrupt: int, dropped: int) -> bool:
        quorum = not active or 2 * dropped + corrupt < clients
        return quorum and _complete(clients, corrupt, dropped) is not None

    fewer_corrupt = next((c for c in range(corrupt, -1, -1) if bears(c, dropped)), None)
    fewer_dropped = next((d for d in range(dropped, -1, -1) if bears(corrupt, d)), None)
    if clients - 1 > _LARGEST:
        possible = f"graphs of up to {_LARGEST} neighbours bear fewer"
    elif fewer_corrupt is not None:
        possible = f"with {dropped} dropped, at most {fewer_corrupt} corrupt can"
    elif fewer_dropped is not None:
        possible = f"with {corrupt} corrupt, at most {fewer_dropped} dropped can"
    else:
        possible = "fewer of both can"
    against = " against a malicious server" if active else ""
    return ParameterError(
        f"{corrupt} corrupt and {dropped} dropped of {clients} clients cannot be borne{against}; {possible}"
    )


@functools.lru_cache(maxsize=256)
def _choose(
    clients: int, corrupt: int, dropped: int, sigma: int, eta: int, active: bool
) -> Neighbourhood | None:
    each = math.log(clients)
    failure = -(sigma + 2 + GRINDING if active else sigma + 1) * math.log(2)
    pairs = math.log(clients * (clients - 1) / 2)
    largest = min(clients - 2, _LARGEST)
    corrupt_urn = _Urn(clients - 1, corrupt, largest)
    side_urn = _Urn(clients, corrupt, largest)
    dropped_urn = _Urn(clients - 1, dropped, largest)
    split = _log_split(clients, corrupt + dropped, largest)
    for neighbours in range(2, largest + 1, 2):
        half = neighbours // 2
        if not active and split[half] > failure:
            continue
        least = _least(corrupt_urn.log_tail(neighbours), failure - each)
        if active:
            least = max(least, half + _least(side_urn.log_tail(half), (failure - pairs) / 2))
        lost = _least(dropped_urn.log_tail(neighbours), -(eta + active) * math.log(2) - each) - 1
        threshold = max(least, _LOWEST)
        if threshold <= neighbours - lost:
            return Neighbourhood(neighbours, threshold)
    if clients - 1 > _LARGEST:
        return None
    return _complete(clients, corrupt, dropped)


@functools.lru_cache(maxsize=256)
def _choose_committee(clients: int, corrupt: int, dropped: int, sigma: int, eta: int) -> Committee | None:
    largest = min(clients, _LARGEST)
    corrupt_urn, dropped_urn = _Urn(clients, corrupt, largest), _Urn(clients, dropped, largest)
    for size in range(1, largest + 1):
        most = _least(corrupt_urn.log_tail(size), -(sigma + 1 + GRINDING) * math.log(2)) - 1
        lost = _least(dropped_urn.log_tail(size), -(eta + 1) * math.log(2)) - 1
        quorum = (size + most) // 2 + 1
        if quorum <= size - lost:
            return Committee(size, quorum)
    return None


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

    The conditions are in the module's header; their tails are summed term by term in logarithms and raised by more
    than their rounding. Run by: both sides, before a round.

    Parameters
    ----------
    clients : int
        n, at least 3.
    corrupt, dropout : Fraction
        :math:`\gamma` and :math:`\delta`, the largest fractions that may side with the server, and that may drop out.
    sigma, eta : int
        Security fails with probability :math:`2^{-\sigma}`, the sum with :math:`2^{-\eta}`.
    active : bool
        Whether the server may be malicious.

    Returns
    -------
    Neighbourhood
        An even number of neighbours, or ``clients - 1``; and the threshold.

    Raises
    ------
    ParameterError
        A setting is outside its range, or no graph keeps the promises.

    Examples
    --------
    >>> choose_neighbourhood(10, Fraction(1, 5), Fraction(1, 5))
    Neighbourhood(neighbours=6, threshold=3)
    """
    spies, gone = _count(clients, corrupt, dropout, sigma, eta)
    found = _choose(clients, spies, gone, sigma, eta, active)
    if found is None:
        raise _refusal(clients, spies, gone, active)
    return found


def choose_committee(
    clients: int,
    corrupt: Fraction | float,
    dropout: Fraction | float,
    *,
    sigma: int = 40,
    eta: int = 30,
) -> Committee:
    r"""Find the smallest committee whose quorums share an honest member, and the least quorum for it.

    Conditions 6 and 7 of the module's header. Run by: both sides, before an active round.

    Parameters
    ----------
    clients, corrupt, dropout, sigma, eta
        As for :func:`choose_neighbourhood`.

    Raises
    ------
    ParameterError
        A setting is outside its range, or no committee keeps the promises.

    Examples
    --------
    >>> choose_committee(10, Fraction(1, 5), Fraction(1, 5))
    Committee(size=7, quorum=5)
    """
    spies, gone = _count(clients, corrupt, dropout, sigma, eta)
    found = _choose_committee(clients, spies, gone, sigma, eta)
    if found is None:
        raise _refusal(clients, spies, gone, active=True)
    return found


def _count(
    clients: int, corrupt: Fraction | float, dropout: Fraction | float, sigma: int, eta: int
) -> tuple[int, int]:
    """The most clients that may be corrupt, and drop out, of settings within their ranges."""
    check(clients >= 3, "clients", "3 or more", clients)
    check(min(sigma, eta) >= 1, "sigma and eta", "at least 1", (sigma, eta))
    gamma, delta = _exact(corrupt, "corrupt"), _exact(dropout, "dropout")
    return math.floor(gamma * clients), math.floor(delta * clients)
