"""Enrolment of devices by token: a batch of them in one transaction, no more than their token may let in."""

import secrets
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, func, insert, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Row

from mapveil.collector.clock import Clock, read_time, time_text
from mapveil.collector.recent import Recent
from mapveil.collector.refusals import Forbidden, Refusal, TooMany, Unauthorized
from mapveil.collector.store.audit_log import record
from mapveil.collector.store.backends import CLOCK
from mapveil.collector.store.schema import MOST_NUMBER, devices, enrolments

_SKIPPED: Final = 1_000_000
"""Numbers left out when a store is restored. Chosen: more devices than enrol between two backups."""

_MOST_COUNTS: Final = 1 << 12  # of tokens and periods whose devices were counted


class Candidate(NamedTuple):
    """A device that holds its key and asks to be enrolled."""

    token_hash: bytes
    public_key: bytes
    simulated: bool  # whether it is one of a fleet in one process, as it says


class _Count(NamedTuple):
    """Devices that a token let in since a time, with the uses that it had left when they were counted."""

    since: str
    devices_and_uses: int


class EnrolDevices:
    """Enrol a batch of devices; the same key again is the same device, and uses nothing up.

    Parameters
    ----------
    pace : sequence of (int, int)
        Maximum devices that one enrolment token lets in within so many seconds.
    """

    def __init__(self, pace: Sequence[tuple[int, int]]) -> None:
        self._pace = pace
        self._counts: Recent[tuple[int, int], _Count] = Recent(_MOST_COUNTS)

    def __call__(self, connection: Connection, batch: Sequence[Candidate]) -> list[int | Refusal]:
        """Number of each device, or its refusal."""
        known = _known(connection, {each.public_key for each in batch})
        asking: dict[bytes, list[Candidate]] = {}
        for each in batch:
            if each.public_key not in known:
                asking.setdefault(each.token_hash, []).append(each)
        refused: dict[bytes, Refusal] = {}
        clock: Clock = connection.get_execution_options()[CLOCK]
        now = time_text(clock.now())
        # Every process locks tokens in this order, and inserts keys in theirs once it has all locks.
        tokens = {
            token: connection.execute(_TOKEN, {"digest": token, "now": now}).one_or_none()
            for token in sorted(asking)
        }
        for token, found in tokens.items():
            new = {each.public_key: each for each in asking[token] if each.public_key not in known}
            made, refused[token] = self._let_in(connection, found, list(new.values()), clock)
            known |= made
        return [known.get(each.public_key) or refused[each.token_hash] for each in batch]

    def _let_in(
        self, connection: Connection, found: Row[Any, Any] | None, new: Sequence[Candidate], clock: Clock
    ) -> tuple[dict[bytes, int | Refusal], Refusal]:
        """The new devices by their keys, and the refusal of those that the token does not let in."""
        now = time_text(clock.now())
        over = Unauthorized(
            "the enrolment token is unknown, expired, revoked or used up",
            "a new one of this collector: its operators see which it is, and make another",
        )
        if found is None:
            return {}, over
        # Another process may have enrolled them before this one held the lock.
        made = _known(connection, [each.public_key for each in new])
        new = [each for each in new if each.public_key not in made]
        room, refusal = self._room(connection, found.id, found.uses_left, len(new), clock)
        if found.uses_left <= room:
            room, refusal = found.uses_left, over
        rows = [
            {
                "public_key": each.public_key,
                "enrolment": found.id,
                "enrolled_at": now,
                "simulated": each.simulated,
            }
            for each in sorted(new[:room], key=lambda each: each.public_key)
        ]
        if rows:
            inserted = connection.execute(_ENROL[connection.dialect.name], rows).all()
            for row in inserted:
                made[bytes(row.public_key)] = row.id
                record(connection, f"device {row.id}", "device.enrol", enrolment=found.id)
            connection.execute(_USE, {"used": found.id, "uses": len(inserted)})
            # Of a key that another process enrolled by another token meanwhile, that device is told.
            made |= _known(connection, [row["public_key"] for row in rows if row["public_key"] not in made])
        return made, refusal or over

    def _room(
        self, connection: Connection, token: int, uses_left: int, wanted: int, clock: Clock
    ) -> tuple[int, Refusal | None]:
        """Devices of those that ask which a token may let in now, and the refusal of one more.

        Devices are counted only where they may be too many: a use that is gone since the last count is one device more,
        and no count grows otherwise while the clock goes on.
        """
        room, now = wanted, clock.now()
        refusal: Refusal | None = None
        for most, seconds in self._pace:
            since = time_text(now - timedelta(seconds=seconds))
            known = self._counts.get((token, seconds))
            if known and known.since <= since and known.devices_and_uses - uses_left + wanted <= most:
                continue
            first, count = connection.execute(_LATELY, {"enrolment": token, "since": since}).one()
            self._counts.put((token, seconds), _Count(since, count + uses_left))
            if most - count < room:
                wait = seconds - (now - (read_time(first) if count else now)).total_seconds()
                what = f"the enrolment token lets in at most {most} devices in {seconds} s"
                room, refusal = max(0, most - count), TooMany(what, max(wait, 1.0))
        return room, refusal


