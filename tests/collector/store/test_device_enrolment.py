"""Enrolment in batches lets in exactly whom one device after another would be let in, and seldom counts."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from sqlalchemy import event

from mapveil.collector.refusals import Forbidden, TooMany, Unauthorized
from mapveil.collector.store.audit_log import lines
from mapveil.collector.store.device_enrolment import Candidate, EnrolDevices
from mapveil.collector.store.principals import Accounts, token_hash

from .rows import lock_waits

DAY = timedelta(days=1)
PACE = ((3, 60), (6, 3600))


class OneByOne:
    """The slow, obvious rule: every device is judged alone, and all of its token are counted each time."""

    def __init__(self, uses: dict[bytes, int]) -> None:
        self.uses, self.let_in = uses, dict.fromkeys(uses, ())
        self.known: dict[bytes, type | None] = {}

    def judge(self, asking: Candidate, now: datetime) -> type | None:
        if asking.public_key in self.known:
            return self.known[asking.public_key]
        token = asking.token_hash
        if not self.uses.get(token):
            return Unauthorized
        for most, seconds in PACE:
            if sum(at > now - timedelta(seconds=seconds) for at in self.let_in[token]) >= most:
                return TooMany
        self.uses[token] -= 1
        self.let_in[token] += (now,)
        self.known[asking.public_key] = None
        return None


class Undone(Exception):
    pass


@pytest.mark.parametrize("seed", range(6))
def test_a_batch_lets_in_whom_one_after_another_would(store, clock, seed):
    """Also with two processes, transactions that are undone, and a clock that goes back."""
    drawn = random.Random(seed)
    accounts = Accounts(store)
    tokens = {
        token_hash(accounts.create_enrolment("t", uses, 9 * DAY, None, "x").token): uses
        for uses in (1, 9, 40)
    }
    rule, processes = OneByOne(dict(tokens)), [EnrolDevices(PACE), EnrolDevices(PACE)]
    numbers: dict[bytes, int] = {}
    for _ in range(60):
        clock.advance(drawn.choice((0, 1, 20, 61, 900, -45)))
        batch = [
            Candidate(drawn.choice([*tokens, bytes(32)]), bytes([drawn.randrange(60)]) * 32, False)
            for _ in range(drawn.choice((1, 1, 2, 5)))
        ]
        enrol = drawn.choice(processes)
        undo = drawn.random() < 0.2
        with contextlib.suppress(Undone), store.write() as connection:
            answers = enrol(connection, batch)
            if undo:
                raise Undone
        if undo:
            continue
        # A key that comes twice by two tokens is judged by token: both orders are right.
        judged = {
            each: rule.judge(each, clock.now()) for each in sorted(batch, key=lambda each: each.token_hash)
        }
        for each, answer in zip(batch, answers, strict=True):
            if each.public_key in rule.known:
                assert numbers.setdefault(each.public_key, answer) == answer
            else:
                assert type(answer) is judged[each]
    assert 10 < len(numbers) == len(set(numbers.values())) == accounts.device_count()
    assert {each.uses_left for each in accounts.enrolments()} == set(rule.uses.values())
    with store.read() as connection:
        told = Counter(line.actor for line in lines(connection, limit=1000) if line.action == "device.enrol")
    assert told == Counter(f"device {number}" for number in numbers.values())


def test_devices_are_counted_only_near_the_limit(store):
    token = token_hash(Accounts(store).create_enrolment("t", 1000, DAY, None, "x").token)
    enrol, counted = EnrolDevices([(300, 3600)]), []
    listen = (store._database.writing, "before_cursor_execute")

    def note(_connection, _cursor, statement, *_rest):
        counted.extend([statement] if "count(*)" in statement and "devices" in statement else [])

    event.listen(*listen, note)
    refused = []
    for number in range(310):
        with store.write() as connection:
            (answer,) = enrol(connection, [Candidate(token, number.to_bytes(32, "big"), False)])
        refused += [number] if isinstance(answer, TooMany) else []
    event.remove(*listen, note)
    assert refused == list(range(300, 310))
    assert len(counted) == 1 + len(refused)


def test_a_device_that_was_revoked_stays_out_with_its_batch(store, clock):
    accounts = Accounts(store)
    token = token_hash(accounts.create_enrolment("t", 9, DAY, None, "x").token)
    both = [Candidate(token, bytes([number]) * 32, False) for number in (1, 2)]
    enrol = EnrolDevices(())
    with store.write() as connection:
        first, second = enrol(connection, both)
    accounts.revoke_device(first, "operator 1")
    with store.write() as connection:
        answers = enrol(connection, [*both, Candidate(token, bytes([3]) * 32, False)])
    assert isinstance(answers[0], Forbidden)
    assert answers[1] == second
    assert isinstance(answers[2], Unauthorized)  # its token was revoked with the device


@pytest.mark.parametrize(
    ("held", "waiting", "then"),
    [
        pytest.param([("later", 1)], [("earlier", 2), ("later", 3)], [("later", 2)], id="tokens before keys"),
        pytest.param([("earlier", 1)], [("later", 2), ("earlier", 3)], [("later", 4)], id="tokens in order"),
        pytest.param([("later", 1)], [("earlier", 2), ("earlier", 1)], [("later", 2)], id="keys in order"),
    ],
)
def test_two_processes_that_enrol_by_two_tokens_wait_for_each_other_in_one_order(
    postgresql_store, postgresql_url, new_store, held, waiting, then
):
    """Each gives (token, key) of devices: while one process has enrolled ``held``, the other waits with nothing."""
    store, other, accounts = postgresql_store, new_store(postgresql_url), Accounts(postgresql_store)
    hashes = sorted(token_hash(accounts.create_enrolment("t", 9, DAY, None, "x").token) for _ in range(2))
    tokens = dict(zip(("earlier", "later"), hashes, strict=True))

    def enrol(connection, devices):
        batch = [Candidate(tokens[token], bytes([key]) * 32, False) for token, key in devices]
        return dict(zip((key for _, key in devices), EnrolDevices(())(connection, batch), strict=True))

    def enrol_all():
        with other.write() as connection:
            return enrol(connection, waiting)

    with ThreadPoolExecutor() as pool:
        with store.write() as connection:
            numbers = enrol(connection, held)
            second = pool.submit(enrol_all)
            while not lock_waits(store):
                assert not second.done()
            numbers |= enrol(connection, then)
        found = second.result()
    assert all(isinstance(number, int) for number in (numbers | found).values())
    assert len(set((numbers | found).values())) == len(numbers | found) == accounts.device_count()
    assert all(found[key] == numbers[key] for key in found.keys() & numbers.keys())
