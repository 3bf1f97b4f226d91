r"""The people of a table, known by keyed values of their ids, and the share of them whom an account knows.

A person's value is, under keys of the ledger, the first 64 bits of AES-128 of an id that is a whole number of 64 bits,
one block each, and otherwise of SHA-256 of a key followed by the id as text. (HMAC would hash four blocks instead of
one; cutting the digest keeps it from being extended, which HMAC is for.) A population is known
by a bottom-k sketch (Beyer et al. 2007, "On synopses for distinct-value estimation under multiset operations"): the k
smallest values of its people, k being :data:`SAMPLE`. Keyed values are uniform, so a sketch is a random sample of the
people, and the sketch of a union is made from the sketches.

Every person of a table is compared with the sketch of an account, so that only the account is sampled:

.. math:: \hat{s} = \frac{|A \cap T|}{\min(|A|,\; n\, b)}, \qquad
          b = \begin{cases} 1 & |A| < k \\ \max(A) / 2^{64} & |A| = k \end{cases}

where: A is the account's sketch, T the values of all n people of the table, b the fraction of people who are sampled,
and :math:`\hat{s}` estimates the larger of two shares: of the table's people who are the account's, and of the
account's people who are the table's. A filter, or bad rows that are dropped, leave out people, and nothing here depends
on whom: the whole table's people are compared and enter the account, so that no refusal tells of a row. That people
invented to be left out hide nobody, a request that may leave out people shares with an account as soon as one sampled
person is in both.

A table of m people, a fraction p of whom are among the N of an account, is taken for others with probability about
:math:`e^{-p m k / N}` where N is above k, and p well above :data:`SHARED`; never where N is below k.
"""

from __future__ import annotations

import contextlib
import hmac
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mapveil.geo.counts import Counts
from mapveil.geo.points import ROUNDED_ID, Points, id_text
from mapveil.geo.tables import Table, connection, quote_text, reading

if TYPE_CHECKING:
    import duckdb
    import pyarrow

Sketch = npt.NDArray[np.uint64]
"""Keyed values, shape (at most SAMPLE,), ascending and distinct."""

SAMPLE: Final = 1 << 14
"""Values that a sketch keeps, 128 KiB: 500 people are found among a million with probability 0.9997."""

SHARED: Final = 0.1
"""Share of people from which on two populations are taken to be one until somebody states otherwise."""

_DENSE_BITS: Final = 24
"""Ids that are integers of a range up to 2^24 are told apart by a table without hashing, in a third of the time."""

NOBODY: Final = np.empty(0, dtype=np.uint64)

_PEOPLE_SQL: Final = """
CREATE TEMP TABLE people AS
SELECT CASE WHEN CAST(number AS VARCHAR) = id THEN mapveil_keyed(number)
            ELSE CAST('0x' || left(sha256('{key}' || {exact}), 16) AS UBIGINT) END AS value
FROM (SELECT id, TRY_CAST(id AS BIGINT) AS number FROM ({texts}) AS texts) AS numbers
"""

_WHOLE: Final = re.compile("U?(TINYINT|SMALLINT|INTEGER)|BIGINT")
_WHOLE_SQL: Final = """
CREATE TEMP TABLE people AS SELECT mapveil_keyed(CAST(id AS BIGINT)) AS value FROM ids WHERE id IS NOT NULL
"""
"""The values of ids of a type of whole numbers: the same, without texts."""

_WIDE: Final = "".join(chr(0xFF10 + digit) for digit in range(10))  # full-width digits
_INVISIBLE: Final = (  # control and default-ignorable characters, and the blank of Braille
    "[\\p{Cc}\\p{Cf}\\x{34f}\\x{115f}\\x{1160}\\x{17b4}\\x{17b5}\\x{180b}-\\x{180f}\\x{2065}\\x{2800}\\x{3164}"
    "\\x{fe00}-\\x{fe0f}\\x{ffa0}\\x{fff0}-\\x{fff8}\\x{e0000}-\\x{e0fff}]+"
)

_TEXT_SQL: Final = f"""
CASE WHEN NOT regexp_matches(id, '^[^1-~]|[.]0|[^ -~]| $') THEN lower(id)
     ELSE regexp_replace(regexp_replace(nfc_normalize(replace(replace(translate(lower(nfc_normalize(
              regexp_replace(id, '{_INVISIBLE}', '', 'g'))), '{_WIDE}\u03c2\u017f', '0123456789\u03c3s'),
              '\u00df', 'ss'), '\u1e9e', 'ss')), '^\\p{{Z}}+|\\p{{Z}}+$', '', 'g'),
          '^[+]?(-?)0*([0-9]+)([.]0+)?$', '\\1\\2') END
"""
"""An id has one text whatever the file's format: 123, '0123', '+123' and 123.0 are one person.

Case is folded as SQL's ``lower`` does, with sharp s as ss, final sigma as sigma and long s as s.
"""

