"""The part of CBOR that messages use: one array of unsigned integers and byte strings.

The encoding is RFC 8949's core deterministic one (section 4.2.1: shortest heads, definite lengths),
so a list of values has exactly one encoding. The decoder accepts that one and nothing else; it
copies no more than the message holds and builds no other type, whatever the bytes say.

Deviation: a general CBOR library followed by a comparison with the re-encoded bytes accepts the same
messages, but runs its tag handlers (dates, expressions, big numbers) on a stranger's bytes first. The
library is the tests' oracle.
"""

from collections.abc import Sequence

_UINT, _BYTES, _ARRAY = 0, 2, 4
_MOST_FIELDS = 23


class NotCanonical(ValueError):
    """The bytes are not the one encoding of an array of unsigned integers and byte strings."""


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    for code, width in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * width:
            return bytes([major << 5 | code]) + number.to_bytes(width, "big")
    raise NotCanonical(f"{number} has more than 64 bits")


def encode(values: Sequence[int | bytes]) -> bytes:
    """Encode a flat list, of at most 23 unsigned integers and byte strings."""
    if len(values) > _MOST_FIELDS:
        raise NotCanonical(f"{len(values)} values; expected at most {_MOST_FIELDS}")
    parts = [_head(_ARRAY, len(values))]
    for value in values:
        if isinstance(value, int):
            parts.append(_head(_UINT, value))
        else:
            parts += [_head(_BYTES, len(value)), value]
    return b"".join(parts)


def encoded_size(lengths: Sequence[int]) -> int:
    """Bytes that byte strings of these lengths take, each with its head."""
    return sum(length + len(_head(_BYTES, length)) for length in lengths)


def _read_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Major type, number, and where the head ends."""
    if at >= len(data):
        raise NotCanonical("it ends early")
    major, code = data[at] >> 5, data[at] & 31
    if code < 24:
        return major, code, at + 1
    if code > 27:
        raise NotCanonical(f"a head of kind {code} at byte {at}; expected definite lengths")
    width = 1 << (code - 24)
    end = at + 1 + width
    if end > len(data):
        raise NotCanonical("it ends early")
    number = int.from_bytes(data[at + 1 : end], "big")
    if number < (24 if width == 1 else 1 << 4 * width):
        raise NotCanonical(f"a head at byte {at} that is longer than need be")
    return major, number, end


def decode(data: bytes) -> list[int | bytes]:
    """Decode a flat list from its one encoding.

    Raises
    ------
    NotCanonical
        Anything else: another type, a longer head, nesting, too few or too many bytes.
    """
    major, count, at = _read_head(data, 0)
    if major != _ARRAY or count > _MOST_FIELDS:
        raise NotCanonical(f"not an array of at most {_MOST_FIELDS} values")
    return decode_values(data, at, count)


def decode_values(data: bytes, at: int, count: int) -> list[int | bytes]:
    """Decode the last values of a list, which begin at a byte of its encoding; raises as :func:`decode`."""
    values: list[int | bytes] = []
    for _ in range(count):
        major, number, at = _read_head(data, at)
        if major == _UINT:
            values.append(number)
        elif major == _BYTES:
            if number > len(data) - at:
                raise NotCanonical("it ends early")
            values.append(data[at : at + number])
            at += number
        else:
            raise NotCanonical(f"a value of major type {major} before byte {at}; expected 0 and 2")
    if at != len(data):
        raise NotCanonical(f"{len(data) - at} bytes after its end")
    return values
