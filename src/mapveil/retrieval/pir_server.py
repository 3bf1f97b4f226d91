r"""The server half: one product with the whole database for each query.

.. math:: a = D c \bmod 2^{32}

where: D is the database and c the query. The server holds no secret and no state of its clients;
:meth:`Server.answer` may run in several threads.

Source: Henzinger et al. (2023), figure 2 (Setup and Answer).
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from mapveil.retrieval.byte_product import byte_product
from mapveil.retrieval.digests import Purpose, digest
from mapveil.retrieval.lattice_parameters import SECRET, Words
from mapveil.retrieval.matrix import hint_of, hint_times_secret, matrix_key, matrix_times_secret
from mapveil.retrieval.pir_messages import (
    Hint,
    Message,
    Offer,
    OutdatedHint,
    Vector,
    read_vector,
    write_hint,
    write_offer,
    write_outdated,
    write_vector,
)
from mapveil.retrieval.records import Database
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

_PART_ROWS: Final = 256  # of the hint in one message: 1 MiB


class Server:
    """Answers queries about one version of a database; an updated database needs another server.

    Parameters
    ----------
    database : Database
        Database to answer from.
    hint : ndarray of uint32, shape (rows, 1024), optional
        Hint that an earlier server of the same version computed (:attr:`hint`). By default it is computed, which takes
        about 1000 operations for each byte.
    compiled : bool, optional
        Whether the compiled kernel of the extra ``fast`` multiplies; where installed, by default.

    Raises
    ------
    ParameterError
        The hint is not that of this database.
    MissingExtra
        ``compiled`` is true and the extra is not installed.
    """

    def __init__(
        self, database: Database, hint: Words | None = None, *, compiled: bool | None = None
    ) -> None:
        self.database = database
        self._product = byte_product(compiled)
        key = matrix_key(database.version)
        if hint is None:
            hint = hint_of(database.matrix, key)
        else:
            self._check(hint, key)
        self.hint: Words = hint
        hashed = digest(Purpose.HINT, database.version, hint.astype("<u4", copy=False).data)
        self._offer = Offer(database.version, database.shape, hashed, database.about)

    def _check(self, hint: Words, key: bytes) -> None:
        """Compare D (A s) with H s for one s.

        s is random and odd: one altered word is always detected (an odd number is no divisor of zero modulo 2^32),
        several with high probability. Below 2^11 the floats of :func:`hint_times_secret` stay exact.
        """
        shape = self.database.shape
        if hint.dtype != np.uint32 or hint.shape != (shape.rows, SECRET) or not hint.flags.c_contiguous:
            raise ParameterError(
                f"the hint must be contiguous uint32 of shape ({shape.rows}, {SECRET}), "
                f"got {hint.dtype} of {hint.shape}"
            )
        probe = ((Randomness().words(SECRET, np.uint16) >> 5) | 1).astype(np.int16)
        asked = self._product(self.database.matrix, matrix_times_secret(key, shape.columns, probe))
        if not np.array_equal(asked, hint_times_secret(hint, probe)):
            raise ParameterError("the hint is not of this version of the database; compute it anew")

    def offer(self) -> bytes:
        """The first message that a client needs."""
        return write_offer(self._offer)

    def hint_messages(self) -> Iterator[bytes]:
        """The hint in messages of a MiB, for a client to fetch once."""
        for first in range(0, self.hint.shape[0], _PART_ROWS):
            rows = self.hint[first : first + _PART_ROWS]
            yield write_hint(Hint(self.database.version, first, rows))

    def answer(self, query: bytes) -> bytes:
        """Answer a message of :meth:`mapveil.retrieval.pir_client.Client.query`. Run by: the server.

        Every byte of the database is read, so the answer's time and memory accesses reveal nothing of the record.

        Raises
        ------
        OutdatedHint
            The query is for another version of the database; send the error's ``reply`` instead of an answer.
        InputError
            The message is no query, or has another length.
        """
        vector = read_vector(Message.QUERY, query)
        version = self.database.version
        if vector.database != version:
            raise OutdatedHint(
                f"the query must be for version {version.hex()[:16]} of the database, "
                f"got {vector.database.hex()[:16]}: fetch the new offer and hint",
                write_outdated(version),
            )
        columns = self.database.shape.columns
        if vector.words.size != columns:
            raise InputError(f"a query must have {columns} words, got {vector.words.size}")
        words = self._product(self.database.matrix, vector.words)
        return write_vector(Message.ANSWER, Vector(version, words))

    def __repr__(self) -> str:
        shape = self.database.shape
        return f"Server({shape.records} records, version {self.database.version.hex()[:16]})"
