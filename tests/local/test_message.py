"""Reports as messages: round trips, vectors on file, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import weakref
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.planar_laplace import PlanarLaplace
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil.local.randomizers.unary_encoding import UnaryEncoding
from mapveil_client.errors import InputError
from mapveil_client.local.domain import Domain
from mapveil_client.local.message import ReportReader, read_reports, write_reports
from mapveil_client.randomness.random import Randomness

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("make_local_vectors", HERE / "make_vectors.py")
GENERATOR = importlib.util.module_from_spec(spec)
spec.loader.exec_module(GENERATOR)
VECTORS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(GENERATOR.FOLDER.glob("*.json"))}
OF_VECTORS = pytest.mark.parametrize("name", VECTORS)

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def test_there_is_a_vector_of_every_mechanism_with_exact_tables() -> None:
    assert set(VECTORS) == set(GENERATOR.MECHANISMS)


@OF_VECTORS
def test_phones_write_the_vectors_bytes(name: str) -> None:
    vector = VECTORS[name]
    made = GENERATOR.reports_of(vector)
    assert made == {key: vector[key] for key in made}


@OF_VECTORS
def test_servers_read_the_vectors_reports(name: str) -> None:
    vector = VECTORS[name]
    messages = [bytes.fromhex(message) for message in vector["messages"]]
    assert read_reports(messages, GENERATOR.randomizer_of(vector)).values.tolist() == vector["values"]


@OF_VECTORS
def test_servers_refuse_the_vectors_negatives(name: str) -> None:
    vector = VECTORS[name]
    randomizer = GENERATOR.randomizer_of(vector)
    good = [bytes.fromhex(message) for message in vector["messages"]]
    for case in vector["refused"]:
        bad = bytes.fromhex(case["message"])
        with pytest.raises(InputError, match="report 2: "):
            read_reports([*good[:2], bad, *good[2:]], randomizer)


def test_a_reader_of_symbols_keeps_no_table() -> None:
    """A collector holds the readers of several open collections."""
    randomizer = PlanarLaplace(epsilon=1).on(Domain(mv.Grid(REGION, rows=3, columns=5)))
    (body,) = write_reports(randomizer.randomize([3], Randomness(1)), randomizer)
    reader, kept = ReportReader(randomizer), weakref.ref(randomizer)
    del randomizer
    assert kept() is None
    assert reader.read(body)[1] == 0


def test_reports_of_another_version_of_the_domain_say_so() -> None:
    lon, lat = np.linspace(-74.0, -73.92, 11), np.linspace(40.70, 40.82, 11)
    old, new = (Domain(mv.Places(lon + shift, lat, REGION)) for shift in (0, 1e-6))
    mechanism = StaircaseResponse(epsilon=1)
    messages = write_reports(mechanism.on(old).randomize([3, 4], Randomness(1)), mechanism.on(old))
    with pytest.raises(InputError, match=r"another domain than places:11, or another version of it"):
        read_reports(messages, mechanism.on(new))


@pytest.mark.parametrize(
    "other",
    [GeneralizedRandomizedResponse(epsilon=2), StaircaseResponse(epsilon=1), UnaryEncoding(epsilon=1)],
)
def test_reports_of_another_randomizer_or_epsilon_say_so(other) -> None:
    domain = Domain(mv.Quadtree(REGION, depth=2))
    own = GeneralizedRandomizedResponse(epsilon=1).on(domain)
    foreign = other.on(domain)
    messages = write_reports(foreign.randomize([5], Randomness(1)), foreign)
    with pytest.raises(InputError, match="another randomizer, or of another epsilon"):
        read_reports(messages, own)


@pytest.mark.parametrize("mechanism", [GeneralizedRandomizedResponse, UnaryEncoding], ids=lambda m: m.name)
def test_no_messages_are_no_reports(mechanism) -> None:
    randomizer = mechanism(epsilon=1).on(Domain(mv.Quadtree(REGION, depth=2)))
    assert randomizer.tally(read_reports([], randomizer)).reports == 0


@given(st.binary(max_size=120))
def test_arbitrary_bytes_are_never_a_report_and_never_another_error(data: bytes) -> None:
    randomizer = GeneralizedRandomizedResponse(epsilon=Fraction(1)).on(Domain(mv.Quadtree(REGION, depth=2)))
    with pytest.raises(InputError, match="report 0: "):
        read_reports([data], randomizer)
