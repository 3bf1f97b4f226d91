"""Arrays of measurements in few bytes: group numbers as steps, sums as whole units, bytes of like weight together.

A coarser measurement's groups follow from a finer one's where they are nested: then one number for each finer group
says them all. What comes back is equal to the last bit, but for noisy sums that are rounded to a step.
"""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray

BROKEN_ARCHIVE: Final = (
    *(KeyError, TypeError, AttributeError, IndexError, ArithmeticError, OSError, EOFError),
    *(zipfile.BadZipFile, zlib.error),
    RuntimeError,  # an entry marked as encrypted, or compressed in a way that is not known here
    tokenize.TokenError,  # NumPy's, of an array's head
)
"""Errors of an npz whose bytes, or whose record, are not what was written."""

_BITS: Final = 4  # below the noise's deviation that a noisy sum is kept with
_EXACT: Final = 1 << 53  # whole numbers of a float
_BYTES_OF_CELL: Final = 64  # of one array, at most: eight times what a group number or a sum takes
_HEAD: Final = 1 << 16  # bytes of an array besides those of cells, at most
_MOST_BYTES: Final = 1 << 31  # of all arrays

Array = npt.NDArray[Any]


def rounding_step(deviation: float) -> float:
    """The step that noisy sums are rounded to, of noise with this deviation; 0 where there is none."""
    return 2.0 ** (math.floor(math.log2(deviation)) - _BITS) if deviation > 0 else 0.0


def code(values: Array, unit: int, step: float = 0.0) -> tuple[Array, dict[str, Any]]:
    """Code an array; decode it with the record, which is JSON-ready.

    Parameters
    ----------
    values : ndarray of int64 or float64, any shape
        Group numbers, or noisy sums.
    unit : int
        Units per user: sums of whole units are kept as such.
    step : float
        Users, a power of two: sums are rounded to multiples of it where they are no coarser; 0 keeps every bit.
    """
    shape = list(values.shape)
    if values.dtype.kind == "i":
        return _planes(_narrow(np.diff(values.ravel(), prepend=0)), {"as": "steps", "shape": shape})
    with np.errstate(over="ignore"):  # what is too large for a whole number is kept as it is
        multiples = np.rint(values.ravel() / step) if step * unit > 1 else np.array([np.inf])
        units = np.rint(values.ravel() * float(unit))
    if np.isfinite(multiples).all() and np.abs(multiples).max(initial=0) < _EXACT:
        return _planes(_narrow(multiples.astype(np.int64)), {"as": "multiples", "shape": shape, "step": step})
    if units.size and np.abs(units).max() < _EXACT and np.array_equal(units / unit, values.ravel()):
        return _planes(_narrow(units.astype(np.int64)), {"as": "units", "shape": shape})
    return _planes(np.ascontiguousarray(values.ravel(), dtype="<f8"), {"as": "floats", "shape": shape})


def check_sizes(data: bytes, cells: int | None) -> None:
    """Refuse an npz that would unpack to more than it can hold, before anything is unpacked.

    Parameters
    ----------
    data : bytes
        The archive.
    cells : int, optional
        Cells of the map. Arrays by label or by window have many entries of one cell: they are bounded as a whole.

    Raises
    ------
    ValueError
        An array is larger than its map's cells, than what the archive holds of it, or than memory should hold.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        if sum(each.file_size for each in entries) > _MOST_BYTES:
            raise ValueError("measurements that unpack to more than 2 GiB")
        for entry in entries:
            of_cells = entry.filename.endswith((".groups.npy", ".noisy.npy"))
            if cells is not None and of_cells and entry.file_size > _HEAD + _BYTES_OF_CELL * cells:
                raise ValueError(f"measurements that are larger than those of {cells} cells")
            with archive.open(entry) as opened:
                if np.lib.format.read_magic(opened) != (1, 0):
                    raise ValueError("measurements of another format")
                shape, _, kind = np.lib.format.read_array_header_1_0(opened)
                if math.prod(shape) * kind.itemsize + opened.tell() != entry.file_size:
                    raise ValueError("measurements whose sizes are not those of their bytes")


def decode(coded: Array, record: dict[str, Any], unit: int) -> Array:
    """Decode what :func:`code` coded.

    Raises
    ------
    ValueError
        The bytes do not fit the record.
    """
    kind = np.dtype(record["type"])
    if kind.kind not in "uf" or coded.dtype != np.uint8 or coded.ndim != 2:
        raise ValueError("an array of another kind")
    values = np.ascontiguousarray(coded.T).view(kind).reshape(-1)
    match record["as"]:
        case "steps":
            return np.asarray(np.cumsum(_wide(values)).reshape(record["shape"]))
        case "multiples":
            return np.asarray((_wide(values) * float(record["step"])).reshape(record["shape"]))
        case "units":
            return np.asarray((_wide(values) / unit).reshape(record["shape"]))
        case "floats":
            return np.asarray(values.astype(np.float64).reshape(record["shape"]))
    raise ValueError("an array that is coded in another way")


def within(coarse: IntArray, fine: IntArray, size: int) -> IntArray | None:
    """The coarse group of each of ``size`` fine groups, or None where groups are not nested; -1 is no group."""
    table = np.full(size + 1, -1, dtype=np.int64)  # the last entry is that of no group
    table[fine] = coarse
    return table[:-1] if table[-1] == -1 and np.array_equal(table[fine], coarse) else None


def _planes(values: Array, record: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
    """Bytes by weight, shape (bytes of a number, numbers)."""
    bytes_of = values.view(np.uint8).reshape(values.size, values.dtype.itemsize)
    return np.ascontiguousarray(bytes_of.T), {**record, "type": values.dtype.str}


def _narrow(values: IntArray) -> Array:
    """Whole numbers as naturals, signs last (0, -1, 1, -2, ...), in as few bytes as hold them.

    The upper bytes of small numbers are then zero, whatever the signs.
    """
    naturals = ((values << 1) ^ (values >> 63)).astype(np.uint64)
    return naturals.astype(np.min_scalar_type(int(naturals.max(initial=0))).newbyteorder("<"))


def _wide(naturals: Array) -> IntArray:
    """The whole numbers that :func:`_narrow` narrowed."""
    wide = naturals.astype(np.uint64)
    return np.asarray((wide >> np.uint64(1)).astype(np.int64) ^ -(wide & np.uint64(1)).astype(np.int64))
