"""The store: durable, shared fairly, and honest when its database fails."""

from __future__ import annotations

import asyncio

from sqlalchemy import select

from mapveil.collector.schema import operators


def row(number: int) -> dict[str, object]:
    return {
        "id": number,
        "name": f"n{number}",
        "role": "viewer",
        "token_hash": number.to_bytes(32, "big"),
        "created_at": "a",
        "expires_at": "b",
    }


def names(store) -> list[str]:
    with store.read() as connection:
        return list(connection.execute(select(operators.c.name).order_by(operators.c.id)).scalars())


def test_what_was_committed_is_there(store):
    with store.write() as connection:
        connection.execute(operators.insert(), row(1))
    asyncio.run(store.commit(lambda connection: connection.execute(operators.insert(), row(2))))
    assert names(store) == ["n1", "n2"]
