"""Files of certificates, read strictly: what an editor or another program changed must not reach a map."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

from mapveil.evaluation.signal_certificate import (
    FORMAT,
    LATER_DAYS,
    MOST_EMPTY,
    OTHER_USERS,
    Judged,
    SignalCertificate,
)
from mapveil.formats.atomic import atomic_path
from mapveil_client.errors import InputError

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")
_LONGEST: Final = 100  # characters of a name; the labels of adversaries have fewer than 40
_SHOWN: Final = 40  # characters of a wrong value in a message
_HALF_EARTH_M: Final = 20_040_000  # no two places are further apart (the equator is 40,075 km long)


def write_certificate(certificate: SignalCertificate, path: Path) -> None:
    """Write a certificate as JSON, whole or not at all."""
    with atomic_path(path) as place:
        place.write_text(
            json.dumps(certificate.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )


def read_certificate(path: Path) -> SignalCertificate:
    """Read back :func:`write_certificate`.

    Raises
    ------
    InputError
        No such file, or no certificate.
    """
    try:
        return _certificate(_read_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else f"{error}"
        raise InputError(
            f"{path}: cannot be read as a certificate ({reason}); expected what 'mapveil signal certify' wrote"
        ) from None


def _certificate(record: dict[str, Any]) -> SignalCertificate:
    """The certificate of a record, every field of which is checked."""
    if record["format"] != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    first, last = (date.fromisoformat(record[name]) for name in ("first", "last"))
    days, span = _read_whole(record, "days", 2), (last - first).days + 1
    if not days <= span < 2 * days:
        raise ValueError(f"rows on {days} of the {span} days from {first} to {last}")
    judged = tuple(_read_judged(_as_object(each, "judged")) for each in _read_list(record, "judged"))
    if tuple(each.part for each in judged) != (OTHER_USERS, LATER_DAYS):
        raise ValueError(f"judged must be of {OTHER_USERS}, then of {LATER_DAYS}")
    return SignalCertificate(
        _read_fingerprint(record, "fingerprint"),
        first,
        last,
        days,
        _read_whole(record, "left_out"),
        tuple(_read_name(each, "adversaries") for each in _read_list(record, "adversaries")),
        judged,
        math.inf if record["worst_epsilon"] is None else _read_number(record, "worst_epsilon"),
        _read_number(record, "empty", 0, MOST_EMPTY),
        _read_whole(record, "labelled_users", 1),
        _read_whole(record, "labelled_reports", 1),
    )


def _read_judged(record: dict[str, Any]) -> Judged:
    known = record["user_error"] is not None
    return Judged(
        _read_name(record["part"], "part"),
        _read_whole(record, "runs", 1),
        _read_number(record, "user_error", 0, 1) if known else None,
        _read_name(record["user_adversary"], "user_adversary") if known else None,
        _read_number(record, "location_error_m", 0, _HALF_EARTH_M),
        _read_name(record["location_adversary"], "location_adversary"),
        _read_number(record, "blind_user_error", 0, 1) if known else None,
        _read_number(record, "blind_location_error_m", 0, _HALF_EARTH_M),
        _read_whole(record, "users", 1),
        _read_whole(record, "user_error_users", 1 if known else 0),
        _read_interval(record, "user_error_interval") if known else None,
    )


def _read_json(text: str) -> dict[str, Any]:
    """A JSON object without NaN or infinity; a ValueError for anything else."""
    try:
        record = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return _as_object(record, "the file")


def _as_object(value: Any, name: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise _wrong(name, "an object", value)
    return value


def _read_list(record: Mapping[str, Any], name: str) -> list[Any]:
    """A list that is not empty."""
    value = record[name]
    if not isinstance(value, list) or not value:
        raise _wrong(name, "a list that is not empty", value)
    return value


def _read_number(record: Mapping[str, Any], name: str, low: float = 0, high: float = math.inf) -> float:
    """A finite number from ``low`` to ``high``."""
    value = record[name]
    # The comparison is exact: a whole number of 400 digits has no float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= min(high, 1e300):
        limit = f"from {low:,} to {high:,}" if math.isfinite(high) else f"of at least {low:,}"
        raise _wrong(name, f"a number {limit}", value)
    return float(value)


def _read_whole(record: Mapping[str, Any], name: str, low: int = 0) -> int:
    """A whole number of at least ``low``."""
    value = _read_number(record, name, low)
    if not isinstance(record[name], int):
        raise _wrong(name, "a whole number", record[name])
    return int(value)


def _read_interval(record: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Two fractions, the lower first."""
    value = record[name]
    if not isinstance(value, list) or len(value) != 2:
        raise _wrong(name, "two numbers", value)
    low, high = (_read_number({name: each}, name, 0, 1) for each in value)
    if low > high:
        raise _wrong(name, "the lower number first", value)
    return low, high


def _read_name(value: Any, name: str) -> str:
    """A printable text of at most 100 characters."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or not value.isprintable():
        raise _wrong(name, f"a printable text of 1 to {_LONGEST} characters", value)
    return value


def _read_fingerprint(record: Mapping[str, Any], name: str) -> str:
    """A SHA-256 in hexadecimal."""
    value = record[name]
    if not isinstance(value, str) or not _FINGERPRINT.fullmatch(value):
        raise _wrong(name, "64 hexadecimal digits", value)
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _wrong(name: str, wanted: str, value: Any) -> ValueError:
    try:
        shown = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or of more than 4300 digits
        shown = type(value).__name__
    return ValueError(f"{name} must be {wanted}, got {shown[:_SHOWN]}")
