"""The vectors on file: whole exchanges byte for byte, and messages that must be refused.

The exchanges are checked with Python's integers alone, by the formulas of the documentation.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import mapveil.retrieval.pir_messages
import mapveil_client.errors
from mapveil.retrieval.pir_client import Client
from mapveil.retrieval.pir_server import Server
from mapveil_client.canonical_cbor import decode
from mapveil_client.randomness.random import Randomness

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / "vectors" / "retrieval"
Q = 1 << 32


def load_generator():
    spec = importlib.util.spec_from_file_location("make_retrieval_vectors", HERE / "make_vectors.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


GENERATOR = load_generator()
VECTORS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
REFUSED = VECTORS.pop("refused")["cases"]


def words(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


def hashed(purpose: int, *parts: bytes) -> bytes:
    text = b"mapveil retrieval" + bytes([0, 1, 0, purpose])
    return hashlib.sha256(text + b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()


class Oracle:
    """The scheme over Python's integers, from its description."""

    def __init__(self, vector: dict) -> None:
        records, size, per_column = (vector[name] for name in ("records", "record_bytes", "per_column"))
        content = bytes.fromhex(vector["content"])
        self.rows, self.columns = per_column * size, -(-records // per_column)
        padded = content.ljust(self.rows * self.columns, b"\0")
        self.digits = [
            [padded[j * self.rows + i] - 128 for j in range(self.columns)] for i in range(self.rows)
        ]
        matrix = b"".join(bytes(digit % 256 for digit in row) for row in self.digits)
        numbers = b"".join(number.to_bytes(8, "big") for number in (records, size, per_column))
        self.database = hashed(1, numbers, vector["about"].encode(), matrix)
        self.key = hashed(2, self.database)
        stream = (
            Cipher(algorithms.AES(self.key), modes.CTR(bytes(16)))
            .encryptor()
            .update(bytes(4096 * self.columns))
        )
        flat = words(stream)
        self.a = [flat[1024 * j : 1024 * (j + 1)] for j in range(self.columns)]
        self.hint = [
            [sum(d * row[k] for d, row in zip(digits, self.a, strict=True)) % Q for k in range(1024)]
            for digits in self.digits
        ]


@pytest.fixture(scope="module", params=VECTORS)
def vector(request):
    return VECTORS[request.param]


@pytest.fixture(scope="module")
def oracle(vector):
    return Oracle(vector)


def test_the_files_are_current():
    made = GENERATOR.files()
    assert {path.name for path in FOLDER.glob("*.json")} == set(made)
    for name, text in made.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, (
            "run: python tests/retrieval/make_vectors.py"
        )


def test_the_offer_and_the_hint_follow_from_the_records(vector, oracle):
    assert (vector["database"], vector["matrix_key"]) == (oracle.database.hex(), oracle.key.hex())
    assert vector["matrix_first_words"] == [row[0] for row in oracle.a]
    assert vector["matrix_last_words"] == [row[-1] for row in oracle.a]
    assert vector["hint_first_words"] == [row[0] for row in oracle.hint]
    assert vector["hint_last_words"] == [row[-1] for row in oracle.hint]
    hint = b"".join(word.to_bytes(4, "little") for row in oracle.hint for word in row)
    assert decode(bytes.fromhex(vector["offer"])) == [
        1, 1, oracle.database, vector["records"], vector["record_bytes"], vector["per_column"],
        hashed(3, oracle.database, hint), vector["about"].encode(),
    ]  # fmt: skip


def test_exchanges_follow_from_their_secrets_and_errors(vector, oracle):
    for exchange in vector["exchanges"]:
        secret, errors = exchange["secret"], exchange["errors"]
        column = exchange["record"] // vector["per_column"]
        asked = [
            (sum(a * s for a, s in zip(row, secret, strict=True)) + errors[j] + (1 << 24) * (j == column)) % Q
            for j, row in enumerate(oracle.a)
        ]
        assert decode(bytes.fromhex(exchange["query"]))[:3] == [1, 3, oracle.database]
        assert words(decode(bytes.fromhex(exchange["query"]))[3]) == asked
        answered = [sum(d * c for d, c in zip(row, asked, strict=True)) % Q for row in oracle.digits]
        assert words(decode(bytes.fromhex(exchange["answer"]))[3]) == answered
        masks = [sum(h * s for h, s in zip(row, secret, strict=True)) for row in oracle.hint]
        digits = [((a - m + (1 << 23)) % Q) >> 24 for a, m in zip(answered, masks, strict=True)]
        opened = bytes((digit + 128) % 256 for digit in digits)
        size = vector["record_bytes"]
        assert exchange["first"] == column * vector["per_column"]
        assert exchange["column"] == opened[: (vector["records"] - exchange["first"]) * size].hex()
        at = exchange["first"] * size
        assert vector["content"][2 * at :].startswith(exchange["column"])


def test_both_halves_write_the_vectors_bytes(vector):
    server = Server(GENERATOR.database_of(vector), compiled=False)
    assert server.offer().hex() == vector["offer"]
    client = GENERATOR.client_of(server)
    for exchange in vector["exchanges"]:
        query = client.query(exchange["record"], Randomness(exchange["seed"]))
        assert query.message.hex() == exchange["query"]
        answer = server.answer(query.message)
        assert answer.hex() == exchange["answer"]
        column = client.open_column(query.opening, answer)
        assert (column.first, column.records.tobytes().hex()) == (exchange["first"], exchange["column"])


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case['to']}: {case['name']}")
def test_a_message_is_refused(case):
    vector = VECTORS["tiles"]
    fault = getattr(mapveil_client.errors, case["fault"], None) or getattr(
        mapveil.retrieval.pir_messages, case["fault"]
    )
    server = Server(GENERATOR.database_of(vector), compiled=False)
    fresh, ready = Client(server.offer()), GENERATOR.client_of(server)
    opening = ready.query(vector["exchanges"][0]["record"], Randomness(0)).opening
    take = {
        "offer": Client,
        "hint": fresh.receive_hint,
        "query": server.answer,
        "answer": lambda message: ready.open(opening, message),
    }[case["to"]]
    with pytest.raises(fault, match=case["says"]) as caught:
        take(bytes.fromhex(case["message"]))
    assert type(caught.value) is fault
    # Nothing was lost: what was right before still is.
    assert fresh.missing_rows == server.database.shape.rows
    assert ready.open(opening, bytes.fromhex(vector["exchanges"][0]["answer"])) == server.database.record(0)


def test_every_kind_of_message_is_among_the_refused():
    assert {case["to"] for case in REFUSED} == {"offer", "hint", "query", "answer"}
    assert {case["fault"] for case in REFUSED} == {"InputError", "OutdatedHint"}
    assert len({(case["to"], case["message"]) for case in REFUSED}) == len(REFUSED)
