r"""The client half: a query that hides its column, and the opening of the answer.

.. math:: c = A s + e + 2^{24} u_j, \qquad
    a - H s = D c - D A s = D e + 2^{24} D u_j \pmod{2^{32}}

where: :math:`u_j` is one at the queried column j and zero elsewhere, s the query's own secret, e its errors, A the
public matrix, D the database, H = D A its hint and a = D c the server's answer. The upper 8 bits, rounded, are the
column. Every query draws its own s and e, and forgets them: an :class:`Opening` keeps H s only.

Source: Henzinger et al. (2023), figure 2 (Query and Recover).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.retrieval.digests import Purpose, digest
from mapveil.retrieval.gaussian import draw_gaussian
from mapveil.retrieval.lattice_parameters import SCALE_BITS, SECRET, Words, largest_error
from mapveil.retrieval.matrix import hint_times_secret, matrix_key, matrix_times_secret
from mapveil.retrieval.pir_messages import (
    Message,
    Offer,
    OutdatedHint,
    Vector,
    read_hint,
    read_kind,
    read_offer,
    read_outdated,
    read_vector,
    write_vector,
)
from mapveil.retrieval.records import column_records
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness, as_randomness

_SCALE = 1 << SCALE_BITS


@dataclass(frozen=True, eq=False, repr=False)
class Opening:
    """The key to one answer. Secret: with the query it reveals the column, so it never leaves the client."""

    database: bytes
    record: int
    mask: Words = field(repr=False)  # H s, shape (rows,)

    def __repr__(self) -> str:
        return "Opening(secret)"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("an Opening holds a secret and cannot be pickled or copied")


class Query(NamedTuple):
    """One query."""

    message: bytes  # to the server
    opening: Opening  # stays at the client


class Column(NamedTuple):
    """The content of one answer: the queried record among its neighbours."""

    first: int  # number of the first record
    records: npt.NDArray[np.uint8]  # (records, record_bytes)


class Client:
    """Queries one version of a database for records without revealing which.

    Parameters
    ----------
    offer : bytes
        From :meth:`mapveil.retrieval.pir_server.Server.offer`.
    largest_hint : int
        Maximum bytes of the hint.

    Raises
    ------
    InputError
        The message is no offer, or its hint is larger.
    """

    def __init__(self, offer: bytes, *, largest_hint: int = 1 << 30) -> None:
        self.offer: Offer = read_offer(offer)
        size = self.offer.shape.traffic().hint
        if size > largest_hint:
            raise InputError(f"the hint must have at most {largest_hint} bytes, got an offer of {size}")
        self._hint: Words = np.zeros((self.offer.shape.rows, SECRET), dtype=np.uint32)
        self._missing = np.ones(self.offer.shape.rows, dtype=np.bool_)
        self._key = matrix_key(self.offer.database)

    @property
    def missing_rows(self) -> int:
        """Rows of the hint that have not arrived; a query needs all of them."""
        return int(np.count_nonzero(self._missing))

    def receive_hint(self, message: bytes) -> None:
        """Take some rows of the hint, in any order.

        Raises
        ------
        OutdatedHint
            The rows are of another version than the offer.
        InputError
            The message is no hint, has rows outside the layout, or completes a hint that is not the offer's: then the
            whole hint must be fetched again.
        """
        hint = read_hint(message)
        if hint.database != self.offer.database:
            raise self._outdated("a hint", hint.database)
        last = hint.first_row + hint.rows.shape[0]
        if last > self.offer.shape.rows:
            raise InputError(f"rows of the hint must be below {self.offer.shape.rows}, got row {last - 1}")
        if not self.missing_rows:
            raise InputError("a hint once more; this client has all of it")
        self._hint[hint.first_row : last] = hint.rows
        self._missing[hint.first_row : last] = False
        if not self.missing_rows:
            words = self._hint.astype("<u4", copy=False)
            if digest(Purpose.HINT, self.offer.database, words.data) != self.offer.hint_digest:
                self._missing[:] = True
                raise InputError("the hint is not what the offer promised; fetch all of it again")

    def query(self, record: int, rng: Randomness | None = None) -> Query:
        """Query a record. Run by: the client.

        Parameters
        ----------
        record : int
            Number of the record, from 0.
        rng : Randomness, optional
            Source of the secret and the errors; the operating system's by default. A known seed reveals the record.

        Raises
        ------
        ParameterError
            There is no such record.
        InputError
            The hint has not arrived.
        """
        shape = self.offer.shape
        column, _ = shape.place(record)
        if self.missing_rows:
            raise InputError(f"{self.missing_rows} rows of the hint are missing; fetch them before a query")
        rng = as_randomness(rng)
        secret = draw_gaussian(SECRET, rng)
        words = matrix_times_secret(self._key, shape.columns, secret)
        words += draw_gaussian(shape.columns, rng).astype(np.uint32)
        words[column : column + 1] += np.uint32(_SCALE)  # a slice wraps around without a warning
        opening = Opening(self.offer.database, int(record), hint_times_secret(self._hint, secret))
        return Query(write_vector(Message.QUERY, Vector(self.offer.database, words)), opening)

    def open(self, opening: Opening, answer: bytes) -> bytes:
        """The queried record; raises as :meth:`open_column` does."""
        column = self.open_column(opening, answer)
        return bytes(column.records[opening.record - column.first])

    def open_column(self, opening: Opening, answer: bytes) -> Column:
        """Read an answer: the queried record and those beside it in the column.

        A wrong answer is detected by its errors, which are short in a right one. Do not tell the server which it was.

        Parameters
        ----------
        opening : Opening
            Opening of the query.
        answer : bytes
            From :meth:`mapveil.retrieval.pir_server.Server.answer`, or the ``reply`` of its error.

        Raises
        ------
        OutdatedHint
            The database was updated: the server answers for another version.
        InputError
            The message is no answer to this query.
        ParameterError
            The opening is of another version of the database.
        """
        shape = self.offer.shape
        if opening.database != self.offer.database:
            raise ParameterError(
                "the opening must be of this client's version of the database, got another version"
            )
        if read_kind(answer) is Message.OUTDATED:
            raise self._outdated("the server", read_outdated(answer))
        vector = read_vector(Message.ANSWER, answer)
        if vector.database != self.offer.database:
            raise self._outdated("an answer", vector.database)
        if vector.words.size != shape.rows:
            raise InputError(f"an answer must have {shape.rows} words, got {vector.words.size}")
        noisy = vector.words - opening.mask
        rounded = noisy + np.uint32(_SCALE >> 1)
        error = (rounded & np.uint32(_SCALE - 1)).astype(np.int64) - (_SCALE >> 1)
        if int(np.abs(error).max()) > largest_error(shape.rows, shape.columns):
            raise InputError("an answer that fits neither this query nor this hint; nothing is read from it")
        digits = (rounded >> np.uint32(SCALE_BITS)).astype(np.uint8).view(np.int8)
        first = shape.place(opening.record).column * shape.per_column
        records = column_records(digits, shape)
        return Column(first, records[: shape.records - first])

    def _outdated(self, what: str, database: bytes) -> OutdatedHint:
        return OutdatedHint(
            f"{what} is of version {database.hex()[:16]} of the database, this client of "
            f"{self.offer.database.hex()[:16]}: start again with the new offer and hint"
        )

    def __repr__(self) -> str:
        shape = self.offer.shape
        return f"Client({shape.records} records, version {self.offer.database.hex()[:16]})"
