"""``mapveil serve`` with an enrolment authority of its own: the one that devices of the store were certified by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mapveil.collector.clock import SystemClock
from mapveil.collector.http.serving import authority_of
from mapveil.collector.http.settings import Settings
from mapveil.collector.store import audit_log
from mapveil.collector.store.database import Store
from mapveil.collector.store.device_certificates import Certification
from mapveil.collector.store.principals import Accounts
from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import Identity, enrolment_statement

Call = Callable[..., Any]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def test_no_other_key_of_the_authority_is_drawn_once_devices_are_certified(
    mapveil: Call, store: Path, tmp_path: Path
) -> None:
    assert mapveil("serve", "--store", store, "--new-operator", "admin").code == 0
    typo = ("--authority-key", str(tmp_path / "typo.key"))
    assert (
        "is drawn at the first start"
        in mapveil("serve", "--store", store, "--check", "--port", "0", *typo).out
    )
    opened = Store(str(store), clock=SystemClock())
    with opened.write() as connection:
        audit_log.record(connection, "authority", "device.certify", None, device=1)
    done = mapveil("serve", "--store", store, "--check", "--port", "0", *typo)
    assert done.code == 1
    assert "typo.key: the enrolment authority's key is not here" in done.out
    with pytest.raises(InputError, match=r"typo.key: the enrolment authority's key is not here"):
        authority_of(Settings(store=str(store), authority_key=typo[1]), opened)
    opened.close()
    assert not (tmp_path / "typo.key").exists()


def test_no_other_population_is_served_once_devices_are_certified(mapveil: Call, store: Path) -> None:
    assert mapveil("serve", "--store", store, "--new-operator", "admin").code == 0
    opened = Store(str(store), clock=SystemClock())
    ours, other = (Settings(store=str(store), population=each) for each in ("bikes.example", "cars.example"))
    for settings in (other, ours):  # nobody is certified yet
        authority = authority_of(settings, opened)
    assert isinstance(authority, EnrolmentAuthority)
    certificate = authority.certify(Identity.draw(Randomness(1)).public, 0)
    with opened.write() as connection:
        audit_log.record(connection, "authority", "device.certify", None, device=1, **certificate.summary)
    told = " must be bikes.example, as which devices of this store were certified, got cars.example"
    with pytest.raises(InputError, match=f"^population{told}"):
        authority_of(other, opened)
    check = ("serve", "--store", store, "--check", "--port", "0", "--population")
    for population, code in (("cars.example", 1), ("bikes.example", 0)):
        done = mapveil(*check, population)
        assert (done.code, told in done.out) == (code, bool(code))
    again = authority_of(ours, opened)
    assert isinstance(again, EnrolmentAuthority)
    assert again.named == authority.named
    opened.close()


def test_no_other_key_is_served_once_it_certified_devices(mapveil: Call, store: Path, tmp_path: Path) -> None:
    opened = Store(str(store), clock=SystemClock())
    opened.create_tables()
    token = Accounts(opened).create_enrolment("phones", 1, timedelta(days=1), None, "me").token
    identity = Identity.draw(Randomness(1))
    signature = identity.sign(enrolment_statement(token, identity.public))
    device = asyncio.run(Accounts(opened).enrol(token, identity.public, signature))

    own, other, gone = (str(tmp_path / f"{name}.key") for name in ("own", "other", "gone"))
    authority = authority_of(Settings(store=str(store), authority_key=own), opened)
    assert isinstance(authority, EnrolmentAuthority)
    theirs = str(EnrolmentAuthority.open(Path(other), "devices", make=True).named)
    check = ("serve", "--store", store, "--check", "--port", "0", "--authority-key")
    assert mapveil(*check, other).code == 0  # nobody is certified yet
    with opened.write() as connection:  # of a Mapveil before, which named no authority
        audit_log.record(connection, "authority", "device.certify", None, device=device)
    assert mapveil(*check, other).code == 0
    authority_of(Settings(store=str(store), authority=theirs), opened)
    asyncio.run(Certification(opened, authority).certify(device))

    assert mapveil(*check, own).code == 0
    for key, needed in (
        (other, f"devices of this store were certified by {authority.named}, and refuse another authority"),
        (gone, f"give the file of the key of {authority.named} (--authority-key)"),
    ):
        done = mapveil(*check, key)
        assert (done.code, f"{key}: " in done.out, needed in done.out) == (1, True, True), done.out
        with pytest.raises(InputError, match=f"{needed.split(' (')[0]}"):
            authority_of(Settings(store=str(store), authority_key=key), opened)
    assert not Path(gone).exists()

    apart = ("serve", "--store", store, "--check", "--port", "0", "--authority")
    needed = f"must be left out: this collector's own authority, {authority.named}, certified devices of this store"
    assert needed in mapveil(*apart, theirs).out
    assert needed not in mapveil(*apart, str(authority.named)).out
    with pytest.raises(InputError, match="certified devices of this store"):
        authority_of(Settings(store=str(store), authority=theirs), opened)
    assert authority_of(Settings(store=str(store), authority=str(authority.named)), opened) == authority.named
    opened.close()


def test_a_name_that_no_population_can_have_is_found_before_the_first_start(
    mapveil: Call, store: Path
) -> None:
    done = mapveil("serve", "--store", store, "--check", "--port", "0", "--population", "bad name!")
    assert done.code == 1
    assert "population must be 1 to 63 of a-z" in done.out + done.err
