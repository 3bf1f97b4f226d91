"""``mapveil serve --check`` and ``--head``: what serving needs, and the signed head of the audit log."""

import contextlib
import functools
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from mapveil.collector.clock import SystemClock, time_text
from mapveil.collector.http.serving import authority_key, bind, fault_of_authority, keys_of, operator_key
from mapveil.collector.http.settings import Settings
from mapveil.collector.http.tls_files import check_tls
from mapveil.collector.operators.operator_keys import shared_secret
from mapveil.collector.operators.peer import HttpPeer
from mapveil.collector.operators.served_keys import fault_of_keys, own_key_of
from mapveil.collector.rounds.reconciliation import reconcile
from mapveil.collector.store.audit_log import value_at
from mapveil.collector.store.backends import fault_of_place
from mapveil.collector.store.database import Store
from mapveil.collector.store.device_certificates import read_list
from mapveil.collector.store.schema import VERSION, found_version
from mapveil.collector.store.store_report import foreign
from mapveil.privacy.chain_head import ChainHead
from mapveil.privacy.signing_key import signing_key
from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil_client.errors import InputError, MapveilError, PromiseError
from mapveil_client.secure_sum.certificate import Authority, check_population


class Finding(NamedTuple):
    """One line of the report of ``mapveil serve --check``."""

    what: str
    state: str  # "ok" or "failed"
    detail: str


def examine(settings: Settings, published: ChainHead | None = None) -> list[Finding]:
    """Everything that serving needs; nothing is changed, and nothing is raised.

    Parameters
    ----------
    settings : Settings
        Of the service.
    published : ChainHead, optional
        A head of the audit log that was published before.
    """
    return [
        *_store(settings, published),
        _authority(settings),
        *_operator(settings),
        *_head_key(settings),
        *_exports(settings),
        _tls(settings),
        _port(settings),
    ]


def _authority(settings: Settings) -> Finding:
    try:
        with contextlib.closing(Store(settings.store, clock=SystemClock())) as store:
            path = authority_key(settings, store)
            current = False
            # The store has a finding of its own.
            with contextlib.suppress(MapveilError, SQLAlchemyError), store.read() as connection:
                current = found_version(connection) == VERSION
            fault = fault_of_authority(settings, store) if current else None
            if fault is None and settings.authority is not None:
                return _authority_apart(Authority.parse(settings.authority), settings.revocation_list)
            if fault is None and path is not None and path.exists():
                named = EnrolmentAuthority.open(path, settings.population).named
                return _finding("authority", True, str(named))
        if fault is not None:
            return _finding("authority", False, fault)
        if path is None:
            return _finding("authority", True, "none: collections of active sums are refused")
        check_population(settings.population)
        return _drawn("authority", path, "at the first start")
    except (MapveilError, OSError) as error:
        return _finding("authority", False, str(error))


def _operator(settings: Settings) -> list[Finding]:
    """The keys of an operator, and whether its helper answers; nothing where the service is none."""
    if settings.operator is None or settings.peer_key is None:
        return []
    try:
        store = Store(settings.store, clock=SystemClock())
    except MapveilError:
        return []  # the store has a finding of its own
    try:
        shared_secret(Path(settings.peer_key))
        first = _drawn("operator", operator_key(settings, store), "at the first start")
        if store.path is not None and not store.path.exists():
            return [first]
        with store.read() as connection:
            if own_key_of(connection) is None:
                return [first]
            keys, shared = keys_of(settings, store, connection)
            fault = fault_of_keys(connection, keys, shared)
        if fault is None and settings.peer is not None:
            HttpPeer(settings.peer, shared).config()
    except MapveilError as error:
        fault = str(error)
    finally:
        store.close()
    if fault is not None:
        return [_finding("operator", False, fault)]
    answers = "" if settings.peer is None else f"; the helper at {settings.peer} answers"
    return [_finding("operator", True, f"{settings.operator}, key {keys.config.public_key.hex()}{answers}")]


def _head_key(settings: Settings) -> list[Finding]:
    """Whether the file that is named for the key that signs heads holds it or can; nothing where none is named."""
    if settings.head_key is None:
        return []
    path = Path(settings.head_key)
    try:
        key = signing_key(path)
    except InputError as error:
        return [_finding("head key", False, str(error))]
    return [
        _drawn("head key", path, "for the first head")
        if key is None
        else _finding("head key", True, key.public.hex())
    ]


def _exports(settings: Settings) -> list[Finding]:
    """Whether the folder of files of maps, which serving makes, can be written; nothing where none is named."""
    if settings.exports is None or "://" in settings.exports:
        return []
    path = Path(settings.exports).absolute()
    fault = fault_of_place(path, folder=True)
    if fault is not None or not path.exists():
        return [_finding("exports", fault is None, f"{path}: {fault or 'mapveil serve makes it'}")]
    good = os.access(path, os.W_OK | os.X_OK)
    return [_finding("exports", good, f"{path} {'can' if good else 'cannot'} be written")]


def _authority_apart(authority: Authority, listed: str | None) -> Finding:
    """Devices take part in no active sum without a valid list."""
    if listed is None:
        return _finding("authority", False, f"{authority}: no revocation list; give --revocation-list FILE")
    made, now = read_list(Path(listed)), SystemClock().now().timestamp()
    fault = made.fault(authority, now)
    good = f"{authority}, revocation list {made.number} for {(made.expires - now) / 86_400:.1f} days more"
    return _finding("authority", fault is None, fault or good)