def close_enrolment(connection: Connection, device: int, actor: str, now: str) -> None:
    """Revoke the token that a device enrolled with, where it is not; devices that it let in stay."""
    used = connection.execute(select(devices.c.enrolment).where(devices.c.id == device)).scalar_one()
    here = (enrolments.c.id == used) & enrolments.c.revoked_at.is_(None)
    if connection.execute(update(enrolments).where(here).values(revoked_at=now)).rowcount:
        record(connection, actor, "enrolment.revoke", number=used, because=device)


def skip_numbers(connection: Connection) -> int:
    """Leave a gap above the newest device's number, for those of a restored store that it has forgotten.

    Returns
    -------
    int
        The number above which devices are numbered from now on.
    """
    newest: int = connection.execute(select(func.coalesce(func.max(devices.c.id), 0))).scalar_one()
    number = newest + min(_SKIPPED, (MOST_NUMBER - newest) // 2)
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT setval(pg_get_serial_sequence('devices', 'id'), :n)"), {"n": number})
        return number
    # SQLite gives the number above that of the newest row: a revoked one with a key that nobody holds.
    clock: Clock = connection.get_execution_options()[CLOCK]
    now, nobody = time_text(clock.now()), secrets.token_bytes(32)
    times = {"created_at": now, "expires_at": now, "revoked_at": now}
    token = insert(enrolments).values(name="a restored store", uses_left=0, token_hash=nobody, **times)
    used = connection.execute(token.returning(enrolments.c.id)).scalar_one()
    row = {"id": number, "public_key": nobody, "enrolment": used, "enrolled_at": now, "revoked_at": now}
    connection.execute(insert(devices).values(row))
    return number


def _known(connection: Connection, keys: Collection[bytes]) -> dict[bytes, int | Refusal]:
    """Those of the keys that are enrolled: the number of each device, or that it was revoked."""
    if not keys:
        return {}
    rows = connection.execute(_OF_KEYS, {"keys": sorted(keys)})
    return {
        bytes(row.public_key): row.id if row.revoked_at is None else Forbidden("the device was revoked")
        for row in rows
    }


# Built once: thousands of devices enrol at the same time.
_OF_KEYS: Final = select(devices.c.id, devices.c.public_key, devices.c.revoked_at).where(
    devices.c.public_key.in_(bindparam("keys", expanding=True))
)
_TOKEN: Final = (
    select(enrolments.c.id, enrolments.c.uses_left)
    .where(
        enrolments.c.token_hash == bindparam("digest"),
        enrolments.c.revoked_at.is_(None),
        enrolments.c.expires_at > bindparam("now"),
    )
    .with_for_update()
)
_USE: Final = (
    update(enrolments)
    .where(enrolments.c.id == bindparam("used"))
    .values(uses_left=enrolments.c.uses_left - bindparam("uses"))
)
_LATELY: Final = select(func.min(devices.c.enrolled_at), func.count()).where(
    devices.c.enrolment == bindparam("enrolment"), devices.c.enrolled_at > bindparam("since")
)

_ENROL: Final = {
    "sqlite": sqlite.insert(devices).on_conflict_do_nothing().returning(devices.c.id, devices.c.public_key),
    "postgresql": postgresql.insert(devices)
    .on_conflict_do_nothing()
    .returning(devices.c.id, devices.c.public_key),
}
