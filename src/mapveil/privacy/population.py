r"""The people of a table, known by keyed values of their ids, and the share of them whom an account knows.

A person's value is the first 64 bits of SHA-256 of a key of the ledger's followed by the id as text. (HMAC would hash
four blocks instead of one; cutting the digest keeps it from being extended, which HMAC is for.) A population is known
by a bottom-k sketch (Beyer et al. 2007, "On synopses for distinct-value estimation under multiset operations"): the k
smallest values of its people, k being :data:`SAMPLE`. Keyed values are uniform, so a sketch is a random sample of the
people, and the sketch of a union is made from the sketches.

Every person of a table is compared with the sketch of an account, so that only the account is sampled:

.. math:: \hat{s} = \frac{|A \cap T|}{\min(|A|,\; n\, b)}, \qquad
          b = \begin{cases} 1 & |A| < k \\ \max(A) / 2^{64} & |A| = k \end{cases}

where: A is the account's sketch, T the values of all n people of the table, b the fraction of people who are sampled,
and :math:`\hat{s}` estimates the larger of two shares: of the table's people who are the account's, and of the
account's people who are the table's. Where rows are left out (a filter, bad rows that are dropped), the share is the
larger of the whole table's and that of the people left, who alone enter the account: people invented to be left out
hide nobody.

A table of m people, a fraction p of whom are among the N of an account, is taken for others with probability about
:math:`e^{-p m k / N}` where N is above k, and p well above :data:`SHARED`; never where N is below k.
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tables import connection, reading

if TYPE_CHECKING:
    import duckdb

Sketch = npt.NDArray[np.uint64]
"""Keyed values, shape (at most SAMPLE,), ascending and distinct."""

SAMPLE: Final = 1 << 14
"""Values that a sketch keeps, 128 KiB: 500 people are found among a million with probability 0.9997."""

SHARED: Final = 0.1
"""Share of people from which on two populations are taken to be one until somebody states otherwise."""

_DENSE_BITS: Final = 24
"""Ids that are integers of a range up to 2^24 are told apart by a table without hashing, in a third of the time."""

_NOBODY: Final = np.empty(0, dtype=np.uint64)

_PEOPLE_SQL: Final = """
CREATE TEMP TABLE people AS
SELECT CAST('0x' || left(sha256('{key}' || id), 16) AS UBIGINT) AS value, kept
FROM (
    SELECT {text} AS id, kept
    FROM (
        SELECT CAST(id AS VARCHAR) AS id, {kept} AS kept FROM ({ids} WHERE id IS NOT NULL GROUP BY id) AS ids
    ) AS written
) AS texts
"""

_WIDE: Final = "".join(chr(0xFF10 + digit) for digit in range(10))  # full-width digits

_TEXT_SQL: Final = f"""
CASE WHEN strlen(id) = length(id) AND id >= '1' AND right(id, 1) > ' ' AND NOT contains(id, '.0') THEN lower(id)
     ELSE regexp_replace(lower(regexp_replace(translate(nfc_normalize(id), '{_WIDE}', '0123456789'),
              '^[\\s\\p{{Z}}]+|[\\p{{Cf}}\\p{{Cc}}]+|[\\s\\p{{Z}}]+$', '', 'g')),
          '^[+]?(-?)0*([0-9]+)([.]0+)?$', '\\1\\2') END
"""
"""An id has one text whatever the file's format: 123, '0123', '+123' and 123.0 are one person."""


