"""PostgreSQL joins a round's devices and messages in bulk, though it has counted no row of a new collection yet."""

from __future__ import annotations

from sqlalchemy import event

from mapveil.collector.rounds.engine import Engine
from mapveil_client.randomness.random import Randomness

PAIRS = ({"assignments", "messages"}, {"assignments", "shards"}, {"messages", "shards"})
"""Tables that hold a row for each device or each of a thousand shards."""


def test_no_device_is_compared_with_every_message(postgresql_store, clock, crowd_of, opened, make_spec):
    plans = {}

    @event.listens_for(postgresql_store._database.writing, "before_cursor_execute")
    def explain(connection, cursor, statement, parameters, context, many):
        words = set(statement.replace("\n", " ").replace(".", " ").split())
        if many or "devices" in words or not any(pair <= words for pair in PAIRS):
            return  # devices are looked up by their one key
        with cursor.connection.cursor() as own:
            own.execute(f"EXPLAIN {statement}", parameters)
            plans[statement] = "\n".join(line for (line,) in own.fetchall())

    crowd = crowd_of(postgresql_store, 24)
    engine = Engine(postgresql_store, clock, Randomness(7))
    id, _ = opened(engine, make_spec("distributed", method="laplace", active=False))
    assert crowd.play(engine, id, clock) == "done"
    assert len(plans) >= 3
    for statement, plan in plans.items():
        assert "Nested Loop" not in plan, f"{statement}\n{plan}"
