"""The devices that a charge is of, and the digest of their numbers that the audit log keeps.

The digest has a random salt, which is deleted with the rows of who took part: from then on nobody can find the devices
of a small collection by trying every set.
"""

import hashlib
import secrets
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Select, Table, exists, func, insert, inspect, select
from sqlalchemy.engine import Connection

from mapveil.collector.store.database import join_in_bulk
from mapveil.collector.store.schema import assignments, messages, report_ids, reports, salts, shards, tasks
from mapveil_client.secure_sum.states import ServerState

_SALT_BYTES: Final = 16
_ROWS: Final = {"yield_per": 5000}


class Charged(NamedTuple):
    """The devices of a charge."""

    devices: int
    digest: str  # SHA-256 of the charge's salt, and their numbers in order, decimal, a line each


def draw_salt(connection: Connection, identifier: str, number: int) -> None:
    """Draw the salt of a charge, before :func:`charged_devices` is called for it."""
    salt = secrets.token_bytes(_SALT_BYTES)
    connection.execute(insert(salts).values(collection=identifier, number=number, salt=salt))


def charged_devices(connection: Connection, identifier: str, number: int, *, pruned: bool = False) -> Charged:
    """The devices that round ``number`` charges or, if that is 0, their reports.

    ``pruned`` says that the round's assignments are those whose input came in: no message is asked. A
    shard that was left out before the server sent its set of survivors is charged nothing; one left out later is.
    """
    salt = _salt(connection, identifier, number)
    query: Select[tuple[int]] = select(reports.c.device).where(reports.c.collection == identifier)
    helped = select(tasks.c.operator, tasks.c.accepted).where(tasks.c.collection == identifier)
    task = connection.execute(helped).first()
    if task is not None:
        number = 0  # every report is in every answer
        if task.operator:  # the helper knows reports, and no devices
            return _charged_reports(connection, identifier, salt)
    if number:
        kept = shard_counts(assignments, identifier, number, until=ServerState.INPUTS)
        query = select(assignments.c.device).where(*of_round(assignments, identifier, number), kept)
        if not pruned:
            join_in_bulk(connection)
            query = query.where(came(identifier, number, ServerState.INPUTS))
    count, digest = 0, hashlib.sha256(salt)
    in_order = query.order_by(query.selected_columns.device)
    for device in connection.execute(in_order, execution_options=_ROWS).scalars():
        count += 1
        digest.update(b"%d\n" % device)
    return Charged(count, digest.hexdigest())


def included_devices(connection: Connection, identifier: str, number: int, *, pruned: bool) -> int:
    """Number of devices in the sums of a round, once that is settled; ``pruned`` as in :func:`charged_devices`."""
    query = select(func.count()).select_from(assignments).where(*in_counted_shards(identifier, number))
    if not pruned:
        join_in_bulk(connection)
        query = query.where(came(identifier, number, ServerState.INPUTS))
    return int(connection.execute(query).scalar_one())


def _salt(connection: Connection, identifier: str, number: int) -> bytes:
    """The salt of a charge's digest; empty for one of an earlier Mapveil."""
    if not inspect(connection).has_table(salts.name):  # of an earlier one, which is only checked
        return b""
    here = salts.c.collection == identifier, salts.c.number == number
    return bytes(connection.execute(select(salts.c.salt).where(*here)).scalar() or b"")


def _charged_reports(connection: Connection, identifier: str, salt: bytes) -> Charged:
    """The reports of a task that another service leads, by their ids."""
    count, digest = 0, hashlib.sha256(salt)
    query = select(report_ids.c.report).where(report_ids.c.collection == identifier)
    for report in connection.execute(query.order_by(report_ids.c.report), execution_options=_ROWS).scalars():
        count += 1
        digest.update(bytes(report).hex().encode() + b"\n")
    return Charged(count, digest.hexdigest())


def in_counted_shards(identifier: str, number: int) -> tuple[ColumnElement[bool], ...]:
    """Conditions on the assignments of a round: the device's shard was not left out so far."""
    return *of_round(assignments, identifier, number), shard_counts(assignments, identifier, number)


def shard_counts(
    table: Table, identifier: str, number: int, until: ServerState = ServerState.ABORTED
) -> ColumnElement[bool]:
    """Condition on a round's assignments or messages: the shard was not left out until the end of a phase."""
    left_out = *of_round(shards, identifier, number), shards.c.failed <= until.value
    return table.c.shard.not_in(select(shards.c.shard).where(*left_out))


def came(identifier: str, number: int, phase: ServerState) -> ColumnElement[bool]:
    """Condition on the assignments of a round: the message of a phase came in."""
    return exists().where(
        *of_round(messages, identifier, number),
        messages.c.phase == phase.value,
        messages.c.shard == assignments.c.shard,
        messages.c.client == assignments.c.client,
    )


def of_round(table: Table, identifier: str, number: int) -> tuple[ColumnElement[bool], ...]:
    """Conditions on the rows of a round."""
    return table.c.collection == identifier, table.c.round == number
