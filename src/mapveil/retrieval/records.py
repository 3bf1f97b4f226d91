"""A database: records of equal length, laid out as a matrix of bytes, with a hash that names its version."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mapveil.retrieval.digests import Purpose, digest
from mapveil.retrieval.lattice_parameters import PLAIN
from mapveil.retrieval.shape import Shape, choose_shape
from mapveil_client.errors import ParameterError

_CENTRE = np.uint8(PLAIN // 2)


@dataclass(frozen=True, eq=False)
class Database:
    r"""Public records that a server answers queries about. Its ``version`` is a hash of shape, matrix and ``about``.

    .. math:: D_{ij} = \text{byte}_{ij} - 128

    Parameters
    ----------
    shape : Shape
        The layout.
    matrix : ndarray of int8, shape (shape.rows, shape.columns)
        D, contiguous; zero bytes (-128) after the last record.
    about : bytes
        Public text that a client needs to read a record; part of the offer.

    Raises
    ------
    ParameterError
        The matrix does not have the layout's shape and type.

    Examples
    --------
    >>> database = Database.of(np.arange(12, dtype=np.uint8).reshape(4, 3))
    >>> database.record(2)
    b'\x06\x07\x08'
    """

    shape: Shape
    matrix: npt.NDArray[np.int8]
    about: bytes = b""
    version: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        expected = (self.shape.rows, self.shape.columns)
        if (
            self.matrix.dtype != np.int8
            or self.matrix.shape != expected
            or not self.matrix.flags.c_contiguous
        ):
            raise ParameterError(
                f"the matrix must be contiguous int8 of shape {expected}, "
                f"got {self.matrix.dtype} of {self.matrix.shape}"
            )
        matrix = self.matrix.view()
        matrix.flags.writeable = False
        object.__setattr__(self, "matrix", matrix)
        numbers = (self.shape.records, self.shape.record_bytes, self.shape.per_column)
        version = digest(
            Purpose.DATABASE,
            b"".join(number.to_bytes(8, "big") for number in numbers),
            self.about,
            matrix.data,
        )
        object.__setattr__(self, "version", version)

    @classmethod
    def of(
        cls,
        records: npt.NDArray[np.uint8],
        about: bytes = b"",
        *,
        queries: int = 100,
        shape: Shape | None = None,
    ) -> Database:
        """Lay out records. Run by: the server.

        Parameters
        ----------
        records : ndarray of uint8, shape (records, record_bytes)
            One row for each record.
        about : bytes
            As for the class.
        queries : int
            Expected number of a client's queries to one version; more make the hint larger and queries shorter.
        shape : Shape, optional
            The layout; :func:`~mapveil.retrieval.shape.choose_shape` by default.

        Raises
        ------
        ParameterError
            The records have another type or shape, or are more than a layout holds.
        """
        if records.dtype != np.uint8 or records.ndim != 2:
            raise ParameterError(
                f"records must be uint8 of shape (records, record_bytes), got {records.dtype} of {records.shape}"
            )
        count, size = records.shape
        if shape is None:
            shape = choose_shape(count, size, queries)
        if (shape.records, shape.record_bytes) != (count, size):
            raise ParameterError(
                f"the layout must be of {count} records of {size} bytes, got {shape.records} of {shape.record_bytes}"
            )
        padded = np.zeros((shape.columns, shape.rows), dtype=np.uint8)
        padded.reshape(-1)[: records.size] = records.reshape(-1)
        matrix = np.ascontiguousarray(padded.T)
        matrix ^= _CENTRE
        return cls(shape, matrix.view(np.int8), about)

    def record(self, index: int) -> bytes:
        """Read a record in the clear. Run by: the server."""
        column, first = self.shape.place(index)
        records = column_records(self.matrix[:, column], self.shape)
        return bytes(records[first // self.shape.record_bytes])


def column_records(digits: npt.NDArray[np.int8], shape: Shape) -> npt.NDArray[np.uint8]:
    """The records of one column of D, shape (per_column, record_bytes). Run by: both sides."""
    return (np.ascontiguousarray(digits).view(np.uint8) ^ _CENTRE).reshape(
        shape.per_column, shape.record_bytes
    )
