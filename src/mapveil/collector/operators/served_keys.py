"""The keys that an operator's store serves with, recorded in the store: others would spoil what is under way."""

from __future__ import annotations

from sqlalchemy import delete, insert, inspect, select
from sqlalchemy.engine import Connection

from mapveil.collector.operators.operator_keys import OperatorKeys, PeerKey
from mapveil.collector.rounds.life_cycle import ACTIVE
from mapveil.collector.store.schema import collections, operator_keys, tasks


def own_key_of(connection: Connection) -> str | None:
    """The public key that the store was first served with, hexadecimal; None where no operator has served from it."""
    if not inspect(connection).has_table(operator_keys.name):  # of a Mapveil before stores knew their keys
        return None
    return connection.execute(select(operator_keys.c.own)).scalar()


def fault_of_keys(connection: Connection, own: OperatorKeys, shared: PeerKey) -> str | None:
    """Why the store cannot be served with these keys; None where it can.

    The shared key may change while no collection is under way. The own key may not: devices name the helper's.
    """
    known = own_key_of(connection)
    if known is None:
        return None
    if known != own.config.public_key.hex():
        return (
            "the operator's key (--operator-key) is not the one that this store has served with, whose public part is "
            f"{known}: reports are sealed for that one"
        )
    last = connection.execute(select(operator_keys.c.shared)).scalar_one()
    if last != shared.fingerprint and _under_way(connection):
        return (
            "the key of --peer-key is not the one that this store has served with, and collections are under way: give "
            "that one, or let them end first"
        )
    return None


def record_keys(connection: Connection, own: OperatorKeys, shared: PeerKey) -> None:
    """Record the keys that the store is served with from now on."""
    connection.execute(delete(operator_keys))
    connection.execute(
        insert(operator_keys).values(own=own.config.public_key.hex(), shared=shared.fingerprint)
    )


def _under_way(connection: Connection) -> bool:
    active = collections.c.state.in_([state.value for state in ACTIVE])
    query = select(tasks.c.collection).join(collections, collections.c.id == tasks.c.collection).where(active)
    return connection.execute(query).first() is not None
