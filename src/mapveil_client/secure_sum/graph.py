r"""The neighbour graph: clients around a ring in random order, each joined to the nearest on both sides.

Client i stands at place :math:`\pi^{-1}(i)` of the ring. Of its k neighbours, slot s (1 .. k) holds

- for k even: the client :math:`s` places ahead where :math:`s \le k/2`, else :math:`k + 1 - s` behind;
- for the complete graph, k = n - 1: the client :math:`s` places ahead.

So the slots mirror each other: if j is in slot s of i, then i is in slot :math:`k + 1 - s` of j. The
slot is also the point at which the neighbour's share of a secret is taken.

Source: Bell et al. (2020), section 3.3: a Harary graph with its nodes permuted.

How many neighbours a client needs, and how many of them must answer.

Of n clients, :math:`c = \lfloor \gamma n \rfloor` are corrupt (they tell the server all they know) and
:math:`d = \lfloor \delta n \rfloor` drop out; both sets are fixed before the ring is ordered at random,
so that k neighbours are a uniform draw from the other n - 1 clients. With :math:`h = k/2` and
:math:`X(N, m, r)` hypergeometric (the marked among r drawn, where m of N are marked), security fails with
probability :math:`2^{-\sigma}` at most, half of it for each of two conditions, and the sum fails to come
out with probability :math:`2^{-\eta}` at most:

1. nobody's secrets are known to the corrupt: :math:`n \Pr[X(n - 1, c, k) \ge t] \le 2^{-\sigma - 1}`;
2. the honest survivors stay connected, so that nothing but their total can be computed. A ring in
   which each is joined to h on both sides falls apart only if two runs of h or more adjacent places
   are without honest survivors. Of :math:`r = c + d` such places, with falling factorials
   :math:`(x)_m`, the expected number of pairs of such runs is

   .. math:: \frac{n (n - 2h - 1)}{2} \cdot \frac{(r)_{2h}\, (n - r)_2}{(n)_{2h + 2}} \le 2^{-\sigma - 1};

3. the sum comes out: :math:`n \Pr[X(n - 1, d, k) > k - t] \le 2^{-\eta}`.

Against a malicious server (``active``) 1 is replaced by the stronger

4. no client has too many corrupt neighbours on one side, in any graph of :math:`2^g` that the server can try
   (:math:`g` is :data:`GRINDING`): :math:`2^g n \Pr[X(n, c, h) \ge t - h] \le 2^{-\sigma - 1}`;
5. few honest neighbours can be left out: :math:`(n - c)(6 t - 7 h) > 2 c (7 h - 3 t)`.

Then no client's two secrets are known to the server, and every sum that it learns holds more than half of the honest
clients of one roster. ``docs/explanation/secure-sums.md`` has the proof.

In the complete graph, k = n - 1, nothing is left to chance: 1 reads :math:`t > c`, 3 reads
:math:`t \le k - d`, and 4 and 5 read :math:`2 t > k + c`.

Source: Bell et al. (2020), section 3, as the authors' own implementation computes it (Federated Compute,
``graph_parameter_finder``, 2020). Deviations: neighbours are drawn from n - 1 clients, not n, and in 2 a run
ends beside survivors; both are exact and move a few of its results by a step or two. And 4 and 5, where it asks
:math:`2 t > k + c_i` only, for one graph: that keeps a malicious server neither from splitting the ring, nor from
trying graphs.
"""

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.epsilon import EpsilonLike, exact_number
from mapveil_client.errors import ParameterError, check
from mapveil_client.secure_sum.masks import SEED_BYTES, Purpose, info


def permutation(clients: int, seed: bytes) -> IntArray:
    """Order the clients at random: the client at each place, shape (clients,), int64. Run by: both sides.

    Sorts 64-bit words of the keystream of ``seed`` (32 bytes); in the unlikely case that two are equal, all are drawn
    again further along the stream.

    Raises
    ------
    ParameterError
        The seed has another length.
    """
    check(len(seed) == SEED_BYTES, "a graph seed", f"{SEED_BYTES} bytes", len(seed))
    key = HKDFExpand(algorithm=SHA256(), length=32, info=info(Purpose.GRAPH, b"", b"")).derive(seed)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    while True:
        words = np.frombuffer(stream.update(bytes(8 * clients)), dtype="<u8")
        order = np.argsort(words, kind="stable")
        if np.all(np.diff(words[order]) > 0):
            return order.astype(np.int64)


def harary_graph(
    clients: int, neighbours: int, permutation: npt.NDArray[np.integer]
) -> npt.NDArray[np.int32]:
    """List the k neighbours of each of n clients, shape (n, k): row i, column s - 1 is the client in slot s of i.

    ``permutation`` is the client at each place of the ring. Run by: both sides.

    Raises
    ------
    ParameterError
        There is no such graph, or ``permutation`` is none of 0 .. n - 1.
    """
    good = 0 < neighbours < clients and (neighbours % 2 == 0 or neighbours == clients - 1)
    check(good, "neighbours", f"even and below {clients}, or {clients - 1}", neighbours)
    order = np.asarray(permutation)
    good = order.shape == (clients,) and np.array_equal(np.sort(order), np.arange(clients))
    check(good, "permutation", f"an order of the clients 0 .. {clients - 1}", order)
    half = (neighbours + 1) // 2
    ahead = np.arange(1, neighbours + 1)
    ahead[half:] += clients - 1 - neighbours  # behind, counted ahead around the ring
    # The ring twice over: the windows of each place are then plain slices.
    ring = np.concatenate([order, order]).astype(np.int32)
    made = np.empty((clients, neighbours), dtype=np.int32)
    made[order] = ring[np.arange(clients)[:, None] + ahead]
    return made


