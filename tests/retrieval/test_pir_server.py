"""The server half: what it answers, what it refuses, and an update of its database."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mapveil.retrieval.pir_client import Client
from mapveil.retrieval.pir_messages import OutdatedHint
from mapveil.retrieval.pir_server import Server
from mapveil.retrieval.records import Database
from mapveil_client.canonical_cbor import decode, encode
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness


def updated(parties) -> Server:
    records = parties.records.copy()
    records[5, 1] ^= 1
    return Server(Database.of(records, b"about", shape=parties.server.database.shape), compiled=False)


def test_a_database_update_makes_old_hints_a_clear_error(parties):
    now = updated(parties)
    old, new = parties.server.database.version.hex()[:16], now.database.version.hex()[:16]
    query = parties.client.query(5, Randomness(1))
    with pytest.raises(OutdatedHint, match=f"version {new} .* got {old}: .* new offer and hint") as caught:
        now.answer(query.message)
    # What the server sends instead tells the client the same.
    with pytest.raises(OutdatedHint, match=f"version {new} .* this client of {old}: start again"):
        parties.client.open(query.opening, caught.value.reply)
    with pytest.raises(OutdatedHint):
        parties.client.receive_hint(next(now.hint_messages()))
    fresh = Client(now.offer())
    for message in now.hint_messages():
        fresh.receive_hint(message)
    asked = fresh.query(5, Randomness(2))
    assert fresh.open(asked.opening, now.answer(asked.message)) == now.database.record(5)
    with pytest.raises(ParameterError, match="another version"):
        parties.client.open(asked.opening, now.answer(asked.message))


def test_an_answer_made_without_the_version_check_is_told_by_its_version(parties):
    now = updated(parties)
    query = parties.client.query(5, Randomness(3))
    forced = encode([1, 3, now.database.version, decode(query.message)[3]])
    with pytest.raises(OutdatedHint, match="an answer is of version"):
        parties.client.open(query.opening, now.answer(forced))


def test_the_error_keeps_its_reply_when_copied():
    error = copy.copy(OutdatedHint("text", b"reply"))
    assert (str(error), error.reply, error.exit_code) == ("text", b"reply", 2)


def test_a_hint_is_computed_once_and_kept(parties):
    server = parties.server
    again = Server(server.database, server.hint.copy(), compiled=False)
    assert again.offer() == server.offer()
    assert list(again.hint_messages()) == list(server.hint_messages())


def test_a_hint_of_another_version_is_refused_at_the_start(parties):
    with pytest.raises(ParameterError, match="not of this version"):
        Server(updated(parties).database, parties.server.hint, compiled=False)
    for word, change in ((0, 1), (700, 2**31), (1023, 2**32 - 1)):
        touched = parties.server.hint.copy()
        touched[3, word] ^= np.uint32(change)
        with pytest.raises(ParameterError, match="not of this version"):
            Server(parties.server.database, touched, compiled=False)


@pytest.mark.parametrize(
    "change", [lambda h: h[:-1], lambda h: h.astype(np.int32), lambda h: np.asfortranarray(h)]
)
def test_a_hint_of_another_form(parties, change):
    with pytest.raises(ParameterError, match="contiguous uint32"):
        Server(parties.server.database, change(parties.server.hint), compiled=False)


@pytest.mark.parametrize("words", [0, 5, 7, 1000])
def test_a_query_of_another_length(parties, words):
    message = encode([1, 3, parties.server.database.version, bytes(4 * words)])
    with pytest.raises(InputError, match=f"a query must have 6 words, got {words}"):
        parties.server.answer(message)


def test_the_kernels_answer_alike(parties):
    compiled = Server(parties.server.database, parties.server.hint, compiled=True)
    for record in range(5):
        message = parties.client.query(record, Randomness(record)).message
        assert compiled.answer(message) == parties.server.answer(message)


def test_threads_answer_side_by_side(make_parties):
    parties = make_parties(4000, 4, 100)
    server = Server(parties.server.database, parties.server.hint, compiled=True)
    asked = [parties.client.query(record, Randomness(record)) for record in range(0, 4000, 61)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(server.answer, [query.message for query in asked]))
    for query, answer in zip(asked, answers, strict=True):
        assert parties.client.open(query.opening, answer) == parties.records[query.opening.record].tobytes()


def test_large_hints_come_in_parts(make_parties):
    parties = make_parties(700, 1, 600)
    sizes = [len(decode(message)[4]) for message in parties.server.hint_messages()]
    assert sizes == [4096 * 256, 4096 * 256, 4096 * 88]
    assert parties.client.missing_rows == 0


def test_what_is_printed_names_version_and_size(parties):
    version = parties.server.database.version.hex()[:16]
    assert repr(parties.server) == f"Server(23 records, version {version})"
