"""The parameters that all parties of one round agree on before it starts, and the settings that they follow from."""

import functools
import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction

from mapveil_client.canonical_cbor import encode
from mapveil_client.errors import check
from mapveil_client.secure_sum.graph_sizes import choose_committee, choose_neighbourhood
from mapveil_client.secure_sum.masks import PROTOCOL, VERSION, Cipher
from mapveil_client.secure_sum.shamir import PRIME

_MOST_CLIENTS = 1 << 24
_MOST_LENGTH = 1 << 30
_MOST_NAME = 255


@dataclass(frozen=True, kw_only=True)
class RoundParameters:
    """One round of one shard. Clients are numbered 0 .. ``clients`` - 1.

    Parameters
    ----------
    round_id : bytes
        Name of this execution; never used twice, 1 to 255 bytes.
    context : bytes
        Name of the application and its query, at most 255 bytes.
    clients : int
        Number of invited clients, n; those who never answer count as dropped.
    neighbours : int
        Neighbours of each client, k: even or n - 1.
    threshold : int
        Number of shares that give a secret back, t: 2 .. k.
    length : int
        Coordinates of a vector, at least 1.
    bits : int
        b: sums are taken modulo 2^b, 1 to 64.
    minimum : int
        Fewest vectors of a sum that the clients help to reveal, at least 2.
    cipher : Cipher
        Cipher of the masks and, in the same family, of the sealed shares.
    signed : bool
        Whether every client signs its keys with a device identity, and checks its neighbours'.
    active : bool
        Whether clients check that all were told the same survivors; needs ``signed``.
    committee, quorum : int
        Size of the committee whose signatures confirm the survivors, q: 1 .. n; how many of them do, Q: more than half.
        Both 0 where the round is not active.

    Raises
    ------
    ParameterError
        A parameter is outside its range.
    """

    round_id: bytes
    context: bytes = b""
    clients: int
    neighbours: int
    threshold: int
    length: int
    bits: int
    minimum: int
    cipher: Cipher = Cipher.AES_256_CTR
    signed: bool = False
    active: bool = False
    committee: int = 0
    quorum: int = 0

    def __post_init__(self) -> None:
        n, k, t = self.clients, self.neighbours, self.threshold
        even = 2 <= k < min(n, PRIME) and (k % 2 == 0 or k == n - 1)
        check(1 <= len(self.round_id) <= _MOST_NAME, "round_id", f"1 to {_MOST_NAME} bytes", self.round_id)
        check(len(self.context) <= _MOST_NAME, "context", f"at most {_MOST_NAME} bytes", self.context)
        check(3 <= n <= _MOST_CLIENTS, "clients", f"3 to {_MOST_CLIENTS}", n)
        check(even, "neighbours", f"even and below {n}, or {n - 1}", k)
        check(2 <= t <= k, "threshold", f"2 to {k}", t)
        check(1 <= self.length <= _MOST_LENGTH, "length", f"1 to {_MOST_LENGTH}", self.length)
        check(1 <= self.bits <= 64, "bits", "1 to 64", self.bits)
        check(2 <= self.minimum <= n, "minimum", f"2 to {n}", self.minimum)
        check(self.signed or not self.active, "signed", "True for an active round", self.signed)
        q, least = (self.committee, 1) if self.active else (0, 0)
        check(
            least <= self.committee <= least * n,
            "committee",
            f"1 to {n}, or 0 where not active",
            self.committee,
        )
        # Otherwise two disjoint quorums could confirm different survivors.
        good = least * (q // 2 + 1) <= self.quorum <= q
        check(good, "quorum", f"more than half of the committee of {q}", self.quorum)

    @functools.cached_property
    def digest(self) -> bytes:
        """SHA-256 of every parameter, 32 bytes: in each message, so that parties who differ never meet."""
        numbers = (
            *(self.clients, self.neighbours, self.threshold, self.length, self.bits, self.minimum),
            *(int(self.cipher), int(self.signed), int(self.active), self.committee, self.quorum),
        )
        return hashlib.sha256(encode([PROTOCOL, VERSION, self.round_id, self.context, *numbers])).digest()


@dataclass(frozen=True, kw_only=True)
class SumSettings:
    r"""The settings of a secure sum.

    Parameters
    ----------
    length, bits, round_id, context, cipher, active
        As in :class:`RoundParameters`; each shard's run adds random bytes to the name of the round.
    corrupt, dropout : Fraction
        Largest fractions of a shard that may side with the server, and that may drop out.
    sigma, eta : int
        Security fails with probability :math:`2^{-\sigma}`, the sum with :math:`2^{-\eta}`.

    Raises
    ------
    ParameterError
        A setting is outside its range.
    """

    length: int
    bits: int
    corrupt: Fraction = Fraction(0)
    dropout: Fraction = Fraction(0)
    round_id: bytes
    context: bytes = b""
    cipher: Cipher = Cipher.AES_256_CTR
    active: bool = False
    sigma: int = 40
    eta: int = 30

    def __post_init__(self) -> None:
        check(self.length >= 1, "length", "at least 1", self.length)
        check(1 <= self.bits <= 64, "bits", "1 to 64", self.bits)
        for name in ("corrupt", "dropout"):
            value = getattr(self, name)
            check(0 <= value < 1, name, "a fraction from 0 to below 1", value)

    def promised(self, clients: int) -> int:
        r"""The fewest vectors that the sum of a shard may hold, :math:`n - \lfloor \delta n \rfloor`."""
        return clients - math.floor(self.dropout * clients)

    def parameters(self, clients: int, run: bytes = b"") -> RoundParameters:
        """The parameters of one shard of ``clients``; ``run`` is added to the round's name.

        Raises
        ------
        ParameterError
            No graph keeps the promises, or a setting is outside its range.
        """
        mixed, failure = (clients, self.corrupt, self.dropout), {"sigma": self.sigma, "eta": self.eta}
        neighbours, threshold = choose_neighbourhood(*mixed, **failure, active=self.active)
        committee, quorum = choose_committee(*mixed, **failure) if self.active else (0, 0)
        return RoundParameters(
            round_id=self.round_id + run,
            context=self.context,
            clients=clients,
            neighbours=neighbours,
            threshold=threshold,
            length=self.length,
            bits=self.bits,
            minimum=max(2, self.promised(clients)),
            cipher=self.cipher,
            signed=self.active,
            active=self.active,
            committee=committee,
            quorum=quorum,
        )
