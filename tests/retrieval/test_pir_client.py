"""The client half: every record of a database, what a query shows, what a wrong answer is told by."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from scipy import stats

from mapveil.retrieval.gaussian import draw_gaussian
from mapveil.retrieval.lattice_parameters import DEVIATION, LARGEST_COLUMNS, SCALE_BITS, largest_error
from mapveil.retrieval.matrix import matrix_key, matrix_times_secret
from mapveil.retrieval.pir_client import Client
from mapveil.retrieval.pir_server import Server
from mapveil.retrieval.records import Database
from mapveil.retrieval.shape import Shape
from mapveil_client.canonical_cbor import decode, encode
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness


def words(message: bytes) -> np.ndarray:
    return np.frombuffer(decode(message)[-1], dtype="<u4")


def forged(answer: bytes, change) -> bytes:
    values = decode(answer)
    return encode([*values[:-1], change(words(answer)).astype("<u4").tobytes()])


@pytest.fixture(scope="module")
def moderate(make_parties):
    return make_parties(records=2003, record_bytes=5, per_column=29)


def test_every_record_of_a_moderate_database(moderate):
    rng = Randomness(1)
    for record, expected in enumerate(moderate.records):
        message, opening = moderate.client.query(record, rng)
        assert moderate.client.open(opening, moderate.server.answer(message)) == expected.tobytes()


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 7, 1), (9, 1, 9), (9, 1, 1), (300, 2, 7)])
@pytest.mark.parametrize("record", [0, -1])
def test_the_ends_of_all_kinds_of_databases(make_parties, shape, record):
    parties = make_parties(*shape)
    record %= shape[0]
    message, opening = parties.client.query(record, Randomness(1))
    assert parties.client.open(opening, parties.server.answer(message)) == parties.records[record].tobytes()


@pytest.mark.parametrize("value", [0, 127, 128, 255])
def test_extreme_bytes(make_parties, value):
    parties = make_parties(60, 2, 5)
    records = np.full_like(parties.records, value)
    database = Database.of(records, shape=parties.server.database.shape)
    server = Server(database, compiled=False)
    client = Client(server.offer())
    client.receive_hint(next(server.hint_messages()))
    query = client.query(31, Randomness(1))
    assert client.open(query.opening, server.answer(query.message)) == bytes([value, value])


def test_the_most_columns_with_the_longest_digits():
    columns = LARGEST_COLUMNS
    database = Database.of(np.zeros((columns, 1), dtype=np.uint8), shape=Shape(columns, 1, 1))
    server = Server(database, compiled=False)
    client = Client(server.offer())
    client.receive_hint(next(server.hint_messages()))
    errors = []
    for record in (0, 40_000, columns - 1):
        query = client.query(record, Randomness(record))
        answer = server.answer(query.message)
        assert client.open(query.opening, answer) == b"\0"
        # A digit of -128 leaves -2^31: what is more is error.
        errors.append(int((words(answer) - query.opening.mask - np.uint32(1 << 31)).view(np.int32)[0]))
    deviation = float(DEVIATION) * 128 * math.sqrt(columns)
    assert max(map(abs, errors)) < largest_error(1, columns) < 1 << (SCALE_BITS - 1)
    assert 0.2 < np.sqrt(np.mean(np.square(errors))) / deviation < 2.5


def test_an_answer_brings_the_neighbours_too(parties):
    for record in (0, 7, 22):
        message, opening = parties.client.query(record, Randomness(1))
        column = parties.client.open_column(opening, parties.server.answer(message))
        assert column.first == record // 4 * 4
        # The last column is not full: 23 records, 4 to a column.
        assert np.array_equal(column.records, parties.records[column.first : column.first + 4])


def test_the_operating_systems_randomness_is_the_default(parties):
    first, second = parties.client.query(3), parties.client.query(3)
    assert not np.any(words(first.message) == words(second.message))


def fits_uniform(values: np.ndarray) -> bool:
    counts = np.bincount(values.astype("<u4").view(np.uint8), minlength=256)
    return stats.chisquare(counts).pvalue > 1e-9


def test_a_query_looks_uniform_and_the_test_has_power(make_parties):
    parties = make_parties(20_000, 1, 1)
    version = parties.server.database.version
    for column in (0, 19_999):
        sent = words(parties.client.query(column, Randomness(9)).message)
        assert fits_uniform(sent)
        # The same query without its mask: errors, and one at the column.
        bare = sent - matrix_times_secret(matrix_key(version), 20_000, draw_gaussian(1024, Randomness(9)))
        assert not fits_uniform(bare)
        assert np.flatnonzero(np.abs(bare.view(np.int32)) > 1 << 20).tolist() == [column]


@pytest.mark.parametrize(("scale", "fits"), [(1.0, True), (0.7, False), (1.3, False)])
def test_the_errors_of_answers_have_the_deviation_that_bounds_count_on(moderate, scale, fits):
    client, server = moderate.client, moderate.server
    lengths = np.sqrt((server.database.matrix.astype(float) ** 2).sum(axis=1))
    squares = []
    for at in range(60):
        message, opening = client.query(at, Randomness(at))
        noisy = words(server.answer(message)) - opening.mask
        error = ((noisy + np.uint32(1 << 23)) & np.uint32((1 << 24) - 1)).astype(float) - (1 << 23)
        squares.append(np.mean((error / lengths) ** 2))
        assert np.abs(error).max() < largest_error(145, 70)
    deviations = (np.mean(squares) - (float(DEVIATION) * scale) ** 2) / (np.std(squares) / np.sqrt(60))
    assert bool(abs(deviations) < 6.2) is fits


def test_wrong_answers_are_told_by_their_errors(parties):
    message, opening = parties.client.query(7, Randomness(1))
    answer = parties.server.answer(message)
    other = parties.server.answer(parties.client.query(7, Randomness(2)).message)
    half = forged(answer, lambda w: w + np.uint32(1 << (SCALE_BITS - 1)))
    for wrong in (other, half):
        with pytest.raises(InputError, match="fits neither"):
            parties.client.open(opening, wrong)


@pytest.mark.parametrize("count", [0, 11, 13])
def test_an_answer_of_another_length(parties, count):
    message, opening = parties.client.query(7, Randomness(1))
    answer = forged(parties.server.answer(message), lambda w: np.resize(w, count))
    with pytest.raises(InputError, match=f"an answer must have 12 words, got {count}"):
        parties.client.open(opening, answer)


def test_a_query_before_the_hint(parties):
    client = Client(parties.server.offer())
    with pytest.raises(InputError, match="12 rows of the hint are missing"):
        client.query(0)


def hint_parts(server, *sizes) -> list[bytes]:
    rows = server.hint.astype("<u4")
    parts, first = [], 0
    for size in sizes:
        parts.append(encode([1, 2, server.database.version, first, rows[first : first + size].tobytes()]))
        first += size
    return parts


def test_a_hint_may_come_in_any_order(parties):
    client = Client(parties.server.offer())
    for left, part in zip((7, 5, 0), reversed(hint_parts(parties.server, 5, 2, 5)), strict=True):
        client.receive_hint(part)
        assert client.missing_rows == left
    message, opening = client.query(22, Randomness(1))
    assert client.open(opening, parties.server.answer(message)) == parties.records[22].tobytes()
    with pytest.raises(InputError, match="once more"):
        client.receive_hint(part)


def test_a_hint_that_is_not_the_promised_one(parties):
    client = Client(parties.server.offer())
    whole = hint_parts(parties.server, 12)[0]
    touched = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(InputError, match="not what the offer promised"):
        client.receive_hint(touched)
    assert client.missing_rows == 12
    client.receive_hint(whole)
    assert client.missing_rows == 0


def test_a_hint_past_the_last_row(parties):
    client = Client(parties.server.offer())
    values = decode(hint_parts(parties.server, 12)[0])
    for first in (1, 12, (1 << 64) - 1):
        with pytest.raises(InputError, match="rows of the hint must be below"):
            client.receive_hint(encode([*values[:3], first, values[4]]))
    assert client.missing_rows == 12


def test_a_hint_larger_than_the_client_is_willing_to_hold(parties):
    with pytest.raises(InputError, match="at most 1000 bytes, got an offer of 49152"):
        Client(parties.server.offer(), largest_hint=1000)


@pytest.mark.parametrize("record", [-1, 23, 2.0])
def test_no_such_record(parties, record):
    with pytest.raises(ParameterError, match="must be"):
        parties.client.query(record)


def test_what_opens_an_answer_is_never_shown_or_copied(parties):
    opening = parties.client.query(17, Randomness(1)).opening
    assert repr(opening) == str(opening) == "Opening(secret)"
    for leak in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="secret"):
            leak(opening)
    assert repr(parties.client) == f"Client(23 records, version {parties.server.database.version.hex()[:16]})"
    assert "17" not in repr(opening)
