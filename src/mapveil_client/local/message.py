"""The report of a local method as a message: one canonical CBOR array (``local.cddl``)::

    [version, kind, domain, setting, symbol]     a symbol, an unsigned integer
    [version, kind, domain, setting, set]        a set of sites, a byte string of one bit for each

In a series a sixth field is the number of the window that the client drew, from 0.

``domain`` is the fingerprint of the tiling, ``setting`` that of the randomizer on it: its kind and its integer weights.
They tell a report on another domain, or of another randomizer, from one that is garbled.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from mapveil_client import canonical_cbor
from mapveil_client.errors import InputError
from mapveil_client.local.randomizer import Randomizer, Reports, SetRandomizer

VERSION: Final = 1
_FIELDS: Final = 5


def setting_fingerprint(randomizer: Randomizer) -> bytes:
    """16 bytes that tell this randomizer from every other, whatever the domain."""
    record = f"mapveil local setting {VERSION} {randomizer.kind} {randomizer.size} {randomizer.identity()}"
    return hashlib.sha256(record.encode()).digest()[:16]


def write_reports(reports: Reports, randomizer: Randomizer) -> list[bytes]:
    """Encode each client's report, as :meth:`Randomizer.randomize` returned them. Run by: the client."""
    fingerprints = randomizer.domain.fingerprint, setting_fingerprint(randomizer)
    head: list[int | bytes] = [VERSION, randomizer.kind, *fingerprints]
    values: list[int | bytes] = (
        [row.tobytes() for row in reports.values]
        if isinstance(randomizer, SetRandomizer)
        else [int(symbol) for symbol in reports.values]
    )
    if reports.windows is None:
        return [canonical_cbor.encode([*head, value]) for value in values]
    drawn = [int(window) for window in reports.windows]
    return [canonical_cbor.encode([*head, *each]) for each in zip(values, drawn, strict=True)]


def read_reports(messages: Sequence[bytes], randomizer: Randomizer, windows: int | None = None) -> Reports:
    """Decode reports, all of them or none, of a series of so many ``windows``. Run by: the server.

    Raises
    ------
    InputError
        A message is truncated or garbled, of another domain or version of it, of another randomizer, or holds no report
        of this one. It names the first.
    """
    reader = ReportReader(randomizer, windows)
    found: list[int | bytes] = []
    drawn: list[int] = []
    for number, data in enumerate(messages):
        try:
            value, window = reader.read(data)
        except InputError as error:
            raise InputError(f"report {number}: {error}") from None
        found.append(value)
        drawn.append(window)
    about = None if windows is None else np.array(drawn, dtype=np.int64)
    if isinstance(randomizer, SetRandomizer):
        rows = b"".join(value for value in found if isinstance(value, bytes))
        return Reports(np.frombuffer(rows, dtype=np.uint8).reshape(len(found), randomizer.bytes), about)
    return Reports(np.array(found, dtype=np.int64), about)


class ReportReader:
    """The decoder of single reports of one randomizer, in a series of so many windows. Run by: the server."""

    def __init__(self, randomizer: Randomizer, windows: int | None = None) -> None:
        # Of a symbol only what is compared is kept: a randomizer may have large tables.
        self._sets = randomizer if isinstance(randomizer, SetRandomizer) else None
        self._kind, self._spec, self._windows = randomizer.kind, randomizer.domain.tiling.spec, windows
        self._known = randomizer.domain.fingerprint, setting_fingerprint(randomizer)
        self._own = [0] if windows is None else [0, 0]  # the fields that differ, each a byte here
        whole = canonical_cbor.encode([VERSION, randomizer.kind, *self._known, *self._own])
        self._head = whole[: -len(self._own)]
        self._symbols = randomizer.symbols

    def read(self, data: bytes) -> tuple[int | bytes, int]:
        """The value of a report, and its window, 0 without a series; raises as :func:`read_reports`."""
        try:
            if data.startswith(self._head):
                value, *rest = canonical_cbor.decode_values(data, len(self._head), len(self._own))
            else:
                value, *rest = self._check_head(canonical_cbor.decode(data))
        except canonical_cbor.NotCanonical as error:
            raise InputError(f"is no report ({error})") from None
        window, windows = rest[0] if rest else 0, self._windows or 1
        if not isinstance(window, int) or window >= windows:
            raise InputError(f"is about no window of this series; expected 0 to {windows - 1}")
        if self._sets is not None:
            if not isinstance(value, bytes) or len(value) != self._sets.bytes:
                raise InputError(f"holds no set of sites; expected {self._sets.bytes} bytes")
            self._sets.check_sets(np.frombuffer(value, dtype=np.uint8)[None])
        elif not isinstance(value, int) or value >= self._symbols:
            raise InputError(f"holds no symbol of this randomizer; expected 0 to {self._symbols - 1}")
        return value, window

    def _check_head(self, fields: list[int | bytes]) -> list[int | bytes]:
        """The fields that differ; raises InputError where another one is not of this randomizer."""
        wanted = _FIELDS - 1 + len(self._own)
        if len(fields) != wanted or fields[0] != VERSION:
            raise InputError(f"must have {wanted} fields, the first the version {VERSION}")
        _, kind, domain, setting, *own = fields
        if domain != self._known[0]:
            raise InputError(f"is about another domain than {self._spec}, or another version of it")
        if kind != self._kind or setting != self._known[1]:
            raise InputError("is of another randomizer, or of another epsilon")
        return own
