"""Running the service: sockets, workers, signals, the order in which they end; and ``mapveil serve --check``."""

import asyncio
import functools
import gc
import multiprocessing.connection
import os
import resource
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import uvicorn
from cryptography import x509
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from mapveil.collector.clock import SystemClock, time_text
from mapveil.collector.http.asgi import create_app
from mapveil.collector.http.logs import configure_logs
from mapveil.collector.http.protocol import TimedProtocol
from mapveil.collector.http.settings import Settings
from mapveil.collector.operators.helper import Helper
from mapveil.collector.operators.leader import Leader
from mapveil.collector.operators.operator_keys import OperatorKeys, PeerKey, own_secret, shared_secret
from mapveil.collector.operators.peer import HttpPeer
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.rounds.reconciliation import reconcile
from mapveil.collector.store.audit_log import value_at
from mapveil.collector.store.database import Store
from mapveil.collector.store.device_certificates import read_list
from mapveil.collector.store.export_files import ExportFiles
from mapveil.privacy.chain_head import ChainHead
from mapveil.privacy.signing_key import signing_key
from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil.two_operators.aggregation import HELPER, LEADER
from mapveil_client.errors import InputError, MapveilError, PromiseError
from mapveil_client.secure_sum.certificate import Authority
from mapveil_client.two_operators.sealed_report import HpkeConfig

_FACTORY: Final = "mapveil.collector.http.serving:worker"
_SPARE_FILES: Final = 256  # beside connections: the store, the maps, the log
_BACKLOG: Final = 2048
_HUNG_SECONDS: Final = 10  # until a worker that says nothing is replaced; starting one may take seconds


def application(settings: Settings, *, authority_only: bool = False) -> ASGIApp:
    """The application with a store of its own, which it closes at its end."""
    clock = SystemClock()
    store = Store(settings.store, clock=clock)
    store.create_tables()
    part = operator_part(settings, store)
    engine = Engine(
        store,
        clock,
        authority=authority_of(settings, store),
        leader=part.leader,
        helper=part.helper,
        lease_seconds=settings.lease_seconds,
        exports=exports_of(settings, store),
    )
    made = create_app(
        engine, store, settings, authority_only=authority_only, closing=store.close, peer_key=part.key
    )
    # Modules and routes stay as long as the process: a collection of garbage need not walk them again and again.
    gc.collect()
    gc.freeze()
    return made


class OperatorPart(NamedTuple):
    """The part of a service in sums by two operators; all None where it has none."""

    leader: Leader | None = None
    helper: Helper | None = None
    key: PeerKey | None = None
    config: HpkeConfig | None = None


def operator_part(settings: Settings, store: Store) -> OperatorPart:
    """The leader or the helper that the settings name; its own key is drawn the first time.

    Raises
    ------
    InputError
        A key cannot be read, or the store is on PostgreSQL and no file for the key is given.
    """
    if settings.operator is None or settings.peer_key is None:
        return OperatorPart()
    if settings.operator_key is None and store.path is None:
        raise InputError(
            "a store on PostgreSQL has no folder for the operator's key; give --operator-key FILE"
        )
    secret = own_secret(Path(settings.operator_key or f"{store.path}.operator"))
    shared = PeerKey(shared_secret(Path(settings.peer_key)))
    if settings.operator == "helper" or settings.peer is None:
        keys = OperatorKeys(secret, HELPER)
        return OperatorPart(None, Helper(store, keys, shared), shared, keys.config)
    keys = OperatorKeys(secret, LEADER)
    leader = Leader(store, keys, shared, HttpPeer(settings.peer, shared), settings.report_bytes)
    return OperatorPart(leader, None, shared, keys.config)


def authority_of(settings: Settings, store: Store) -> Authority | EnrolmentAuthority | None:
    """The enrolment authority of active sums: one apart, or the collector's own, whose key is drawn the first time.

    None with a store on PostgreSQL and neither setting: then collections of active sums are refused.
    """
    if settings.authority is not None:
        return Authority.parse(settings.authority)
    if settings.authority_key is None and store.path is None:
        return None
    path = Path(settings.authority_key or f"{store.path}.authority")
    return EnrolmentAuthority.open(path, settings.population, make=True)


def exports_of(settings: Settings, store: Store) -> ExportFiles:
    """The files of maps: where the settings say, else beside an SQLite store, else in a temporary folder."""
    beside = None if store.path is None else f"{store.path}.exports"
    return ExportFiles(settings.exports or beside, settings.export_bytes)


def worker() -> ASGIApp:
    """The application of one worker of several, as its parent's environment says."""
    _end_with_parent()
    settings = Settings.read(os.environ)
    configure_logs(settings.log_format, settings.log_level)
    return application(settings)


