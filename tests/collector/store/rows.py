"""Rows of a store, for its tests."""

from __future__ import annotations

import asyncio

from sqlalchemy import select, text

from mapveil.collector.store.schema import messages


def message(client: int, body: bytes = b"body") -> dict[str, object]:
    return {"collection": "c", "round": 1, "phase": 0, "shard": 0, "client": client, "body": body}


async def commit(store, work):
    """Run a function of the connection in a transaction that it shares with others."""
    return await store.put(lambda connection, _: (work(connection),), None)


def put(client: int, body: bytes = b"body"):
    return lambda connection: connection.execute(messages.insert(), message(client, body)) and 1


def refuse_after(client: int, error: Exception | type[Exception]):
    def work(connection):
        put(client)(connection)
        raise error

    return work


def write(store, work):
    with store.write() as connection:
        work(connection)


def clients(store) -> list[int]:
    with store.read() as connection:
        return list(connection.execute(select(messages.c.client).order_by(messages.c.client)).scalars())


def lock_waits(store) -> int:
    """Locks of a PostgreSQL server that somebody waits for."""
    with store.read() as connection:
        return connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar_one()


def gather(*works):
    async def main():
        return await asyncio.gather(*works, return_exceptions=True)

    return asyncio.run(main())
