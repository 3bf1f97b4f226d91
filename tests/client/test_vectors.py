"""The vectors on file are what the Python client makes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mapveil_client.errors import InputError
from mapveil_client.local.message import read_reports
from mapveil_client.terms import CollectionTerms, canonical_json
from tests.client import make_vectors


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return json.loads(json.dumps(make_vectors.vectors()))


def close(one: Any, other: Any) -> bool:
    """Whether two records are alike; numbers with fractions to the last few bits, as processors' functions differ."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(close(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float):
        return one == pytest.approx(other, rel=1e-12, abs=1e-12)
    return one == other


@pytest.mark.parametrize("name", ["locate", "local", "odds", "signatures", "projection", "budget", "series"])
def test_the_python_client_makes_the_vectors(name: str, made: dict[str, Any]) -> None:
    path = make_vectors.FOLDER / f"{name}.json"
    kept = json.loads(path.read_text("utf-8"))
    if name == "projection":  # whose messages hold numbers with fractions
        for record in (made, {"projection": kept}):
            for answer in record["projection"]["answers"]:
                answer["message"] = answer["message"] and numbers(answer["message"])
        assert close(made[name], kept)
    else:
        assert made[name] == kept


def test_windows_and_reports_that_no_series_has_are_refused() -> None:
    kept = json.loads((make_vectors.FOLDER / "series.json").read_text("utf-8"))
    record = json.loads(kept["terms"])
    for windows in kept["refused_windows"]:
        with pytest.raises(InputError):
            CollectionTerms.decode(canonical_json(record | {"windows": windows}))
    terms = CollectionTerms.decode(kept["terms"].encode())
    for message in kept["refused_reports"].values():
        with pytest.raises(InputError):
            read_reports([bytes.fromhex(message)], terms.randomizer, 3)
    sent = [bytes.fromhex(each["message"]) for each in kept["reports"]]
    drawn = read_reports(sent, terms.randomizer, 3).windows
    assert drawn is not None
    assert drawn.tolist() == [each["window"] for each in kept["reports"]]
    with pytest.raises(InputError):
        read_reports(sent, terms.randomizer)


def numbers(message: str) -> list[Any]:
    """The values in a report of random features."""
    import numpy as np

    from mapveil_client import canonical_cbor

    *head, sent = canonical_cbor.decode(bytes.fromhex(message))
    return [field.hex() if isinstance(field, bytes) else field for field in head] + np.frombuffer(
        sent, dtype="<f8"
    ).tolist()


def test_there_are_vectors_of_every_method_that_the_browser_has() -> None:
    kept = json.loads((make_vectors.FOLDER / "local.json").read_text("utf-8"))
    methods = {vector["name"].split()[0] for vector in kept}
    assert methods == {"grr", "unary", "subset", "olh", "olh-h", "srr", "hr", "planar-laplace"}
