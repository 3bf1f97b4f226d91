from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mapveil.collector.clock import SystemClock
from mapveil.collector.http.settings import SETTINGS
from mapveil.collector.store import audit_log
from mapveil.collector.store.database import Store
from mapveil.collector.store.principals import Accounts
from mapveil.collector.store.watched_devices import barred_devices
from mapveil_client.secure_sum.keys import Identity, enrolment_statement
from tests.authority import NAMED, revocations_of

Call = Callable[..., Any]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_every_setting_is_an_option_with_its_variable_and_default(mapveil: Call) -> None:
    told = " ".join(mapveil("serve", "--help").out.split())
    for row in SETTINGS:
        default = "none" if row.default is None else row.default
        assert row.option in told
        shown = re.sub(r"\s", "", f"[{row.variable};{default}]")
        assert shown in re.sub(r"\s", "", told), row.name


def test_an_operator_is_made_and_the_token_is_all_of_stdout(mapveil: Call, store: Path) -> None:
    made = mapveil("serve", "--store", store, "--new-operator", "admin:me")
    assert made.code == 0
    token = made.out.strip()
    assert re.fullmatch(r"mvo_[A-Za-z0-9_-]{43}", token)
    assert token not in made.err
    opened = Store(str(store), clock=SystemClock())
    operator = Accounts(opened).verify_operator(token)
    opened.close()
    assert (operator.name, operator.role) == ("me", "admin")
    lifetime = datetime.fromisoformat(operator.expires_at) - datetime.now(UTC)
    assert timedelta(days=29) < lifetime <= timedelta(days=30)


def test_a_new_store_and_an_operator_of_the_same_name_are_said(mapveil: Call, store: Path) -> None:
    first, other, again = (
        mapveil("serve", "--store", store, "--new-operator", each)
        for each in ("admin:me", "viewer:me", "admin:me")
    )
    assert f"New store made at {store}" in first.err
    assert "New store" not in other.err + again.err
    assert "same role and name" not in first.err + other.err
    assert "Operator 1 has the same role and name, and its token is still good" in again.err


def test_an_enrolment_is_made_for_so_many_devices(mapveil: Call, store: Path) -> None:
    made = mapveil("serve", "--store", store, "--new-enrolment", "2000:pilot", "--expires", "12h", "--json")
    record = json.loads(made.out)
    assert record["id"] == 1
    assert record["token"].startswith("mve_")
    opened = Store(str(store), clock=SystemClock())
    (enrolment,) = Accounts(opened).enrolments()
    opened.close()
    assert (enrolment.name, enrolment.uses_left, enrolment.created_by) == ("pilot", 2000, None)


def test_a_device_is_barred_and_released_at_the_terminal(mapveil: Call, store: Path) -> None:
    made = json.loads(mapveil("serve", "--store", store, "--new-enrolment", "2", "--json").out)
    opened = Store(str(store), clock=SystemClock())
    identity = Identity(bytes(32))
    signature = identity.sign(enrolment_statement(made["token"], identity.public))
    device = asyncio.run(Accounts(opened).enrol(made["token"], identity.public, signature))
    for action, state, barred in (
        ("quarantine", "in quarantine", 1),
        ("release", "released", 0),
        ("revoke", "revoked", 1),
    ):
        done = mapveil("serve", "--store", store, "--device", f"{action}:{device}")
        assert (done.code, done.out) == (0, f"device {device} is {state}\n")
        assert len(barred_devices(opened)) == barred
        if state != "in quarantine":
            refused = mapveil("serve", "--store", store, "--device", f"release:{device}")
            reason = "is not in quarantine" if state == "released" else "is revoked, for good"
            assert (refused.code, refused.out) == (2, "")
            assert f"device {device} {reason}" in refused.err
    with opened.read() as connection:
        told = [(line.actor, line.action) for line in audit_log.lines(connection)]
    opened.close()
    acts = ("device.quarantine", "device.release", "device.revoke", "enrolment.revoke")
    assert told[-4:] == [("command line", each) for each in acts]


