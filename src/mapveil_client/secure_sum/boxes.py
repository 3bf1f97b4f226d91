r"""The boxes in which clients deal secret shares: sealed, opened, and shown to the server where one is wrong.

The box from client i to client j is

.. math:: \mathrm{H}(h_{ij}, h_{ji}) \,\|\, \mathrm{HMAC}_{M_{ij}}(d \,\|\, c) \,\|\, d \,\|\, c, \qquad
    d = \mathrm{H}(u) \,\|\, \mathrm{H}(v), \quad c = \mathrm{Seal}_{K_{ij}}(u \,\|\, v), \quad
    h_{ij} = \mathrm{SHA256}(M_{ij})

where: :math:`u, v` are the shares of i's self-mask seed and mask key, :math:`K_{ij}` is the box's sealing key, from the
pair key that only i and j derive, :math:`M_{ij}` the key of its tag, which follows from :math:`K_{ij}`, and
:math:`\mathrm{H}` the first 16 bytes of SHA-256 with a purpose.

The server compares the first digest of both boxes of a pair before it delivers either, so that a client can show it one
:math:`M_{ij}` only. With a box whose tag is wrong, j shows :math:`M_{ij}`, which opens nothing. Where the tag is right,
i made the box; if it does not open, or holds other shares than their digests say, j shows :math:`K_{ij}`. So nobody but
its dealer can make a box whose sealing key an honest holder shows.

Nobody finds a second input of an honest client's digest with less than 2^128 work. A digest hides a share: given any
t - 1 other shares, this one depends on 256 uniform bits.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.secure_sum.masks import TAG_BYTES, Purpose, in_order, info, open_sealed, seal
from mapveil_client.secure_sum.messages import (
    DIGEST_BYTES,
    KEY_BYTES,
    PAIR_DIGEST,
    SHARE_BYTES,
)
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.shamir import PRIME
from mapveil_client.secure_sum.states import PeerFault

_DIGESTS = slice(TAG_BYTES, TAG_BYTES + 2 * DIGEST_BYTES)  # of a box as it is delivered


def _number(client: int) -> bytes:
    return client.to_bytes(4, "big")


def _digest(parameters: RoundParameters, purpose: Purpose, *parts: bytes) -> bytes:
    named = info(purpose, parameters.round_id, parameters.digest, *parts)
    return hashlib.sha256(named).digest()[:DIGEST_BYTES]


def sealing_key(pair: bytes, sender: int, receiver: int) -> bytes:
    """The key of the one box that ``sender`` seals to ``receiver``: HMAC-SHA256 of the direction."""
    return hmac.digest(pair, _number(sender) + _number(receiver), "sha256")


def tag_key(parameters: RoundParameters, sealing: bytes) -> bytes:
    """The key of a box's tag, 32 bytes: it follows from the sealing key, which it does not tell."""
    return hmac.digest(sealing, info(Purpose.BOX_TAG, parameters.round_id, parameters.digest), "sha256")


def pair_digest(parameters: RoundParameters, one: int, other: int, there: bytes, back: bytes) -> bytes:
    """The digest of the keys of both boxes of a pair, 16 bytes: the same from either side.

    Parameters
    ----------
    there, back : bytes
        SHA-256 of the tag's key of the box from ``one`` to ``other``, and of the box back.
    """
    ends = sorted(((one, there), (other, back)))
    parts = (part for client, hashed in ends for part in (_number(client), hashed))
    return _digest(parameters, Purpose.PAIR_DIGEST, *parts)


def share_digest(
    parameters: RoundParameters, graph_seed: bytes, dealer: int, holder: int, secret: int, share: bytes
) -> bytes:
    """The digest of one share, 16 bytes: of the dealer's self-mask seed (``secret`` 0) or of its mask key (1)."""
    made = _of_shares(parameters.round_id, parameters.digest, graph_seed).copy()
    made.update(in_order(_number(dealer) + _number(holder), bytes([secret]), share))
    return made.digest()[:DIGEST_BYTES]


_HASHED = (
    np.dtype(  # what :func:`share_digest` hashes behind the beginning of all: each part behind its length
        [
            *(("ends_bytes", ">u4"), ("dealer", ">u4"), ("holder", ">u4")),
            *(("secret_bytes", ">u4"), ("secret", "u1")),
            *(("share_bytes", ">u4"), ("share", "u1", SHARE_BYTES)),
        ]
    )
)


def share_digests(
    parameters: RoundParameters,
    graph_seed: bytes,
    dealers: IntArray,
    holder: int,
    secrets: IntArray,
    shares: npt.NDArray[np.uint8],
) -> npt.NDArray[np.uint8]:
    """:func:`share_digest` of many shares that one client holds: ``dealers`` (m,) and ``shares`` (m, 34) to (m, 16)."""
    hashed = np.empty(dealers.size, dtype=_HASHED)
    hashed["ends_bytes"], hashed["dealer"], hashed["holder"] = 8, dealers, holder
    hashed["secret_bytes"], hashed["secret"] = 1, secrets
    hashed["share_bytes"], hashed["share"] = SHARE_BYTES, shares
    beginning, whole = _of_shares(parameters.round_id, parameters.digest, graph_seed), hashed.tobytes()
    made = bytearray()
    for at in range(0, len(whole), _HASHED.itemsize):
        one = beginning.copy()
        one.update(whole[at : at + _HASHED.itemsize])
        made += one.digest()[:DIGEST_BYTES]
    return np.frombuffer(made, dtype=np.uint8).reshape(-1, DIGEST_BYTES)