class Ring(NamedTuple):
    """The graph drawn from one seed. Arrays are shared and read-only."""

    seed: bytes
    order: IntArray  # the client at each place of the ring
    neighbours: npt.NDArray[np.int32]  # of each client, by slot, shape (n, k)

    def connected(self, included: BoolArray) -> bool:
        """Whether the clients ``included`` form one piece: otherwise the sum would come apart.

        Two clients are neighbours up to k / 2 places apart, so only wider gaps on the ring part
        them; the ring falls in two where there are two such gaps. The complete graph never does.
        """
        clients, slots = self.neighbours.shape
        if slots == clients - 1:
            return True
        places = np.flatnonzero(included[self.order])
        if not places.size:
            return True
        gaps = np.diff(places, append=places[0] + clients)
        return int(np.count_nonzero(gaps > slots // 2)) <= 1


@functools.lru_cache(maxsize=2)
def make_ring(clients: int, neighbours: int, seed: bytes) -> Ring:
    """Draw the graph of a round of n clients with k neighbours each from a seed of 32 bytes."""
    order = permutation(clients, seed)
    made = harary_graph(clients, neighbours, order)
    order.flags.writeable = made.flags.writeable = False
    return Ring(seed, order, made)


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


def _holds_most(clients: int, corrupt: int, half: int, threshold: int) -> bool:
    """Condition 5."""
    kept, lost = (clients - corrupt) * (6 * threshold - 7 * half), 2 * corrupt * (7 * half - 3 * threshold)
    return kept > lost


def _complete(clients: int, corrupt: int, dropped: int, active: bool) -> Neighbourhood | None:
    """The complete graph, where nothing is left to chance."""
    neighbours = clients - 1
    least = max(_LOWEST, corrupt + 1)
    if active:
        least = max(least, (neighbours + corrupt) // 2 + 1)
    return Neighbourhood(neighbours, least) if least <= neighbours - dropped else None


def _possible(clients: int, corrupt: int, dropped: int, active: bool) -> str:
    """A hint: the most that the complete graph, the last resort, bears."""
    for fewer in range(corrupt, -1, -1):
        if _complete(clients, fewer, dropped, active):
            return f"with {dropped} dropped, at most {fewer} corrupt can"
    for fewer in range(dropped, -1, -1):
        if _complete(clients, corrupt, fewer, active):
            return f"with {corrupt} corrupt, at most {fewer} dropped can"
    return "fewer of both can"


@functools.lru_cache(maxsize=256)
def _choose(
    clients: int, corrupt: int, dropped: int, sigma: int, eta: int, active: bool
) -> Neighbourhood | None:
    half_failure, each = -(sigma + 1) * math.log(2), math.log(clients)
    largest = min(clients - 2, _LARGEST)
    corrupt_urn = _Urn(clients - 1, corrupt, largest)
    side_urn = _Urn(clients, corrupt, largest)
    dropped_urn = _Urn(clients - 1, dropped, largest)
    split = _log_split(clients, corrupt + dropped, largest)
    for neighbours in range(2, largest + 1, 2):
        half = neighbours // 2
        if split[half] > half_failure:
            continue
        if active:
            least = half + _least(side_urn.log_tail(half), half_failure - GRINDING * math.log(2) - each)
        else:
            least = _least(corrupt_urn.log_tail(neighbours), half_failure - each)
        lost = _least(dropped_urn.log_tail(neighbours), -eta * math.log(2) - each) - 1
        for threshold in range(max(least, _LOWEST), neighbours - lost + 1):
            if not active or _holds_most(clients, corrupt, half, threshold):
                return Neighbourhood(neighbours, threshold)
    if clients - 1 > _LARGEST:
        return None
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
    check(clients >= 3, "clients", "3 or more", clients)
    check(min(sigma, eta) >= 1, "sigma and eta", "at least 1", (sigma, eta))
    gamma, delta = _exact(corrupt, "corrupt"), _exact(dropout, "dropout")
    spies, gone = math.floor(gamma * clients), math.floor(delta * clients)
    found = _choose(clients, spies, gone, sigma, eta, active)
    if found is None:
        against = " against a malicious server" if active else ""
        possible = f"graphs of up to {_LARGEST} neighbours bear fewer"
        if clients - 1 <= _LARGEST:
            possible = _possible(clients, spies, gone, active)
        raise ParameterError(
            f"{spies} corrupt and {gone} dropped of {clients} clients cannot be borne{against}; {possible}"
        )
    return found
