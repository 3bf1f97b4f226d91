"""``mapveil serve --check``: would the service run, and is what it keeps whole?"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mapveil.collector.clock import SystemClock
from mapveil.collector.http.serving import bind
from mapveil.collector.http.settings import Settings
from mapveil.collector.store.database import Store
from mapveil_client.errors import InputError, MapveilError

if TYPE_CHECKING:
    from mapveil.collector.store.store_report import StoreReport


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
        return [Finding("store", "failed", str(error))]
    report: StoreReport = store.check()
    store.close()
    state = "ok" if report.ok else "failed"
    where = f"{report.where} ({report.dialect}, {'writable' if report.writable else 'not writable'})"
    found = [Finding("store", state, "; ".join([where, *report.problems, *report.warnings]))]
    found.append(_line("schema", report.version is not None, f"version {report.version}"))
    if report.audit_lines:
        found.append(Finding("audit log", state, f"{report.audit_lines} lines, chain {report.audit_head}"))
    return found


def _tls(settings: Settings) -> Finding:
    if settings.tls_cert is None or settings.tls_key is None:
        return Finding("tls", "ok", "none: serve over a proxy with TLS, or to this machine only")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
        expires = _expiry(Path(settings.tls_cert).read_bytes())
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        return Finding("tls", "failed", f"certificate and key cannot be used ({type(error).__name__})")
    return _line("tls", expires > datetime.now(UTC), f"the certificate is good until {expires:%Y-%m-%d}")


def _expiry(pem: bytes) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


def _port(settings: Settings) -> Finding:
    try:
        bind(settings).close()
    except InputError as error:
        return Finding("port", "failed", str(error))
    return Finding("port", "ok", f"{settings.host}:{settings.port} is free")


def _line(what: str, good: bool, detail: str) -> Finding:
    return Finding(what, "ok" if good else "failed", detail)