def _end_with_parent() -> None:
    """End when the process that started this one was killed: it could not tell, and the port would stay taken."""
    parent = multiprocessing.parent_process()

    def watch(sentinel: int) -> None:
        multiprocessing.connection.wait([sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    if parent is not None:
        threading.Thread(target=watch, args=(parent.sentinel,), name="mapveil-parent", daemon=True).start()


def bind(settings: Settings) -> socket.socket:
    """Take the port, and let connections wait for the service."""
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise InputError(f"host {settings.host!r} is no address of this machine ({error.strerror})") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # From here on a connection waits for the service rather than being refused, and nobody else gets the port.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(
            f"port {settings.port} of {settings.host} cannot be listened on ({error.strerror}); choose a free one"
        ) from None
    return listener


def configuration(settings: Settings, app: Any, *, factory: bool = False) -> uvicorn.Config:
    """Configuration of uvicorn for an application, or for a function (or the address of one) that makes it."""
    protocol = functools.partial(TimedProtocol, settings=settings)
    return uvicorn.Config(
        app,
        factory=factory,
        interface="asgi3",
        host=settings.host,
        port=settings.port,
        http=cast("type[asyncio.Protocol]", protocol),
        ws="none",
        loop="auto",  # uvloop where it is installed
        lifespan="on",
        workers=settings.workers,
        timeout_worker_healthcheck=_HUNG_SECONDS,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=settings.trusted_proxies is not None,
        forwarded_allow_ips=settings.trusted_proxies or "",
        backlog=_BACKLOG,
        timeout_keep_alive=settings.idle_seconds,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


def serve(
    settings: Settings, listener: socket.socket, ready: Callable[[], None], *, authority_only: bool = False
) -> None:
    """Serve until SIGTERM or SIGINT; then finish what is being answered, stop the conductor, close the store.

    An enrolment authority apart from any collector is served by one process.
    Both signals are obeyed from the call of ``ready`` on, also by a background job, which inherits SIGINT ignored.
    """
    _allow_files(settings.connections + _SPARE_FILES)
    if settings.workers == 1 or authority_only:
        app = functools.partial(application, settings, authority_only=authority_only)
        server = uvicorn.Server(configuration(settings, app, factory=True))
        # uvicorn takes the signals only once its loop runs, and raises them again after it has ended in order.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, server.handle_exit)
        ready()
        server.run([listener])
        return
    with tempfile.TemporaryDirectory(prefix="mapveil-metrics-") as folder:
        os.environ.update(settings.environment(), PROMETHEUS_MULTIPROC_DIR=folder)
        listener.set_inheritable(True)
        # Takes the signals.
        workers = Multiprocess(configuration(settings, _FACTORY, factory=True), [listener])
        ready()
        workers.run()


def _allow_files(wanted: int) -> None:
    """Open as many files as connections may need, where the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


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
    return [*_store(settings, published), _authority(settings), _tls(settings), _port(settings)]


def _authority(settings: Settings) -> Finding:
    path = settings.authority_key
    try:
        if settings.authority is not None:
            return _authority_apart(Authority.parse(settings.authority), settings.revocation_list)
        if path is None:
            store = Store(settings.store, clock=SystemClock())
            path = None if store.path is None else f"{store.path}.authority"
            store.close()
        if path is None:
            return _finding("authority", True, "none: collections of active sums are refused")
        if not Path(path).exists():
            return _finding("authority", True, f"{path}: is drawn at the first start")
        return _finding(
            "authority", True, str(EnrolmentAuthority.open(Path(path), settings.population).named)
        )
    except MapveilError as error:
        return _finding("authority", False, str(error))


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
    report = store.check()
    where = f"{store.shown} ({store.dialect}, {'writable' if report.writable else 'not writable'})"
    found = [
        _finding("store", report.ok, "; ".join([where, *report.problems, *report.warnings])),
        _finding("schema", report.version is not None, f"version {report.version}"),
    ]
    try:
        if report.audit_head:
            told = f"{report.audit_lines} lines, chain {report.audit_head}"
            found.append(_finding("audit log", True, told))
            found.extend(_charges(store, settings, report.audit_lines, published))
    except MapveilError as error:
        found.append(_finding("head", False, str(error)))
    finally:
        store.close()
    return found


def _charges(store: Store, settings: Settings, lines: int, published: ChainHead | None) -> Iterator[Finding]:
    """Findings about charges and a published head, once the chain of the audit log is known to be intact."""
    with store.read() as connection:
        charged = reconcile(connection)
        good = f"{charged.charges} charges of {charged.collections} collections follow from the audit log"
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
        return _finding("port", False, f"{error}; while the service runs, check with --port 0")
    return _finding("port", True, f"{settings.host}:{settings.port} is free")


def _finding(what: str, good: bool, detail: str) -> Finding:
    return Finding(what, "ok" if good else "failed", detail)