def _store(settings: Settings, published: ChainHead | None) -> list[Finding]:
    try:
        store = Store(settings.store, clock=SystemClock())
    except MapveilError as error:
        return [_finding("store", False, str(error))]
    fault = None if store.path is None else fault_of_place(store.path)
    if store.path is not None and (fault is not None or not store.path.exists()):
        return _to_be_made(
            f"{store.shown} (sqlite): {fault or 'mapveil serve makes it'}", fault is None, published
        )
    report = store.check()
    fault = store.clock_fault() if report.reachable else None
    if report.reachable and report.version is None and report.ok:
        store.close()
        empty = f"{store.shown} ({store.dialect}, empty): {fault or 'mapveil serve makes its tables'}"
        return _to_be_made(empty, fault is None, published)
    report.problems += [] if fault is None else [fault]
    able = ", writable" if report.writable else ", not writable"
    # A write is tried where there are tables of this version.
    where = f"{store.shown} ({store.dialect}{able if report.version == VERSION else ''})"
    absent = "none" if report.reachable else "unknown"
    found = [
        _finding("store", report.ok, "; ".join([where, *report.problems, *report.warnings])),
        _finding("schema", report.version == VERSION, f"version {report.version or absent}"),
    ]
    try:
        if report.audit_head:
            told = f"{report.audit_lines} lines, chain {report.audit_head}"
            found.append(_finding("audit log", True, told))
            found.extend(_charges(store, settings, report.audit_lines, published))
    except MapveilError as error:
        found.append(_finding("head", False, str(error)))
    except SQLAlchemyError as error:
        found.append(_finding("charges", False, foreign(error)))
    finally:
        store.close()
    return found


def _to_be_made(told: str, good: bool, published: ChainHead | None) -> list[Finding]:
    """Findings about a store that the first start makes: a head that was published is not in its audit log."""
    found = [_finding("store", good, told)]
    if published is not None and (fault := published.fault("audit log", 0, lambda _: b"", None)):
        found.append(_finding("head", False, fault))
    return found


def _charges(store: Store, settings: Settings, lines: int, published: ChainHead | None) -> Iterator[Finding]:
    """Findings about charges and a published head, once the chain of the audit log is known to be intact."""
    with store.read() as connection:
        charged = reconcile(connection)
        good = f"{charged.charges} charges of {charged.collections} collections follow from the audit log"
        if charged.retired:
            good += f", which alone knows who was charged in {charged.retired} (--keep-days)"
        yield _finding("charges", not charged.problems, "; ".join(charged.problems) or good)
        if published is not None:
            key = signing_key(key_path(settings, store)) if settings.head_key or store.path else None
            value = functools.partial(value_at, connection)
            fault = published.fault("audit log", lines, value, key)
            good = f"line {published.count} of {lines} is that of the head published at {published.time}"
            yield _finding("head", fault is None, fault or good)


def sign_head(settings: Settings) -> ChainHead:
    """The signed head of the audit log, whose key is drawn the first time.

    Raises
    ------
    PromiseError
        The store has a problem, or its charges do not follow from the audit log.
    """
    store = Store(settings.store, clock=SystemClock())
    try:
        report = store.check()
        problems = report.problems
        if report.version is None and not problems:
            problems = ["the store has no tables yet; mapveil serve creates them"]
        if not problems:
            with store.read() as connection:
                problems = reconcile(connection).problems
        if problems:
            raise PromiseError(f"no head is signed: {'; '.join(problems)}")
        key = signing_key(key_path(settings, store), make=True)
        assert key is not None
        head = bytes.fromhex(report.audit_head)
        return ChainHead.sign(key, "audit log", report.audit_lines, head, time_text(store.clock.now()))
    finally:
        store.close()


def key_path(settings: Settings, store: Store) -> Path:
    """Path of the key that signs heads."""
    if settings.head_key is not None:
        return Path(settings.head_key)
    if store.path is None:
        raise InputError(
            "a store on PostgreSQL has no folder for the key that signs heads; give --head-key FILE"
        )
    return store.path.with_name(f"{store.path.name}.key")


def _tls(settings: Settings) -> Finding:
    try:
        certificate = check_tls(settings)
    except InputError as error:
        return _finding("tls", False, error.in_flags())
    if certificate is None:
        return _finding("tls", True, "none: serve over a proxy with TLS, or to this machine only")
    expires = certificate.not_valid_after_utc
    return _finding("tls", expires > datetime.now(UTC), f"the certificate is good until {expires:%Y-%m-%d}")


def _port(settings: Settings) -> Finding:
    try:
        bind(settings).close()
    except InputError as error:
        text = error.in_flags()
        hint = "" if text.startswith("--host") else "; while the service runs, check with --port 0"
        return _finding("port", False, text + hint)
    return _finding("port", True, f"{settings.host}:{settings.port} is free")


def _drawn(what: str, path: Path, when: str) -> Finding:
    """A finding about a key whose file may be yet to be made."""
    fault = fault_of_place(path)
    told = "is here" if path.exists() else f"is drawn {when}"
    return _finding(what, fault is None, f"{path}: {fault or told}")


def _finding(what: str, good: bool, detail: str) -> Finding:
    return Finding(what, "ok" if good else "failed", detail)
