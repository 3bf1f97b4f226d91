"""Accounts: tokens good for what they say and no longer, devices known by their keys, nothing secret kept or told."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import timedelta

import pytest
from sqlalchemy import select, text

from mapveil.collector.refusals import Conflict, Forbidden, Invalid, NotFound, TooMany, Unauthorized
from mapveil.collector.store.audit_log import lines
from mapveil.collector.store.principals import OPERATOR, ROLES, Accounts, draw_token, is_token
from mapveil.collector.store.schema import devices
from mapveil.collector.store.watched_devices import barred_devices
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import Identity, enrolment_statement

DAY = timedelta(days=1)


@pytest.fixture
def accounts(store):
    return Accounts(store)


def identity(number: int) -> Identity:
    return Identity.draw(Randomness(seed=number))


async def enrol(accounts, token: str, who: Identity, signer: Identity | None = None) -> int:
    signature = (signer or who).sign(enrolment_statement(token, who.public))
    return await accounts.enrol(token, who.public, signature)


def enrol_now(accounts, token: str, number: int) -> int:
    return asyncio.run(enrol(accounts, token, identity(number)))


def actions(store) -> list[tuple[str, str]]:
    with store.read() as connection:
        return [(line.actor, line.action) for line in lines(connection, limit=1000)]


# Operators


def test_an_operator_is_known_by_the_token(accounts, store, clock):
    issued = accounts.create_operator("Ada", "operator", DAY, "command line")
    found = accounts.verify_operator(issued.token)
    assert (found.id, found.name, found.role, found.revoked_at) == (issued.id, "Ada", "operator", None)
    assert found.actor == f"operator {issued.id}"
    assert accounts.operators() == [found]
    assert actions(store) == [("command line", "operator.create")]


def test_roles_are_in_order(accounts):
    operators = [
        accounts.verify_operator(accounts.create_operator("n", role, DAY, "x").token) for role in ROLES
    ]
    for rank, operator in enumerate(operators):
        for role in ROLES[: rank + 1]:
            operator.require(role)
        for role in ROLES[rank + 1 :]:
            with pytest.raises(
                Forbidden, match=f"needs the role {role}; the token's role is {operator.role}"
            ):
                operator.require(role)


def test_a_token_expires(accounts, clock):
    token = accounts.create_operator("n", "admin", DAY, "x").token
    clock.advance(86399)
    accounts.verify_operator(token)
    clock.advance(1)
    with pytest.raises(Unauthorized, match="expired at 2026-03-02"):
        accounts.verify_operator(token)


def test_a_token_is_taken_back(accounts, store, store_url, new_store):
    first, second = (accounts.create_operator(name, "admin", DAY, "x") for name in "ab")
    elsewhere = Accounts(new_store(store_url))
    elsewhere.verify_operator(first.token)
    accounts.revoke_operator(first.id, "operator 2")
    accounts.revoke_operator(first.id, "operator 2")
    for each in (accounts, elsewhere):
        with pytest.raises(Unauthorized, match="revoked"):
            each.verify_operator(first.token)
        each.verify_operator(second.token)
    assert actions(store)[2:] == [("operator 2", "operator.revoke")]


def test_other_tokens_are_refused(accounts):
    accounts.create_operator("n", "admin", DAY, "x")
    ends = ("", "A" * 43, "A" * 44, "é" * 43, "A" * 42 + "\n", "\ud800" * 43)
    for token in (*("mvo_" + end for end in ends), "", "mve_" + "A" * 43):
        with pytest.raises(Unauthorized):
            accounts.verify_operator(token)


def test_what_is_not_there_cannot_be_revoked(accounts):
    for number in (-1, 0, 99, 2**31, 2**63, 10**30):
        for revoke in (
            *(accounts.revoke_operator, accounts.revoke_enrolment, accounts.revoke_device),
            *(accounts.quarantine_device, accounts.release_device),
        ):
            with pytest.raises(NotFound):
                revoke(number, "operator 1")


def test_values_outside_their_range_are_refused(accounts):
    good = {"name": "n", "role": "admin", "lifetime": DAY}
    for bad in (
        *({"name": name} for name in ("", "n" * 101, "n\0", "a\nb", "\ud800")),
        {"role": "root"},
        *({"lifetime": lifetime} for lifetime in (timedelta(0), timedelta(days=4000), timedelta.max)),
    ):
        with pytest.raises(Invalid, match="must"):
            accounts.create_operator(**{**good, **bad}, actor="x")
    for uses in (0, -1, True, 1.5, (1 << 24) + 1):
        with pytest.raises(Invalid, match="1 to 16777216"):
            accounts.create_enrolment("phones", uses, DAY, None, "x")
    assert accounts.operators() == accounts.enrolments() == []


# Enrolment


def test_a_device_enrols(accounts, store):
    token = accounts.create_enrolment("phones", 3, DAY, None, "command line")
    device = enrol_now(accounts, token.token, 1)
    with store.read() as connection:
        assert connection.execute(select(devices.c.public_key)).scalar_one() == identity(1).public
    assert accounts.device_count() == 1
    assert accounts.enrolments()[0].uses_left == 2
    assert actions(store)[1:] == [(f"device {device}", "device.enrol")]


def test_the_same_key_is_the_same_device(accounts, store, clock):
    """Also when the token is used up, expired and revoked meanwhile: its first answer may have been lost."""
    token = accounts.create_enrolment("phones", 1, DAY, None, "x")
    device = enrol_now(accounts, token.token, 1)
    assert enrol_now(accounts, token.token, 1) == device
    clock.advance(2 * 86400)
    accounts.revoke_enrolment(token.id, "x")
    assert enrol_now(accounts, token.token, 1) == device
    assert accounts.device_count() == 1
    assert [action for _, action in actions(store)].count("device.enrol") == 1


def test_uses_are_counted_among_many_at_once(accounts, store, store_url, new_store):
    """Forty keys, each tried by two processes at once, for a token of 25 uses."""
    token = accounts.create_enrolment("phones", 25, DAY, None, "x").token
    both = [accounts, Accounts(new_store(store_url))]
    answers: list[list[object]] = [[], []]

    async def all_of_them(each):
        tried = (enrol(each, token, identity(n)) for n in range(40))
        return await asyncio.gather(*tried, return_exceptions=True)

    def run(index: int):
        answers[index] = asyncio.run(all_of_them(both[index]))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known: dict[int, int] = {}
    for each in answers:
        for n, answer in enumerate(each):
            if isinstance(answer, int):
                assert known.setdefault(n, answer) == answer
            else:
                assert isinstance(answer, Unauthorized)
    assert len(known) == len(set(known.values())) == accounts.device_count() == 25
    assert accounts.enrolments()[0].uses_left == 0
    assert [action for _, action in actions(store)].count("device.enrol") == 25


def test_a_token_that_is_over_enrols_nobody(accounts, clock):
    used, expired, revoked = (accounts.create_enrolment(name, 1, DAY, None, "x") for name in "abc")
    enrol_now(accounts, used.token, 1)
    accounts.revoke_enrolment(revoked.id, "x")
    for token in (used.token, revoked.token, "mve_" + "A" * 43):
        with pytest.raises(Unauthorized, match="unknown, expired, revoked or used up; expected a new one"):
            enrol_now(accounts, token, 2)
    clock.advance(86400)
    with pytest.raises(Unauthorized, match="unknown, expired, revoked or used up"):
        enrol_now(accounts, expired.token, 2)
    assert accounts.device_count() == 1


def test_another_ones_key_cannot_be_enrolled(accounts):
    token = accounts.create_enrolment("phones", 2, DAY, None, "x").token
    with pytest.raises(Unauthorized, match="signature"):
        asyncio.run(enrol(accounts, token, identity(1), signer=identity(2)))
    other = accounts.create_enrolment("phones", 2, DAY, None, "x").token
    signature = identity(1).sign(enrolment_statement(other, identity(1).public))
    with pytest.raises(Unauthorized, match="signature"):
        asyncio.run(accounts.enrol(token, identity(1).public, signature))
    assert [each.uses_left for each in accounts.enrolments()] == [2, 2]


def test_what_is_no_key_is_refused(accounts):
    token = accounts.create_enrolment("phones", 2, DAY, None, "x").token
    for key in (b"", bytes(31), bytes(33)):
        with pytest.raises(Invalid, match="expected one of 32 bytes"):
            asyncio.run(accounts.enrol(token, key, bytes(64)))
    for signature in (b"", bytes(64), bytes(65)):
        with pytest.raises(Unauthorized, match="signature"):
            asyncio.run(accounts.enrol(token, b"\xff" * 32, signature))


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("", "this is no token"),
        ("x" * 10_000, "this is no token"),
        ("mvo_" + "A" * 43, "this is an operator's token"),
        ("mve_" + "A" * 42, "this is a token that begins with mve_ and is not whole"),
        ("mve_" + "\ud800" * 43, "this is a token that begins with mve_ and is not whole"),
    ],
)
def test_what_is_no_enrolment_token_is_refused(accounts, token, said):
    needed = "expected an enrolment token: mve_ and 43 characters, as mapveil serve --new-enrolment prints"
    with pytest.raises(Unauthorized, match=f"^{said}; {needed}$"):
        asyncio.run(accounts.enrol(token, identity(1).public, bytes(64)))


def test_a_token_of_enrolment_is_no_operators(accounts):
    needed = "expected an operator's token: mvo_ and 43 characters, as mapveil serve --new-operator prints"
    with pytest.raises(Unauthorized, match=f"^this is an enrolment token; {needed}$"):
        accounts.verify_operator("mve_" + "A" * 43)
    with pytest.raises(
        Unauthorized, match="unknown here; expected one that was made with this collector's store"
    ):
        accounts.verify_operator("mvo_" + "A" * 43)


# Devices


def test_a_revoked_device_is_refused(accounts, store):
    token = accounts.create_enrolment("phones", 5, DAY, None, "x").token
    device, other = enrol_now(accounts, token, 1), enrol_now(accounts, token, 2)
    accounts.revoke_device(device, "operator 1")
    with pytest.raises(Forbidden, match="revoked"):
        enrol_now(accounts, token, 1)
    assert enrol_now(accounts, token, 2) == other
    assert accounts.device_count() == 1
    with pytest.raises(Unauthorized, match="revoked or used up"):  # nor another key by its token
        enrol_now(accounts, token, 3)
    assert actions(store)[-2:] == [("operator 1", "device.revoke"), ("operator 1", "enrolment.revoke")]


def test_a_device_in_quarantine_takes_no_part_until_it_is_released(accounts, store):
    token = accounts.create_enrolment("phones", 2, DAY, None, "x").token
    device, other = enrol_now(accounts, token, 1), enrol_now(accounts, token, 2)
    for _ in range(2):
        accounts.quarantine_device(device, "operator 1")  # the second time changes nothing
    (barred,) = barred_devices(store)
    assert (barred.id, barred.revoked_at, accounts.device_count()) == (device, None, 1)
    assert barred.quarantined_at is not None
    accounts.release_device(device, "operator 1")
    assert (barred_devices(store), accounts.device_count()) == ([], 2)
    with pytest.raises(Conflict, match=f"device {device} is not in quarantine"):
        accounts.release_device(device, "operator 1")
    accounts.revoke_device(other, "operator 1")
    for act in (accounts.quarantine_device, accounts.release_device):
        with pytest.raises(Conflict, match=f"device {other} is revoked, for good"):
            act(other, "operator 1")
    assert [each.id for each in barred_devices(store)] == [other]
    assert [action for _, action in actions(store)][-4:] == [
        "device.quarantine",
        "device.release",
        "device.revoke",
        "enrolment.revoke",
    ]


# Secrets


def test_tokens_are_long_and_never_the_same():
    tokens = {draw_token(OPERATOR) for _ in range(100)}
    assert len(tokens) == 100
    assert all(is_token(token, OPERATOR) and len(token) == 47 for token in tokens)


def test_no_token_or_key_is_kept_or_told(accounts, store, caplog):
    caplog.set_level(logging.DEBUG)
    operator = accounts.create_operator("n", "admin", DAY, "x")
    enrolment = accounts.create_enrolment("n", 1, DAY, operator.id, operator.token[:3])
    enrol_now(accounts, enrolment.token, 1)
    with pytest.raises(Unauthorized) as caught:
        enrol_now(accounts, enrolment.token, 2)
    with store.read() as connection:
        tables = ("operators", "enrolments", "devices", "audit")
        kept = [str(connection.execute(text(f"SELECT * FROM {table}")).all()) for table in tables]
    told = [*kept, repr(operator), repr(enrolment), f"{operator}", str(caught.value), caplog.text]
    for secret in (operator.token[4:], enrolment.token[4:]):
        assert not any(secret in line for line in told)
    assert identity(1).public.hex() not in kept[-1]


def test_a_token_lets_devices_in_at_a_pace(store, clock):
    """One token enrolled 50 keys in 1.7 s."""
    accounts = Accounts(store, pace=((3, 60), (5, 86_400)))
    elsewhere = Accounts(store, pace=((3, 60), (5, 86_400)))  # another process, or the same one started anew
    token = accounts.create_enrolment("phones", 100, 9 * DAY, None, "command line").token
    other = accounts.create_enrolment("others", 100, 9 * DAY, None, "command line").token
    numbers = [enrol_now(accounts, token, 1)]
    clock.advance(20)
    numbers += [enrol_now(accounts, token, number) for number in (2, 3)]
    for each in (accounts, elsewhere):
        with pytest.raises(TooMany, match="at most 3 devices in 60 s") as refused:
            enrol_now(each, token, 4)
        assert refused.value.retry_after == pytest.approx(40)
    assert [enrol_now(accounts, token, number) for number in (1, 2, 3)] == numbers  # known already
    enrol_now(accounts, other, 10)
    clock.advance(40)
    enrol_now(accounts, token, 4)
    clock.advance(61)
    enrol_now(accounts, token, 5)
    clock.advance(3600)
    with pytest.raises(TooMany, match="at most 5 devices in 86400 s"):
        enrol_now(accounts, token, 6)
    left = {each.name: each.uses_left for each in accounts.enrolments()}
    assert left == {"phones": 95, "others": 99}  # a refused one is not used
    assert accounts.device_count() == 6
    clock.advance(86_400)
    enrol_now(Accounts(store), token, 7)