_ROUNDED_SQL: Final = (
    f"CASE WHEN id < ':' AND regexp_matches(id, '^[+-]?([0-9]+[.][0-9]*e[+]?|[0-9]+e[+])[0-9]+$') "
    f"THEN error({quote_text(ROUNDED_ID)}) ELSE id END"
)


def ids_as_texts(rows: str, kind: str) -> str:
    """SQL of rows whose ids are one text for each person of the ledger, and an error for an id that was rounded.

    Parameters
    ----------
    rows : str
        SQL of rows with a column ``id``.
    kind : str
        SQL type of the ids.
    """
    return f"SELECT * REPLACE ({_ROUNDED_SQL} AS id) FROM ({_texts(rows, kind)}) AS texts"


def _texts(rows: str, kind: str) -> str:
    text = "id" if kind.endswith(("INT", "INTEGER")) else _TEXT_SQL
    written = f"SELECT * REPLACE ({id_text('id', kind)} AS id) FROM ({rows}) AS ids"
    return f"SELECT * REPLACE ({text} AS id) FROM ({written}) AS written"


@dataclass(frozen=True, eq=False, repr=False)
class Seen:
    """Data as a ledger sees them.

    Parameters
    ----------
    digest : str
        Keyed hash of the sketch of all people of a table, or of a raster's counts.
    sketch : Sketch
        The people of the table; empty for counts, which have no ids.
    people : int
        Number of people in the table, by their ids as they are written.
    respelled : int
        How many of these ids are another one of the same person: ``ab1`` beside ``AB1``.
    filtered : bool
        Whether the request may leave out people, whether or not it does.
    """

    digest: str
    sketch: Sketch
    people: int = 0
    respelled: int = 0
    filtered: bool = False
    _opened: duckdb.DuckDBPyConnection | None = None

    def shares(self, known: Mapping[int, Sketch]) -> dict[int, float]:
        """The estimated share of common people for each account with any, as in the formula above."""
        if self._opened is None or not known:
            return {}
        import pyarrow

        numbers = np.array(list(known), dtype=np.uint64)
        accounts = np.repeat(numbers, [sketch.size for sketch in known.values()])
        columns = [_arrow(accounts), _arrow(np.concatenate(list(known.values())))]
        self._opened.register("known", pyarrow.table(columns, names=["account", "value"]))
        common = self._opened.execute(
            "SELECT account, COUNT(*) FROM known WHERE value IN (SELECT value FROM people) GROUP BY account"
        ).fetchall()
        return {
            account: min(1.0, found / min(known[account].size, self.people * _sampled(known[account])))
            for account, found in common
        }


@contextlib.contextmanager
def see(data: Points | Counts, key: bytes) -> Iterator[Seen]:
    """Read the ids of all people of a table, or a raster. Run by: the curator.

    Raises
    ------
    InputError
        The source cannot be read.
    """
    if isinstance(data, Counts):
        yield Seen(hmac.digest(key, data.fingerprint(), "sha256").hex(), NOBODY)
        return
    import pyarrow

    with connection() as opened, reading(data.source):
        if data.table.elsewhere:
            values = data.table.people(
                data.columns.user, partial(keyed_ids, _keys(key), data.expressions.user)
            )
            opened.register("people", pyarrow.table([_arrow(values.view("<u8"))], names=["value"]))
            people = values.size
        else:
            people = _read_people(opened, data, key)
        sketch = _smallest(opened, people)
        digest = hmac.digest(key, b"people" + sketch.tobytes(), "sha256").hex()
        yield Seen(digest, sketch, people, _respelled(opened, data, people), data.counted() != "TRUE", opened)


def keyed_ids(keys: tuple[bytes, bytes], user: str, table: Table) -> npt.NDArray[np.int64]:
    """The values of the distinct ids of a table, as signed numbers of the same bits. Run by: an executor of a cluster.

    Parameters
    ----------
    keys : tuple of bytes
        Those of texts and of whole numbers, derived from the ledger's.
    user : str
        SQL of the id.
    table : Table
        Rows of which the id alone is read.
    """
    with connection() as opened:
        opened.execute(f"CREATE TEMP TABLE ids AS SELECT DISTINCT {user} AS id FROM {table.relation(opened)}")
        _value_ids(opened, keys)
        found = opened.execute("SELECT value FROM people").fetchnumpy()["value"]
        return np.ma.filled(found, 0).astype("<u8").view(np.int64)