@lru_cache(maxsize=64)
def _of_shares(round_id: bytes, context: bytes, graph_seed: bytes) -> hashlib._Hash:
    """The beginning of all digests of shares of a round, which a server checks a million of."""
    return hashlib.sha256(info(Purpose.SHARE_DIGEST, round_id, context, graph_seed))


def _share_digests(
    parameters: RoundParameters, graph_seed: bytes, dealer: int, holder: int, shares: bytes
) -> bytes:
    both = enumerate((shares[:SHARE_BYTES], shares[SHARE_BYTES:]))
    return b"".join(share_digest(parameters, graph_seed, dealer, holder, *each) for each in both)


def _tag(key: bytes, tagged: bytes) -> bytes:
    return hmac.digest(key, tagged, "sha256")[:TAG_BYTES]


def seal_box(
    parameters: RoundParameters, graph_seed: bytes, pair: bytes, dealer: int, holder: int, shares: bytes
) -> bytes:
    """Seal two shares, of the self-mask seed and of the mask key, to their holder. Run by: the client.

    ``pair`` is the pair key of the two for their boxes, 32 bytes; ``shares`` 68 bytes, the box 148.
    """
    key = sealing_key(pair, dealer, holder)
    tagging = tag_key(parameters, key)
    there, back = (
        hashlib.sha256(each).digest()
        for each in (tagging, tag_key(parameters, sealing_key(pair, holder, dealer)))
    )
    sealed = seal(key, shares, parameters.digest, parameters.cipher)
    tagged = _share_digests(parameters, graph_seed, dealer, holder, shares) + sealed
    return pair_digest(parameters, dealer, holder, there, back) + _tag(tagging, tagged) + tagged


def _tagged_rightly(key: bytes, delivered: bytes) -> bool:
    return hmac.compare_digest(_tag(key, delivered[TAG_BYTES:]), delivered[:TAG_BYTES])


def open_box(
    parameters: RoundParameters, graph_seed: bytes, key: bytes, dealer: int, holder: int, delivered: bytes
) -> bytes:
    """Open a box and check the shares in it, 68 bytes. Run by: the client; the server, where a client complains.

    Parameters
    ----------
    key : bytes
        Key of this box, 32 bytes, of :func:`sealing_key`.
    delivered : bytes
        The box without its first digest, 132 bytes.

    Raises
    ------
    PeerFault
        Its tag is wrong, it does not open, or it holds other shares than the digests say, or no shares.
    """
    if not _tagged_rightly(tag_key(parameters, key), delivered):
        raise PeerFault(f"a box that is not as client {dealer} tagged it")
    shares = open_sealed(key, delivered[_DIGESTS.stop :], parameters.digest, parameters.cipher)
    if len(shares) != 2 * SHARE_BYTES or np.any(np.frombuffer(shares, dtype="<u2") >= PRIME):
        raise PeerFault(f"client {dealer} dealt a share with a number of {PRIME} or above")
    if _share_digests(parameters, graph_seed, dealer, holder, shares) != delivered[_DIGESTS]:
        raise PeerFault(f"client {dealer} dealt other shares than their digests say")
    return shares


def complain(parameters: RoundParameters, pair: bytes, dealer: int, holder: int, delivered: bytes) -> bytes:
    """Show the server what is wrong with a box, 64 bytes. Run by: the client.

    The key of the tag where that is wrong: whoever altered the box learns nothing from it. The sealing key where the
    tag is right: then the dealer made the box as it is. With it the hash of the tag's key of the box back.
    """
    key, back = (sealing_key(pair, *ends) for ends in ((dealer, holder), (holder, dealer)))
    tagging = tag_key(parameters, key)
    shown = key if _tagged_rightly(tagging, delivered) else tagging
    return shown + hashlib.sha256(tag_key(parameters, back)).digest()


def check_complaint(
    parameters: RoundParameters, graph_seed: bytes, dealer: int, holder: int, box: bytes, complaint: bytes
) -> None:
    """Refuse a complaint about a box that is right, or with a key that is not the pair's. Run by: the server.

    Parameters
    ----------
    box : bytes
        The whole box from the dealer to the holder, 148 bytes; its first digest is also that of the box back.
    complaint : bytes
        The 64 bytes of :func:`complain`.

    Raises
    ------
    PeerFault
        The holder complains falsely.
    """
    key, back = complaint[:KEY_BYTES], complaint[KEY_BYTES:]
    delivered = box[PAIR_DIGEST.stop :]

    def of_pair(tagging: bytes) -> bool:
        there = hashlib.sha256(tagging).digest()
        return pair_digest(parameters, dealer, holder, there, back) == box[PAIR_DIGEST]

    if of_pair(key):
        if not _tagged_rightly(key, delivered):
            return
    elif of_pair(tag_key(parameters, key)):
        try:
            open_box(parameters, graph_seed, key, dealer, holder, delivered)
        except PeerFault:
            return
    else:
        raise PeerFault(f"a complaint about the box of client {dealer} with a key that is not their pair's")
    raise PeerFault(f"a complaint about the box of client {dealer}, which is right")
