r"""The layout of records as a matrix of bytes, and its cost to download.

Records of b bytes are stacked, k to a column: record i is in column :math:`\lfloor i / k \rfloor`, its byte j in row
:math:`(i \bmod k)\, b + j`. A query fetches a whole column: the queried record and its neighbours.

.. math:: l = k b \text{ rows}, \qquad m = \lceil N / k \rceil \text{ columns}, \qquad
    T(k) = 4 n l + Q\, (4 m + 4 l)

where: N is the number of records, n = 1024, and T the bytes (hint, queries, answers) of a client that fetches the hint
once and sends Q queries. A taller matrix has a larger hint and shorter queries.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mapveil.retrieval.lattice_parameters import LARGEST_COLUMNS, LARGEST_ROWS, SECRET
from mapveil_client.errors import ParameterError, check

_WORD_BYTES = 4


class Traffic(NamedTuple):
    """Bytes between one client and the server, without the messages' heads."""

    hint: int  # once for each version of the database, to the client
    query: int  # each, to the server
    answer: int  # each, to the client
    database: int  # of the whole database, for comparison

    def of(self, queries: int) -> int:
        """Bytes of a client that fetches the hint and sends this many queries."""
        return self.hint + queries * (self.query + self.answer)


class Place(NamedTuple):
    """The position of a record."""

    column: int
    first_row: int


@dataclass(frozen=True)
class Shape:
    """The public layout of a database.

    Parameters
    ----------
    records : int
        Number of records, N.
    record_bytes : int
        Bytes of a record, b.
    per_column : int
        Records in one column, k.

    Raises
    ------
    ParameterError
        A number is below 1, or there are more than 2^20 rows or 2^16 columns.
    """

    records: int
    record_bytes: int
    per_column: int

    def __post_init__(self) -> None:
        _check_positive(**vars(self))
        if self.per_column > self.records:
            raise ParameterError(
                f"per_column must be at most the number of records, {self.records}, got {self.per_column}"
            )
        if self.rows > LARGEST_ROWS or self.columns > LARGEST_COLUMNS:
            raise ParameterError(
                f"rows and columns must be at most {LARGEST_ROWS} and {LARGEST_COLUMNS}, got {self.rows} and "
                f"{self.columns}: {self.records} records of {self.record_bytes} bytes, {self.per_column} to a column"
            )

    @property
    def rows(self) -> int:
        """Bytes of a column, l."""
        return self.per_column * self.record_bytes

    @property
    def columns(self) -> int:
        """Columns, m."""
        return -(-self.records // self.per_column)

    def place(self, record: int) -> Place:
        """The position of a record; a ``ParameterError`` where there is none."""
        if isinstance(record, bool) or not isinstance(record, int | np.integer):
            raise ParameterError(f"record must be an integer, got {record!r}")
        check(0 <= record < self.records, "record", f"from 0 to {self.records - 1}", record)
        column, within = divmod(int(record), self.per_column)
        return Place(column, within * self.record_bytes)

    def traffic(self) -> Traffic:
        """Bytes between one client and the server."""
        return Traffic(
            hint=_WORD_BYTES * SECRET * self.rows,
            query=_WORD_BYTES * self.columns,
            answer=_WORD_BYTES * self.rows,
            database=self.records * self.record_bytes,
        )


def choose_shape(records: int, record_bytes: int, queries: int = 100) -> Shape:
    """The layout with the least traffic T; see the module's header.

    Parameters
    ----------
    records, record_bytes : int
        As for :class:`Shape`.
    queries : int
        Expected number of queries of a client between two updates, Q.

    Raises
    ------
    ParameterError
        A number is below 1, or no layout holds the database.

    Examples
    --------
    >>> shape = choose_shape(records=8_388_608, record_bytes=8)
    >>> shape.rows, shape.columns
    (2448, 27414)
    >>> shape.traffic()
    Traffic(hint=10027008, query=109656, answer=9792, database=67108864)
    """
    _check_positive(records=records, record_bytes=record_bytes, queries=queries)
    fewest = -(-records // LARGEST_COLUMNS)
    most = min(records, LARGEST_ROWS // record_bytes)
    if fewest > most:
        raise ParameterError(
            f"a database must fit {LARGEST_COLUMNS} columns of {LARGEST_ROWS} bytes, a record in one column, got "
            f"{records} records of {record_bytes} bytes"
        )
    per_column = np.arange(fewest, most + 1)
    rows, columns = per_column * record_bytes, -(-records // per_column)
    cost = SECRET * rows + queries * (rows + columns)
    return Shape(records, record_bytes, int(per_column[np.argmin(cost)]))


def _check_positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ParameterError(f"{name} must be an integer of at least 1, got {value!r}")