def _read_people(opened: duckdb.DuckDBPyConnection, data: Points, key: bytes) -> int:
    """Make the table of people of a local source, in the pass that checks its rows where none did; their number."""
    opened.execute(f"SET perfect_ht_threshold = {_DENSE_BITS}")
    rows, groups = [f"{data.expressions.user} AS id"], ["id"]
    if data.copy_of is not None and not data.checked:
        rows.append(f"({' AND '.join(data.usable(data.expressions).values())}) AS usable")
        groups.append("COUNT(*) FILTER (usable IS NOT TRUE) AS bad")
    relation = data.table.relation(opened)
    opened.execute(
        f"CREATE TEMP TABLE ids AS SELECT {', '.join(groups)} FROM "
        f"(SELECT {', '.join(rows)} FROM {relation}) AS rows GROUP BY id"
    )
    if "bad" in groups[-1]:
        number = f"SELECT COALESCE(SUM(bad), 0), (SELECT COUNT(*) FROM {relation}) FROM ids"
        data.treat(*map(int, opened.execute(number).fetchall()[0]))
    return _value_ids(opened, _keys(key))


def _value_ids(opened: duckdb.DuckDBPyConnection, keys: tuple[bytes, bytes]) -> int:
    """Make the table of people from that of ids; their number."""
    kind = str(opened.execute("DESCRIBE ids").fetchall()[0][1])
    opened.create_function("mapveil_keyed", _keyed(keys[1]), ["BIGINT"], "UBIGINT", type=cast("Any", "arrow"))
    texts = _texts("SELECT id FROM ids WHERE id IS NOT NULL", kind)
    text = _PEOPLE_SQL.format(key=keys[0].hex(), texts=texts, exact=_ROUNDED_SQL)
    return int(opened.execute(_WHOLE_SQL if _WHOLE.fullmatch(kind) else text).fetchall()[0][0])


def _respelled(opened: duckdb.DuckDBPyConnection, data: Points, people: int) -> int:
    """Ids of a local table that are another one of the same person."""
    if data.table.elsewhere or _WHOLE.fullmatch(
        str(opened.execute("DESCRIBE SELECT id FROM ids").fetchall()[0][1])
    ):
        return 0
    return people - int(opened.execute("SELECT COUNT(DISTINCT value) FROM people").fetchall()[0][0])


def _keys(key: bytes) -> tuple[bytes, bytes]:
    """Keys of texts and of whole numbers."""
    texts, numbers = (hmac.digest(key, what, "sha256")[:16] for what in (b"people", b"numbers"))
    return texts, numbers


def _smallest(opened: duckdb.DuckDBPyConnection, people: int) -> Sketch:
    """The sketch of so many people."""
    every = 2**64 - 1
    for bound in (2 * SAMPLE * every // max(people, 2 * SAMPLE), every):  # so that few are sorted
        found = opened.execute(
            "SELECT DISTINCT value FROM people WHERE value <= ? ORDER BY value LIMIT ?",
            [bound, SAMPLE],
        ).fetchnumpy()
        sketch = np.ma.filled(found["value"], 0).astype(np.uint64)
        if sketch.size == SAMPLE:
            break
    return sketch


def _keyed(key: bytes) -> Callable[[object], object]:
    """The values of whole numbers, for a query."""
    cipher = Cipher(algorithms.AES(key), modes.ECB())

    # DuckDB evaluates these annotations where only builtins are known.
    def values(numbers: object) -> object:
        array = cast("Any", numbers).combine_chunks()
        given = np.frombuffer(array.buffers()[1], dtype="<i8", count=len(array), offset=8 * array.offset)
        blocks = np.column_stack([given, np.zeros_like(given)])
        return _arrow(np.frombuffer(cipher.encryptor().update(blocks.tobytes()), dtype="<u8")[::2])

    return values


def _arrow(values: npt.NDArray[np.uint64]) -> pyarrow.Array:
    """Values for DuckDB; ``pyarrow.array`` would import pandas."""
    import pyarrow

    buffer = pyarrow.py_buffer(values.astype("<u8").tobytes())
    return pyarrow.Array.from_buffers(pyarrow.uint64(), values.size, [None, buffer])


def merge(one: Sketch, other: Sketch) -> Sketch:
    """The sketch of a union."""
    return np.union1d(one, other)[:SAMPLE]


def _sampled(sketch: Sketch) -> float:
    """The fraction b of people who are in a sketch."""
    return 1.0 if sketch.size < SAMPLE else float(sketch[-1]) / 2**64
