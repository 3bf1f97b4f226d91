"""The file of a fitted privatizer: a line that names the format, a record of JSON, plain arrays, a checksum.

::

    "mapveil privatizer 2\\n"           21 bytes
    length of the record, n             4 bytes, little-endian
    record                              n bytes of JSON in UTF-8
    arrays, in the record's order       little-endian, row-major, nothing between them
    SHA-256 of everything before        32 bytes

The checksum tells a whole file from a broken one; it does not say who wrote it. Nothing in the file is code.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.obfuscation.privatizers.category import Category
from mapveil.obfuscation.privatizers.map_error import MapError
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.obfuscation.privatizers.null_code import NullCode
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer, find_privatizer
from mapveil.privacy.claim import read_exact
from mapveil_client.errors import InputError

FORMAT: Final = 2
"""The version of the format that is written and read."""

_MAGIC: Final = b"mapveil privatizer "
_NORMALISATION: Final = ("mean", "scale", "low", "high")
_NULL_CODE: Final = ("centres", "reach")
_DTYPES: Final = ("<f8", "<f4", "<i8", "<i4", "<i2", "|u1", "<u2", "<u4", "<u8", "|b1")
_DIGEST: Final = 32
_HEAD: Final = len(_MAGIC) + 2
_LONGEST: Final = 1 << 26


def write_privatizer(fitted: FittedPrivatizer, path: str | Path) -> None:
    """Write a fitted privatizer whole or not at all. Run by: the curator of the pilot.

    Raises
    ------
    InputError
        The folder cannot be written to.
    """
    with atomic_path(path) as place:
        place.write_bytes(encode_privatizer(fitted))


def read_privatizer(path: str | Path) -> FittedPrivatizer:
    """Read a fitted privatizer. Run by: the client.

    Raises
    ------
    InputError
        No such file, another kind of file, another version, or a file that is truncated or changed.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{path}: no such file; expected a file that `mapveil signal fit` wrote")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    return decode_privatizer(data, str(path))


def encode_privatizer(fitted: FittedPrivatizer) -> bytes:
    """The bytes of a file."""
    arrays = {
        **{f"normalisation/{part}": getattr(fitted.normalisation, part) for part in _NORMALISATION},
        **{f"state/{name}": array for name, array in fitted.state.items()},
        **{f"category/{each.column}": each.values for each in fitted.categories},
    }
    if fitted.null_code is not None:
        arrays |= {f"null_code/{part}": getattr(fitted.null_code, part) for part in _NULL_CODE}
    # Zero-dimensional arrays keep their shape through np.asarray, not through np.ascontiguousarray.
    laid = {
        name: np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        for name, array in arrays.items()
    }
    record = {
        **fitted.record(),
        "map_error": None if fitted.map_error is None else fitted.map_error._asdict(),
        "arrays": [
            {"name": name, "dtype": array.dtype.str, "shape": list(array.shape)}
            for name, array in laid.items()
        ],
    }
    text = json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
    body = b"".join(
        [
            _MAGIC + f"{FORMAT}\n".encode(),
            len(text).to_bytes(4, "little"),
            text,
            *(array.tobytes() for array in laid.values()),
        ]
    )
    return body + hashlib.sha256(body).digest()


def decode_privatizer(data: bytes, name: str) -> FittedPrivatizer:
    """Read the bytes of a file.

    Parameters
    ----------
    data : bytes
        The whole file.
    name : str
        What messages call it.

    Raises
    ------
    InputError
        As :func:`read_privatizer`.
    """
    if not data.startswith(_MAGIC):
        raise InputError(f"{name}: not a privatizer; expected a file that `mapveil signal fit` wrote")
    version = data[len(_MAGIC) : _HEAD + 4].split(b"\n")[0].decode(errors="replace")
    if version != str(FORMAT):
        raise InputError(
            f"{name}: a privatizer of format {version}; expected format {FORMAT}, so fit it again"
        )
    if len(data) < _HEAD + 4 + _DIGEST or hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        raise InputError(f"{name}: truncated or changed since it was written; expected a whole file")
    start = _HEAD + 4
    stop = start + int.from_bytes(data[_HEAD:start], "little")
    try:
        record = json.loads(data[start:stop])
        arrays = dict(_arrays(data[stop:-_DIGEST], record["arrays"]))
        names = tuple(str(one) for one in record["features"])
        options = dict(record["parameters"])
        method = str(record["method"])
        learnt = [arrays.pop(f"normalisation/{part}") for part in _NORMALISATION]
        unlike = [arrays.pop(f"null_code/{part}") for part in _NULL_CODE if f"null_code/{part}" in arrays]
        null_code = NullCode(*unlike) if unlike else None
        columns = [int(each["column"]) for each in record["categories"]]
        categories = read_categories(record, {at: arrays.pop(f"category/{at}") for at in columns})
        expires = read_date(record["expires"])
        map_error = MapError.of_record(record.get("map_error"))
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{name}: its record cannot be read ({type(error).__name__})") from error
    if any(part.shape != (len(names),) for part in learnt) or not (learnt[1] > 0).all():
        raise InputError(f"{name}: its normalisation does not fit its {len(names)} features")
    try:
        privatizer = find_privatizer(method).make(options)
    except InputError as error:
        raise InputError(f"{name}: written by another version of mapveil ({error})") from error
    state = {key.removeprefix("state/"): array for key, array in arrays.items()}
    return FittedPrivatizer(
        privatizer, Normalisation(names, *learnt), state, null_code, categories, expires, map_error
    )


def fingerprint(fitted: FittedPrivatizer) -> str:
    """The SHA-256 of a privatizer's file, as 64 hexadecimal digits: certificates and reports name it by this."""
    return encode_privatizer(fitted)[-_DIGEST:].hex()


def read_categories(record: Mapping[str, Any], values: Mapping[int, npt.ArrayLike]) -> tuple[Category, ...]:
    """The categories of a record, with their values by column; a ValueError or KeyError where it is none."""
    made = []
    for each in record["categories"]:
        column, texts = int(each["column"]), dict(each.get("texts", {}))
        held = np.asarray(values[column], dtype=np.float64)
        ordered = tuple(sorted(map(str, texts), key=texts.__getitem__))
        if texts and [texts[text] for text in ordered] != held.tolist():
            raise ValueError("texts")
        made.append(Category(column, held, read_exact(each["epsilon"]), ordered))
    return tuple(made)


def read_date(text: str | None) -> date | None:
    """A day of a record; a ValueError where it is none."""
    return None if text is None else date.fromisoformat(text)


def _arrays(data: bytes, listed: list[dict[str, Any]]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    at = 0
    for each in listed:
        shape = tuple(int(length) for length in each["shape"])
        if each["dtype"] not in _DTYPES or any(not 0 <= length <= _LONGEST for length in shape):
            raise ValueError(each["name"])
        dtype = np.dtype(each["dtype"])
        size = dtype.itemsize
        for length in shape:
            size *= length
        if at + size > len(data):
            raise ValueError(each["name"])
        array = np.frombuffer(data, dtype, size // dtype.itemsize, at).reshape(shape)
        yield str(each["name"]), array.astype(dtype.newbyteorder("="))
        at += size
    if at != len(data):
        raise ValueError("bytes left over")
