"""Write the test vectors of private retrieval: python tests/retrieval/make_vectors.py.

A vector is a whole exchange, byte for byte, for another implementation to follow; secrets and errors stand in it as
numbers, so that it need not draw them as this one does. The negative file lists messages that must be refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from mapveil.retrieval.digests import PROTOCOL, VERSION
from mapveil.retrieval.gaussian import draw_gaussian
from mapveil.retrieval.matrix import matrix_key, matrix_rows
from mapveil.retrieval.pir_client import Client
from mapveil.retrieval.pir_server import Server
from mapveil.retrieval.records import Database
from mapveil.retrieval.shape import Shape
from mapveil_client.canonical_cbor import decode, encode
from mapveil_client.randomness.random import Randomness

FOLDER = Path(__file__).resolve().parents[1] / "vectors" / "retrieval"

DATABASES: dict[str, dict] = {
    "tiles": {"records": 7, "record_bytes": 3, "per_column": 2, "about": "seven sites", "asked": [0, 6]},
    "one_record": {"records": 1, "record_bytes": 1, "per_column": 1, "about": "", "asked": [0]},
    "one_column": {"records": 5, "record_bytes": 2, "per_column": 5, "about": "", "asked": [3]},
    "one_row": {"records": 300, "record_bytes": 1, "per_column": 1, "about": "", "asked": [299, 17]},
}


def database_of(vector: dict) -> Database:
    """The database that a vector states."""
    shape = Shape(vector["records"], vector["record_bytes"], vector["per_column"])
    content = np.frombuffer(bytes.fromhex(vector["content"]), dtype=np.uint8)
    return Database.of(content.reshape(shape.records, -1), vector["about"].encode(), shape=shape)


def client_of(server: Server) -> Client:
    """A client with the whole hint."""
    client = Client(server.offer())
    for message in server.hint_messages():
        client.receive_hint(message)
    return client


def make_vector(name: str) -> dict:
    """All that is said about one database."""
    settings = dict(DATABASES[name])
    asked = settings.pop("asked")
    size = settings["records"] * settings["record_bytes"]
    content = Randomness(len(name)).words(size, np.uint8).tobytes()
    vector: dict = {"protocol": PROTOCOL.decode(), "version": VERSION, **settings, "content": content.hex()}
    database = database_of(vector)
    server = Server(database, compiled=False)
    client = client_of(server)
    key = matrix_key(database.version)
    columns = database.shape.columns
    return {
        **vector,
        "database": database.version.hex(),
        "matrix_key": key.hex(),
        "matrix_first_words": matrix_rows(key, 0, columns)[:, 0].tolist(),
        "matrix_last_words": matrix_rows(key, 0, columns)[:, -1].tolist(),
        "offer": server.offer().hex(),
        "hint_first_words": server.hint[:, 0].tolist(),
        "hint_last_words": server.hint[:, -1].tolist(),
        "exchanges": [exchange(server, client, record, seed) for seed, record in enumerate(asked)],
    }


def exchange(server: Server, client: Client, record: int, seed: int) -> dict:
    """A question and its answer."""
    rng = Randomness(seed)
    secret = draw_gaussian(1024, rng)
    errors = draw_gaussian(server.database.shape.columns, rng)
    query = client.query(record, Randomness(seed))
    answer = server.answer(query.message)
    column = client.open_column(query.opening, answer)
    return {
        "record": record,
        "seed": seed,
        "secret": secret.tolist(),
        "errors": errors.tolist(),
        "query": query.message.hex(),
        "answer": answer.hex(),
        "first": column.first,
        "column": column.records.tobytes().hex(),
    }


# What must be refused -----------------------------------------------------------------------------


def refused(vector: dict) -> list[dict]:
    """Messages of the first exchange of ``tiles``, altered: to whom, what, and why."""
    server = Server(database_of(vector), compiled=False)
    row = decode(next(server.hint_messages()))[4][:4096]
    hint = encode([VERSION, 2, server.database.version, 0, row])
    good = {
        "offer": bytes.fromhex(vector["offer"]),
        "hint": hint,
        "query": bytes.fromhex(vector["exchanges"][0]["query"]),
        "answer": bytes.fromhex(vector["exchanges"][0]["answer"]),
    }
    other = bytes(32)

    def put(kind: str, at: int, value: int | bytes) -> bytes:
        values = decode(good[kind])
        return encode([*values[:at], value, *values[at + 1 :]])

    def case(name: str, to: str, message: bytes, says: str, fault: str = "InputError") -> dict:
        return {"name": name, "to": to, "message": message.hex(), "fault": fault, "says": says}

    words = decode(good["answer"])[3]
    query_words = decode(good["query"])[3]
    cases = []
    for kind, data in good.items():
        cases += [
            case("nothing", kind, b"", "no message of retrieval"),
            case("another version", kind, put(kind, 0, 2), "no message of retrieval"),
            case("an unknown kind", kind, put(kind, 1, 9), "no message of retrieval"),
            case("a field more", kind, encode([*decode(data), 0]), "no message of retrieval"),
            case("a byte more", kind, data + b"\0", "after its end"),
            case("a byte less", kind, data[:-1], "ends early"),
            case("a longer head", kind, data[:1] + b"\x18" + data[1:], "no message of retrieval"),
            case("a short name", kind, put(kind, 2, other[:31]), "got 31"),
            case("a number for bytes", kind, put(kind, len(decode(data)) - 1, 7), "other types"),
        ]
    return [
        *cases,
        case("an answer for an offer", "offer", good["answer"], "must be an offer, got an answer"),
        case("more records to a column", "offer", put("offer", 5, 8), "per_column must be at most"),
        case("no records", "offer", put("offer", 3, 0), "records must be an integer"),
        case("too many rows", "offer", put("offer", 4, 1 << 20), "rows and"),
        case("a short digest", "offer", put("offer", 6, other[1:]), "got 31"),
        case("half a row", "hint", put("hint", 4, row[:8]), "whole rows of 4096"),
        case("a row too many", "hint", put("hint", 3, 6), "below 6, got row 6"),
        case("a hint of another database", "hint", put("hint", 2, other), "start again", "OutdatedHint"),
        case("half a word", "query", put("query", 3, query_words[:-2]), "whole words of 4"),
        case("a word too few", "query", put("query", 3, query_words[:-4]), "must have 4 words, got 3"),
        case(
            "a word too many", "query", put("query", 3, query_words + words[:4]), "must have 4 words, got 5"
        ),
        case(
            "a query of another database",
            "query",
            put("query", 2, other),
            "new offer and hint",
            "OutdatedHint",
        ),
        case("a row too few", "answer", put("answer", 3, words[:-4]), "must have 6 words, got 5"),
        case("an answer of noise", "answer", put("answer", 3, bytes(range(24))), "fits neither"),
        case(
            "an answer of another database", "answer", put("answer", 2, other), "start again", "OutdatedHint"
        ),
        case(
            "an update",
            "answer",
            encode([VERSION, 5, other]),
            "the server is of version 0000",
            "OutdatedHint",
        ),
    ]


def files() -> dict[str, str]:
    """Every file's name and text."""
    vectors = {name: make_vector(name) for name in DATABASES}
    made = {f"{name}.json": vector for name, vector in vectors.items()}
    made["refused.json"] = {
        "protocol": PROTOCOL.decode(),
        "version": VERSION,
        "cases": refused(vectors["tiles"]),
    }
    # Numbers of a list on one line: a secret has 1024.
    return {
        name: json.dumps(flat(content), indent=1).replace('"[', "[").replace(']"', "]") + "\n"
        for name, content in made.items()
    }


def flat(value: object) -> object:
    """The same, lists of numbers written out as text."""
    if isinstance(value, dict):
        return {key: flat(each) for key, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], int):
        return json.dumps(value, separators=(",", ":"))
    return [flat(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stderr.write(f"wrote {FOLDER / name}\n")