@dataclass(frozen=True, eq=False, repr=False)
class Seen:
    """Data as a ledger sees them.

    Parameters
    ----------
    digest : str
        Keyed hash of the sketch of all people of a table, or of a raster's counts.
    sketch : Sketch
        The people with a row that counts; empty for counts, which have no ids.
    people, left : int
        Number of people in the table, and of those with a row that counts.
    """

    digest: str
    sketch: Sketch
    people: int = 0
    left: int = 0
    _opened: duckdb.DuckDBPyConnection | None = None

    @property
    def filtered(self) -> bool:
        """Whether the rows of some people are all left out."""
        return self.left < self.people

    def shares(self, known: Mapping[int, Sketch]) -> dict[int, float]:
        """The estimated share of common people for each account with any, as in the formula above."""
        if self._opened is None or not known:
            return {}
        import pyarrow

        accounts = np.repeat(list(known), [sketch.size for sketch in known.values()])
        self._opened.register(
            "known", pyarrow.table({"account": accounts, "value": np.concatenate(list(known.values()))})
        )
        shares: dict[int, float] = {}
        for number, having in ((self.people, "TRUE"), (self.left, "kept")):
            common = self._opened.execute(
                f"SELECT account, COUNT(*) FROM known WHERE value IN (SELECT value FROM people WHERE {having}) "
                "GROUP BY account"
            ).fetchall()
            for account, found in common:
                size, sampled = known[account].size, _sampled(known[account])
                shares[account] = max(shares.get(account, 0.0), min(1.0, found / min(size, number * sampled)))
            if not self.filtered:
                break
        return shares


@contextlib.contextmanager
def see(data: Points | Counts, key: bytes) -> Iterator[Seen]:
    """Read the ids of all people of a table and whether a row of theirs counts, or a raster. Run by: the curator.

    Raises
    ------
    InputError
        The source cannot be read.
    """
    if isinstance(data, Counts):
        yield Seen(hmac.digest(key, data.fingerprint(), "sha256").hex(), _NOBODY)
        return
    with connection() as opened, reading(data.source):
        opened.execute(f"SET perfect_ht_threshold = {_DENSE_BITS}")
        prefix = hmac.digest(key, b"people", "sha256")[:16].hex()
        counted = data.counted()
        every = counted == "TRUE"
        columns = f"{data.expressions.user} AS id" + ("" if every else f", ({counted}) AS kept")
        ids = f"SELECT * FROM (SELECT {columns} FROM {data.table.relation(opened)}) AS rows"
        whole = opened.execute(f"DESCRIBE {ids}").fetchall()[0][1].endswith(("INT", "INTEGER"))  # one text
        grouped = ids.replace("*", "id" if every else "id, COALESCE(bool_or(kept), FALSE) AS kept", 1)
        text = _PEOPLE_SQL.format(
            key=prefix, text="id" if whole else _TEXT_SQL, ids=grouped, kept="TRUE" if every else "kept"
        )
        people = opened.execute(text).fetchall()[0][0]
        sketch = _smallest(opened, people, "TRUE")
        digest = hmac.digest(key, b"people" + sketch.tobytes(), "sha256").hex()
        left = people
        if not every:
            left = opened.execute("SELECT COUNT(*) FROM people WHERE kept").fetchall()[0][0]
            sketch = _smallest(opened, left, "kept")
        yield Seen(digest, sketch, people, left, opened)


def _smallest(opened: duckdb.DuckDBPyConnection, people: int, having: str) -> Sketch:
    """The sketch of so many people, those that a condition holds for."""
    every = 2**64 - 1
    for bound in (2 * SAMPLE * every // max(people, 2 * SAMPLE), every):  # so that few are sorted
        found = opened.execute(
            f"SELECT DISTINCT value FROM people WHERE {having} AND value <= ? ORDER BY value LIMIT ?",
            [bound, SAMPLE],
        ).fetchnumpy()
        sketch = np.ma.filled(found["value"], 0).astype(np.uint64)
        if sketch.size == SAMPLE:
            break
    return sketch


def merge(one: Sketch, other: Sketch) -> Sketch:
    """The sketch of a union."""
    return np.union1d(one, other)[:SAMPLE]


def _sampled(sketch: Sketch) -> float:
    """The fraction b of people who are in a sketch."""
    return 1.0 if sketch.size < SAMPLE else float(sketch[-1]) / 2**64
