"""Files of certificates that somebody edited, or that another program wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from mapveil.evaluation.certificate_file import read_certificate, write_certificate
from mapveil.evaluation.signal_certificate import (
    LATER_DAYS,
    OTHER_USERS,
    Judged,
    SignalCertificate,
    certified,
)
from mapveil.obfuscation.privatized_file import Provenance
from mapveil.privacy.claim import Adversary, TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError

CERTIFICATE = SignalCertificate(
    "0" * 64,
    date(2013, 2, 1),
    date(2013, 4, 6),
    55,
    0,
    ("blind", "trees"),
    (
        Judged(OTHER_USERS, 1715, None, None, 388.7, "trees", None, 448.9, 2, 0, None),
        Judged(LATER_DAYS, 644, 0.5, "trees", 307.7, "blind", 0.75, 307.7, 4, 4, (0.2, 0.8)),
    ),
    24.5,
    0.03,
    5,
    4000,
)


def judged(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda record: record["judged"][1].update(values)


def top(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda record: record.update(values)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (judged(user_error="lots"), "user_error must be a number from 0 to 1, got 'lots'"),
        (judged(user_error=7), "user_error must be a number from 0 to 1, got 7"),
        (judged(user_error=True), "user_error must be a number from 0 to 1, got True"),
        (judged(location_error_m=float("nan")), "NaN is no number of JSON"),
        (judged(location_error_m=-5), "location_error_m must be a number from 0 to 20,040,000, got -5"),
        (judged(location_error_m=None), "location_error_m must be a number"),
        (judged(location_error_m=10**400), "location_error_m must be a number"),
        (judged(part=None), "part must be a printable text"),
        (judged(part="all users for ever"), "judged must be of other users, then of later days"),
        (judged(runs=2.5), "runs must be a whole number"),
        (judged(location_adversary="a\nb"), "location_adversary must be a printable text"),
        (judged(user_error_interval=[0.9, 0.1]), "user_error_interval must be the lower number first"),
        (judged(user_error_interval=[0.9]), "user_error_interval must be two numbers"),
        (judged(users=0), "users must be a number of at least 1, got 0"),
        (top(judged=[]), "judged must be a list that is not empty"),
        (top(judged=[3]), "judged must be an object"),
        (top(first="1900-01-01", last="2999-01-01"), "rows on 55 of the 401403 days from 1900-01-01"),
        (top(first="2013-04-07"), "rows on 55 of the 0 days"),
        (top(first=None), "fromisoformat"),
        (top(adversaries=[]), "adversaries must be a list that is not empty"),
        (top(adversaries="abc"), "adversaries must be a list that is not empty, got 'abc'"),
        (top(worst_epsilon=-1), "worst_epsilon must be a number of at least 0"),
        (top(empty=0.99), "empty must be a number from 0 to 0.5"),
        (top(fingerprint="abc"), "fingerprint must be 64 hexadecimal digits"),
        (top(format="mapveil signal certificate 1"), "its format is not"),
        (lambda record: record.pop("days"), "no 'days'"),
    ],
)
def test_an_edited_value_is_refused(
    edit: Callable[[dict[str, Any]], None], reason: str, tmp_path: Path
) -> None:
    record = CERTIFICATE.to_dict()
    edit(record)
    path = tmp_path / "c.json"
    path.write_text(json.dumps(record))
    with pytest.raises(
        InputError, match=rf"c\.json: cannot be read as a certificate \(.*{re.escape(reason)}"
    ):
        read_certificate(path)


@pytest.mark.parametrize("text", [b"[" * 100_000, b"[1]", b"{}", b"\xff\xfe", b"", b"1" * 5000])
def test_another_file_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(text)
    with pytest.raises(InputError, match="cannot be read as a certificate"):
        read_certificate(tmp_path / "c.json")


def test_names_of_adversaries_are_no_templates(tmp_path: Path) -> None:
    record = CERTIFICATE.to_dict() | {"adversaries": ["blind", "{oops}"]}
    (tmp_path / "c.json").write_text(json.dumps(record))
    read = read_certificate(tmp_path / "c.json")
    write_certificate(read, tmp_path / "d.json")
    assert read_certificate(tmp_path / "d.json") == read
    guarantee = Guarantee(model=TrustModel.OBFUSCATION, epsilon=None, adversary=Adversary.REPORTS)
    stated = certified(guarantee, read, Provenance(read.fingerprint, read.first, read.last))
    assert "the strongest of blind, {oops}, labelled" in stated.in_words()
