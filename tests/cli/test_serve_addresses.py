"""The pair of files for TLS and the address to listen on: faults are one line, before anything is served."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_serve import free_port

Call = Callable[..., Any]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def certificate(folder: Path, *, days: int) -> tuple[Path, Path]:
    """A certificate for this machine that is good for so many days from now, and its key."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=60))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "chain.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return paths


@pytest.mark.parametrize(("days", "code"), [(30, 0), (-1, 1)])
def test_a_check_reads_the_certificate(
    mapveil: Call, store: Path, tmp_path: Path, days: int, code: int
) -> None:
    mapveil("serve", "--store", store, "--new-operator", "admin")
    chain, key = certificate(tmp_path, days=days)
    given = ("serve", "--store", store, "--port", free_port(), "--check")
    outcome = mapveil(*given, "--tls-cert", chain, "--tls-key", key)
    assert outcome.code == code
    assert "the certificate is good until" in outcome.out
    swapped = mapveil(*given, "--tls-cert", key, "--tls-key", chain)
    assert swapped.code == 1
    assert "are the two swapped?" in swapped.out


@pytest.mark.parametrize(
    ("cert", "key", "told"),
    [
        ("none.pem", "key.pem", "--tls-cert {}/none.pem: no such file"),
        ("chain.pem", "none.pem", "--tls-key {}/none.pem: no such file"),
        ("junk.pem", "key.pem", "--tls-cert {}/junk.pem: holds no PEM certificate"),
        ("cut.pem", "key.pem", "--tls-cert {}/cut.pem: holds no PEM certificate that can be read"),
        ("chain.pem", "junk.pem", "--tls-key {}/junk.pem: holds no PEM private key"),
        (
            "chain.pem",
            "other/key.pem",
            "--tls-key {}/other/key.pem: is not the key of the certificate in {}/chain.pem",
        ),
        (
            "chain.pem",
            "locked.pem",
            "--tls-key {}/locked.pem: the private key has a password; expected one without",
        ),
        (
            *("key.pem", "chain.pem"),
            "--tls-cert {}/key.pem holds a private key and --tls-key {}/chain.pem a certificate; are the two swapped?",
        ),
    ],
)
def test_a_bad_pair_of_tls_is_named_before_anything_is_listened_on(
    mapveil: Call, store: Path, tmp_path: Path, cert: str, key: str, told: str
) -> None:
    from cryptography.hazmat.primitives import serialization as form

    chain, own = certificate(tmp_path, days=30)
    (tmp_path / "other").mkdir()
    certificate(tmp_path / "other", days=30)
    (tmp_path / "junk.pem").write_text("junk")
    (tmp_path / "cut.pem").write_bytes(chain.read_bytes()[:60] + b"\n-----END CERTIFICATE-----\n")
    locked = form.load_pem_private_key(own.read_bytes(), None).private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"secret")
    )
    (tmp_path / "locked.pem").write_bytes(locked)
    told = told.replace("{}", str(tmp_path))
    given = (
        "serve",
        "--store",
        store,
        "--port",
        "0",
        "--tls-cert",
        tmp_path / cert,
        "--tls-key",
        tmp_path / key,
    )
    started, checked = mapveil(*given), mapveil(*given, "--check", "--json")
    assert (started.code, started.out) == (2, "")
    assert started.err.count("\n") == 1
    assert told in started.err
    assert not store.exists()
    assert checked.code == 1
    assert {each["detail"] for each in json.loads(checked.out) if each["what"] == "tls"} == {told}


def test_an_address_of_another_machine_is_named(mapveil: Call, store: Path) -> None:
    given = ("serve", "--store", store, "--port", "0", "--host", "192.0.2.99")
    told = "--host 192.0.2.99 is no address of this machine; 0.0.0.0 listens on all of its addresses"
    started = mapveil(*given, "--trusted-proxies", "192.0.2.1")
    assert (started.code, started.err.count("\n")) == (2, 1)
    assert told in started.err
    assert told in mapveil(*given, "--check").out