@pytest.mark.parametrize("store", ["sqlite:/s", "postgresql:/mapveil@localhost/mapveil", "postgres:x"])
def test_a_mistyped_address_of_a_store_is_no_file(mapveil: Call, store: str) -> None:
    for words in (("--check",), ("--new-operator", "admin"), ("--device", "revoke:1")):
        done = mapveil("serve", "--store", store, *words)
        assert done.code != 0
        assert "postgresql://user:password@host/name" in done.out + done.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--device", "quarantine:99"), "there is no store at"),
        (("--device", "forget:1"), "quarantine:N"),
        (("--device", "revoke:1", "--check"), "only one of"),
        (("--new-operator", "king"), "viewer"),
        (("--new-operator", "admin:" + "x" * 101), "100"),
        (("--new-operator", "admin", "--expires", "soon"), "30d"),
        (("--new-operator", "admin", "--expires", "99999d"), "days"),
        (("--new-operator", "admin", "--expires", "0d"), "30d"),
        (("--new-enrolment", "many"), "2000:pilot"),
        (("--new-enrolment", "0"), "1 to"),
        (("--new-enrolment", "5", "--check"), "only one of"),
        (("--new-enrolment", "5", "--head"), "only one of"),
        (("--head", "head.json"), "goes with --check"),
        (("--check", "--head"), "goes with --check"),
        (("--check", "--head", "none.json"), "cannot be read"),
        (("--port", "70000"), "0 to 65535"),
        (("--workers", "2"), "PostgreSQL"),
        (("--tls-cert", "a.pem"), "TLS"),
        (("--check", "--revocation-list", "none/list.hex"), "give --authority too"),
        (("--log-format", "xml"), "json"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    mapveil: Call, store: Path, arguments: tuple[str, ...], told: str
) -> None:
    outcome = mapveil("serve", "--store", store, *arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert told in outcome.err
    assert not store.exists()


def test_settings_come_from_the_environment_too(
    mapveil: Call, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAPVEIL_STORE", str(store))
    assert mapveil("serve", "--new-operator", "viewer").code == 0
    assert store.exists()
    monkeypatch.setenv("MAPVEIL_PORT", "many")
    outcome = mapveil("serve", "--new-operator", "viewer")
    assert outcome.code == 2
    assert "MAPVEIL_PORT" in outcome.err


def test_a_store_that_is_none_is_refused_without_its_password(mapveil: Call, tmp_path: Path) -> None:
    outcome = mapveil("serve", "--store", "mysql://me:hunter2@db/x", "--new-operator", "admin")
    assert outcome.code == 2
    assert "postgresql://" in outcome.err
    assert "hunter2" not in outcome.err
    other = tmp_path / "notes.txt"
    other.write_text("these are notes, and no store at all\n" * 100)
    outcome = mapveil("serve", "--store", other, "--new-operator", "admin")
    assert outcome.code in (1, 2)
    assert other.read_text().startswith("these are notes")


@pytest.mark.parametrize("arguments", [(), ("--new-operator", "admin")], ids=["start", "operator"])
def test_a_database_that_is_not_there_is_said_as_a_check_says_it(
    mapveil: Call, arguments: tuple[str, ...]
) -> None:
    store = ("--store", "postgresql://me:hunter2@127.0.0.1:1/none", "--port", "0")
    checked, started = mapveil("serve", "--check", *store), mapveil("serve", *arguments, *store)
    assert started.code == checked.code == 1
    (cause,) = re.findall(r"cannot be read or written now \(.*refused.*\)", checked.out)
    assert f"postgresql://me:***@127.0.0.1:1/none: the store {cause}" in started.err
    assert "hunter2" not in started.err + checked.out


@pytest.fixture
def started(mapveil: Call, store: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Start a service that ends at once; what it says on the way."""
    monkeypatch.setattr("mapveil.collector.http.serving.serve", lambda *_, **__: None)

    def start(*arguments: object) -> str:
        outcome = mapveil("serve", "--store", store, "--port", "0", *arguments)
        assert outcome.code == 0
        return str(outcome.err)

    return start


def test_a_service_in_the_clear_is_warned_of(started: Call) -> None:
    told = "tokens and what devices send reach 0.0.0.0 in the clear; give --tls-cert"
    assert told in started("--host", "0.0.0.0")
    assert told not in started("--host", "0.0.0.0", "--trusted-proxies", "10.0.0.1")
    for host in ("127.0.0.1", "localhost", "127.0.0.2"):
        assert "in the clear" not in started("--host", host)


def test_variables_that_are_no_settings_are_warned_of(started: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAPVEIL_WORKER", "2")
    monkeypatch.setenv("MAPVEIL_QUITE_ANOTHER_THING", "2")
    monkeypatch.setenv("MAPVEIL_TRACEBACK", "1")
    monkeypatch.setenv("MAPVEIL_THREADS", "2")
    said = started()
    assert "MAPVEIL_WORKER is no setting, and has no effect; did you mean MAPVEIL_WORKERS?" in said
    assert "MAPVEIL_QUITE_ANOTHER_THING is no setting, and has no effect; 'mapveil serve --help'" in said
    assert "MAPVEIL_TRACEBACK" not in said
    assert "MAPVEIL_THREADS" not in said


def test_a_port_that_is_taken_is_said_so(mapveil: Call, store: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        outcome = mapveil("serve", "--store", store, "--port", port)
        checked = mapveil("serve", "--store", store, "--port", port, "--check")
    assert outcome.code == 2
    assert f"port {port}" in outcome.err
    assert not store.exists()
    assert checked.code == 1
    assert f"port {port}" in checked.out
    assert "--port 0" in checked.out


def test_a_check_says_what_is_wrong_and_changes_nothing(mapveil: Call, store: Path) -> None:
    port = free_port()
    fresh = mapveil("serve", "--store", store, "--port", port, "--check")
    assert fresh.code == 0
    assert f"{store} (sqlite): mapveil serve makes it" in fresh.out
    assert not store.exists()
    mapveil("serve", "--store", store, "--new-operator", "admin")
    good = mapveil("serve", "--store", store, "--port", port, "--check", "--json")
    assert good.code == 0
    findings = {each["what"]: each for each in json.loads(good.out)}
    assert {each["state"] for each in findings.values()} == {"ok"}
    assert set(findings) == {"store", "schema", "audit log", "charges", "authority", "tls", "port"}
    assert re.search(r"^1 lines, chain [0-9a-f]{64}$", findings["audit log"]["detail"])
    with Store(str(store), clock=SystemClock()).write() as connection:
        connection.exec_driver_sql("DROP TRIGGER IF EXISTS audit_no_update")
        for (name,) in connection.exec_driver_sql(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        connection.exec_driver_sql("UPDATE audit SET actor = 'nobody'")
    tampered = mapveil("serve", "--store", store, "--port", port, "--check")
    assert tampered.code == 1
    assert "audit log was tampered with" in tampered.out


def test_a_check_reads_the_authority(mapveil: Call, store: Path) -> None:
    given = ("serve", "--store", store, "--port", "0")
    mapveil(*given, "--new-operator", "admin")
    checked = mapveil(*given, "--check", "--authority", "nonsense", "--json")
    assert checked.code == 1
    findings = {each["what"]: each for each in json.loads(checked.out)}
    assert [name for name, each in findings.items() if each["state"] == "failed"] == ["authority"]
    apart = ("--check", "--authority", str(NAMED))
    checked = mapveil(*given, *apart)
    assert (checked.code, "no revocation list" in checked.out) == (1, True)
    listed = store.with_name("list.hex")
    for made, code in ((revocations_of(expires=1), 1), (revocations_of(), 0)):
        listed.write_text(made.encode().hex())
        checked = mapveil(*given, *apart, "--revocation-list", listed)
        assert checked.code == code
    assert re.search(
        rf"^authority +ok +{re.escape(str(NAMED))}, revocation list 0 for [0-9.]+ days more$",
        checked.out,
        re.MULTILINE,
    )
    assert not store.with_name("store.sqlite.authority").exists()


def test_a_charge_that_the_audit_log_lacks_fails_the_check(mapveil: Call, store: Path) -> None:
    given = ("serve", "--store", store, "--port", free_port())
    mapveil(*given, "--new-operator", "admin")
    opened = Store(str(store), clock=SystemClock())
    with opened.write() as connection:
        row = "INSERT INTO collections VALUES ('c', 'done', x'00', 1, 1, 1, 'a', NULL, NULL, NULL, 0)"
        connection.exec_driver_sql(row)
        connection.exec_driver_sql("INSERT INTO charges VALUES ('c', 1, 'p', '1', 10, 'a')")
    opened.close()
    checked = mapveil(*given, "--check", "--json")
    assert checked.code == 1
    findings = {each["what"]: each for each in json.loads(checked.out)}
    assert [name for name, each in findings.items() if each["state"] == "failed"] == ["charges"]
    assert "not in the audit log" in findings["charges"]["detail"]
    refused = mapveil(*given, "--head")
    assert (refused.code, refused.out) == (1, "")
    assert "no head is signed" in refused.err
    assert not store.with_name("store.sqlite.key").exists()


def test_a_head_is_signed_published_and_checked(mapveil: Call, store: Path, tmp_path: Path) -> None:
    given = ("serve", "--store", store, "--port", free_port())
    mapveil(*given, "--new-operator", "admin")
    published = tmp_path / "head.json"
    first = mapveil(*given, "--head")
    assert first.code == 0
    published.write_text(first.out)
    assert (json.loads(first.out)["count"], json.loads(first.out)["chain"]) == (1, "audit log")
    key = store.with_name("store.sqlite.key")
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_text().strip() not in first.out + first.err
    mapveil(*given, "--new-operator", "viewer")
    record = json.loads(mapveil(*given, "--head", "--json").out)
    assert (record["count"], record["public_key"]) == (2, json.loads(first.out)["public_key"])
    checked = mapveil(*given, "--check", "--head", published)
    assert checked.code == 0
    assert "line 1 of 2 is that of the head published" in checked.out
    later = tmp_path / "later.json"
    later.write_text(json.dumps(record))
    opened = Store(str(store), clock=SystemClock())
    with opened.write() as connection:
        made = "SELECT sql FROM sqlite_master WHERE name = 'audit_stays_delete'"
        trigger = connection.exec_driver_sql(made).scalar_one()
        connection.exec_driver_sql("DROP TRIGGER audit_stays_delete")
        connection.exec_driver_sql("DELETE FROM audit WHERE number = 2")
    gone = mapveil(*given, "--check")
    assert gone.code == 1
    assert "trigger audit_stays_delete" in gone.out
    assert mapveil(*given, "--head").code == 1
    with opened.write() as connection:
        connection.exec_driver_sql(trigger)
    opened.close()
    assert mapveil(*given, "--check").code == 0  # a log that is shorter, and whole
    cut = mapveil(*given, "--check", "--head", later)
    assert cut.code == 1
    assert "taken off the end" in cut.out
    key.unlink()
    other = mapveil(*given, "--check", "--head", published, "--head-key", tmp_path / "other")
    assert other.code == 0  # whose key it is cannot be compared without one
    mapveil(*given, "--head", "--head-key", tmp_path / "other")
    other = mapveil(*given, "--check", "--head", published, "--head-key", tmp_path / "other")
    assert other.code == 1
    assert "another key" in other.out
    store.unlink()
    assert mapveil(*given, "--check").code == 0  # as before the first start
    lost = mapveil(*given, "--check", "--head", published)
    assert (lost.code, "taken off the end" in lost.out) == (1, True)
