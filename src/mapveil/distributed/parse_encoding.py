"""Reading an encoding back from its record, as a device does that was sent one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mapveil.distributed.block_encoding import BlockEncoding
from mapveil.distributed.encoding import Encoding, LabelEncoding, NodeEncoding
from mapveil.distributed.level_encoding import LevelEncoding
from mapveil.distributed.private_region import MarginsEncoding
from mapveil.distributed.sketch_encoding import SketchEncoding
from mapveil.geo.morton import MAX_BITS
from mapveil_client.errors import InputError, ParameterError


def _labels(record: Mapping[str, Any]) -> LabelEncoding:
    if record["places"]["kind"] == "labels":
        raise ParameterError("labels of labels; labels of any other kind are accepted")
    return LabelEncoding(encoding_from_dict(record["places"]), record["labels"])


def _margins(record: Mapping[str, Any]) -> MarginsEncoding:
    if not 0 <= record["depth"] <= MAX_BITS:
        raise ParameterError(f"depth is {record['depth']!r}; 0 to {MAX_BITS} is accepted")
    return MarginsEncoding(record["depth"])


def _plain(record: Mapping[str, Any]) -> bool:
    """Whether all values are whole numbers, lists of them, text or such records: nothing that would be rounded."""
    left: list[Any] = list(record.values())
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            left += value.values()
        elif isinstance(value, list | tuple):
            if any(isinstance(each, str | Mapping) for each in value):
                return False
            left += value
        elif isinstance(value, bool) or not isinstance(value, int | str):
            return False
    return True


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], Encoding]] = {
    "nodes": NodeEncoding.from_dict,
    "labels": _labels,
    "levels": LevelEncoding.from_dict,
    "sketch": SketchEncoding.from_dict,
    "blocks": BlockEncoding.from_dict,
    "margins": _margins,
}


def encoding_from_dict(record: Mapping[str, Any]) -> Encoding:
    """Read back what an encoding's ``to_dict`` wrote. Run by: each client, and whoever keeps rounds.

    Parameters
    ----------
    record : mapping
        A record of plain values, as it came over the wire: nothing in it is trusted to be well formed.

    Raises
    ------
    InputError
        It is no record of an encoding; or one with a value outside its range.

    Examples
    --------
    >>> encoding_from_dict({"kind": "levels", "depth": 3, "levels": [1, 2], "runs": [[0, 64]]}).length
    20
    """
    kind = record.get("kind") if isinstance(record, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(f"no encoding is of kind {kind!r}; accepted: {', '.join(_KINDS)}")
    try:
        if not _plain(record):
            raise TypeError("a value is no whole number")
        return _KINDS[kind](record)
    except ParameterError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as error:
        raise InputError(
            f"the record of an encoding of kind {kind!r} is not complete or has a value of the wrong kind "
            f"({type(error).__name__}: {error}); what to_dict() writes is accepted"
        ) from None
