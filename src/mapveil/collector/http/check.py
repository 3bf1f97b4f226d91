"""``mapveil serve --check``: whether the service would run, and whether its store is whole."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from mapveil.collector.clock import SystemClock
from mapveil.collector.http.serving import bind
from mapveil.collector.http.settings import Settings
from mapveil.collector.store.database import Store
from mapveil_client.errors import InputError, MapveilError


class Finding(NamedTuple):
    """One line of the report."""

    what: str
    state: str  # "ok" or "failed"
    detail: str


def examine(settings: Settings) -> list[Finding]:
    """Everything that serving needs; nothing is changed, and nothing is raised."""
    return [*_store(settings), _tls(settings), _port(settings)]


def _store(settings: Settings) -> list[Finding]:
    try:
        store = Store(settings.store, clock=SystemClock())
    except MapveilError as error:
        return [_finding("store", False, str(error))]
    report = store.check()
    store.close()
    where = f"{store.shown} ({store.dialect}, {'writable' if report.writable else 'not writable'})"
    found = [
        _finding("store", report.ok, "; ".join([where, *report.problems, *report.warnings])),
        _finding("schema", report.version is not None, f"version {report.version}"),
    ]
    if report.audit_lines:
        found.append(
            _finding("audit log", report.ok, f"{report.audit_lines} lines, chain {report.audit_head}")
        )
    return found


def _tls(settings: Settings) -> Finding:
    from cryptography import x509

    if settings.tls_cert is None or settings.tls_key is None:
        return _finding("tls", True, "none: serve over a proxy with TLS, or to this machine only")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
        certificate = x509.load_pem_x509_certificate(Path(settings.tls_cert).read_bytes())
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        return _finding("tls", False, f"certificate and key cannot be used ({type(error).__name__})")
    expires = certificate.not_valid_after_utc
    return _finding("tls", expires > datetime.now(UTC), f"the certificate is good until {expires:%Y-%m-%d}")


def _port(settings: Settings) -> Finding:
    try:
        bind(settings).close()
    except InputError as error:
        return _finding("port", False, str(error))
    return _finding("port", True, f"{settings.host}:{settings.port} is free")


def _finding(what: str, good: bool, detail: str) -> Finding:
    return Finding(what, "ok" if good else "failed", detail)
