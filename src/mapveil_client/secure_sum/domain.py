"""Domain separation: every hash, key and signature of a secure sum names what it is for.

Two uses can never share an input, because each input starts with the protocol's name and version
and the number of its purpose, and every part after it is preceded by its length.
"""

from __future__ import annotations

from enum import IntEnum

PROTOCOL = b"mapveil secure sum"
VERSION = 1

_LENGTH_BYTES = 4


class Purpose(IntEnum):
    """What a derived key, a hash or a signature is for; numbers are never given anew."""

    PAIR_MASK = 1  # seed of the mask that one of a pair adds and the other subtracts
    SELF_MASK = 2  # seed of the mask that a client adds alone
    SEALING = 3  # key that seals the shares on their way from one client to another
    KEY_SIGNATURE = 4  # a device's signature of the keys it advertises
    SURVIVOR_SIGNATURE = 5  # a client's signature of the clients it was told are in the sum
    SEED_COMMITMENT = 6  # hash that binds a client to its self-mask seed
    GRAPH = 7  # stream that orders the clients around the ring
    SURVIVOR_SET = 8  # hash of the clients that are in the sum


def info(purpose: Purpose, round_id: bytes, context: bytes, *parts: bytes) -> bytes:
    r"""Write a purpose and its particulars as one string of bytes; distinct particulars differ.

    .. math:: \mathrm{name} \,\|\, \mathrm{version}_2 \,\|\, \mathrm{purpose}_2 \,\|\, |r|_4\, r \,\|\,
        |c|_4\, c \,\|\, |p_1|_4\, p_1 \,\|\, \dots

    where: :math:`r` is ``round_id``, :math:`c` is ``context``, :math:`p_i` are ``parts``, and
    :math:`x_n` is a number in n bytes, most significant first. Run by: both sides.

    Parameters
    ----------
    purpose : Purpose
        What the result will be hashed, expanded or signed for.
    round_id : bytes
        Names the one execution of the protocol.
    context : bytes
        Names the application and its query.
    parts : bytes
        Whatever else the purpose depends on, such as the two clients' keys.

    Examples
    --------
    >>> info(Purpose.GRAPH, b"r", b"").hex(" ")[-29:]
    '07 00 00 00 01 72 00 00 00 00'
    """
    written = [PROTOCOL, VERSION.to_bytes(2, "big"), int(purpose).to_bytes(2, "big")]
    for part in (round_id, context, *parts):
        written += (len(part).to_bytes(_LENGTH_BYTES, "big"), part)
    return b"".join(written)
