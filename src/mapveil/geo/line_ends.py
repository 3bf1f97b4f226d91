"""The ends of the lines of a text file, for messages: DuckDB reads CSV with one kind of line end only."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

_CHUNK: Final = 1 << 20  # bytes
_QUOTE, _LF, _CR = 0x22, 0x0A, 0x0D
_CRLF: Final = 1
_WRITTEN: Final = {_LF: r"\n", _CR: r"\r", _CRLF: r"\r\n"}


class OddLine(NamedTuple):
    """The first line whose end is not that of the lines before it."""

    number: int  # from 1, as editors count
    end: str  # as an escape, such as "\\n"
    usual: str  # that of the lines before


def odd_line(path: Path) -> OddLine | None:
    """The first line of a CSV file, compressed or not, that ends unlike those before it; None where all are alike.

    Line ends inside quotes belong to a value and are passed over.
    """
    usual, lines, quoted = 0, 0, False
    for chunk in _chunks(path):
        read = np.frombuffer(chunk, dtype=np.uint8)
        inside = (np.cumsum(read == _QUOTE) + quoted) % 2 == 1
        quoted = bool(inside[-1])
        kind = np.where((read == _LF) | (read == _CR), read, 0)
        pair = np.flatnonzero((read[:-1] == _CR) & (read[1:] == _LF))
        kind[pair], kind[pair + 1] = _CRLF, 0
        at = np.flatnonzero(kind)
        plain = at[~inside[at]]
        usual = usual or (int(kind[plain[0]]) if plain.size else 0)
        odd = plain[kind[plain] != usual]
        if odd.size:
            number = lines + int(np.searchsorted(at, odd[0])) + 1
            return OddLine(number, _WRITTEN[int(kind[odd[0]])], _WRITTEN[usual])
        lines += at.size
    return None


def _chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a text, UTF-16 as UTF-8, in parts of which none but the last ends in half a line end."""
    import pyarrow

    with pyarrow.input_stream(str(path), compression="detect") as stream:
        read = bytes(stream.read(_CHUNK))
        wide = read[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        decoder, held = codecs.getincrementaldecoder("utf-16")("replace"), b""
        while read:
            text = held + (decoder.decode(read).encode("utf-8", "replace") if wide else read)
            held = text[-1:] if text[-1:] == b"\r" else b""
            text = text[: len(text) - len(held)]
            if text:
                yield text
            read = bytes(stream.read(_CHUNK))
        if held:
            yield held
