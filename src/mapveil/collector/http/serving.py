"""Running the service: sockets, workers, signals, and the order in which they end."""

import asyncio
import errno
import functools
import gc
import json
import multiprocessing.connection
import os
import resource
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import uvicorn
from sqlalchemy import select
from sqlalchemy.engine import Connection
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from mapveil.collector.clock import SystemClock
from mapveil.collector.http.asgi import create_app
from mapveil.collector.http.logs import configure_logs
from mapveil.collector.http.protocol import TimedProtocol
from mapveil.collector.http.settings import Settings
from mapveil.collector.operators.helper import Helper
from mapveil.collector.operators.leader import Leader
from mapveil.collector.operators.operator_keys import OperatorKeys, PeerKey, own_secret, shared_secret
from mapveil.collector.operators.peer import HttpPeer
from mapveil.collector.operators.served_keys import fault_of_keys, own_key_of, record_keys
from mapveil.collector.roles import Role
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.backends import fault_of_place
from mapveil.collector.store.database import Store
from mapveil.collector.store.device_certificates import CERTIFY
from mapveil.collector.store.export_files import ExportFiles
from mapveil.collector.store.schema import audit
from mapveil.privacy.signing_key import signing_key
from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil.two_operators.aggregation import HELPER, LEADER
from mapveil_client.errors import InputError
from mapveil_client.secure_sum.certificate import Authority
from mapveil_client.two_operators.sealed_report import HpkeConfig

_FACTORY: Final = "mapveil.collector.http.serving:worker"
_SPARE_FILES: Final = 256  # beside connections: the store, the maps, the log
_BACKLOG: Final = 2048
_YOUNG: Final = 20_000  # objects, more than were freed, after which the young ones are walked for circles
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
        exports=exports_of(settings, store.path),
        keep_days=settings.keep_days,
    )
    made = create_app(
        engine, store, settings, authority_only=authority_only, closing=store.close, peer_key=part.key
    )
    # Modules and routes stay as long as the process: a collection of garbage need not walk them again and again. At
    # Python's own threshold it would walk the young ones for nothing: what devices ask leaves no circles behind.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)
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
        A key cannot be read, or is not the one that the store has served with, or the store is on PostgreSQL and no
        file for the key is given.
    """
    if settings.operator is None or settings.peer_key is None:
        return OperatorPart()
    with store.alone() as connection:
        keys, shared = keys_of(settings, store, connection)
        if (fault := fault_of_keys(connection, keys, shared)) is not None:
            raise InputError(fault)
        record_keys(connection, keys, shared)
    if keys.number == HELPER or settings.peer is None:
        return OperatorPart(None, Helper(store, keys, shared), shared, keys.config)
    leader = Leader(store, keys, shared, HttpPeer(settings.peer, shared), settings.report_bytes)
    return OperatorPart(leader, None, shared, keys.config)


def keys_of(settings: Settings, store: Store, connection: Connection) -> tuple[OperatorKeys, PeerKey]:
    """The operator's own key, which is drawn where the store has served with none, and the shared one."""
    path = operator_key(settings, store)
    if not path.exists() and (known := own_key_of(connection)) is not None:
        raise InputError(
            f"{path}: the operator's key is not here; the store has served with the one whose public part is {known}: "
            "give its file (--operator-key)"
        )
    number = HELPER if settings.operator == "helper" or settings.peer is None else LEADER
    return OperatorKeys(own_secret(path), number), PeerKey(shared_secret(Path(str(settings.peer_key))))


def operator_key(settings: Settings, store: Store) -> Path:
    """Where the operator's own key is.

    Raises
    ------
    InputError
        The store is on PostgreSQL, and no file for the key is given.
    """
    if settings.operator_key is None and store.path is None:
        raise InputError(
            "a store on PostgreSQL has no folder for the operator's key; give --operator-key FILE"
        )
    return Path(settings.operator_key or f"{store.path}.operator")


def authority_of(settings: Settings, store: Store) -> Authority | EnrolmentAuthority | None:
    """The enrolment authority of active sums: one apart, or the collector's own, whose key is drawn the first time.

    None with a store on PostgreSQL and neither setting: then collections of active sums are refused.
    """
    if (fault := fault_of_authority(settings, store)) is not None:
        raise InputError(fault)
    if settings.authority is not None:
        return Authority.parse(settings.authority)
    path = authority_key(settings, store)
    return None if path is None else EnrolmentAuthority.open(path, settings.population, make=True)


def check_places(settings: Settings, *, exports: bool = True) -> None:
    """Refuse an authority, a file of a key or a folder of exports that cannot be, before anything else is made.

    Raises
    ------
    InputError
        There is none, and none can be made; it is something else; or there is no key that two operators share.
    """
    if settings.authority is not None:
        Authority.parse(settings.authority)
    places = {"authority_key": settings.authority_key}
    if settings.peer_key is not None:
        shared_secret(Path(settings.peer_key))
        places["operator_key"] = settings.operator_key
    if exports and settings.exports is not None and "://" not in settings.exports:
        places["exports"] = settings.exports
    for name, given in places.items():
        fault = None if given is None else fault_of_place(Path(given), folder=name == "exports")
        if fault is not None:
            raise InputError(f"{name} (--{name.replace('_', '-')}) {given} cannot be used: {fault}")
    if settings.authority_key is not None:
        signing_key(Path(settings.authority_key))


def authority_key(settings: Settings, store: Store) -> Path | None:
    """Where the key of the collector's own authority is; None with a store on PostgreSQL without that setting."""
    if settings.authority_key is None and store.path is None:
        return None
    return Path(settings.authority_key or f"{store.path}.authority")


def fault_of_authority(settings: Settings, store: Store) -> str | None:
    """Why devices that were certified would refuse the authority of the settings, or its key may not be away."""
    apart = None if settings.authority is None else str(Authority.parse(settings.authority))
    path = authority_key(settings, store)
    if apart is None and path is None and Role(settings.role) not in (Role.ALL, Role.INTAKE):
        return None
    certificates = select(audit.c.detail).where(audit.c.action == CERTIFY).order_by(audit.c.number.desc())
    with store.read() as connection:
        newest = connection.execute(certificates.limit(1)).scalar()
    if newest is None:
        return None
    detail = json.loads(newest)
    known = detail.get("authority")  # lines of a Mapveil before lack it
    if apart is not None:
        if known in (None, apart):
            return None
        return (
            f"authority (--authority) {apart} must be left out: this collector's own authority, {known}, certified "
            "devices of this store, which refuse another; an authority apart needs a store of its own"
        )
    if path is not None and path.exists():
        population = detail.get("population", settings.population)
        if population != settings.population:
            return (
                f"population (--population) must be {population}, as which devices of this store were certified, got "
                f"{settings.population}: they refuse an authority of another name"
            )
        named = str(EnrolmentAuthority.open(path, population).named)
        if known in (None, named):
            return None
        return (
            f"{path}: this is the key of {named}; devices of this store were certified by {known}, and refuse another "
            "authority: give the file of that one's key (--authority-key)"
        )
    there = "" if path is None else f"{path}: "
    whose = "its file" if known is None else f"the file of the key of {known}"
    return (
        f"{there}the enrolment authority's key is not here, and devices of this store were certified with it; "
        f"give {whose} (--authority-key)"
    )


def exports_of(settings: Settings, store: Path | None) -> ExportFiles:
    """The files of maps: where the settings say, else beside the file of the store, else in a temporary folder."""
    beside = None if store is None else f"{store}.exports"
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
        raise InputError(f"host (--host) {settings.host} names no address ({error.strerror})") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # From here on a connection waits for the service rather than being refused, and nobody else gets the port.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise InputError(
                f"host (--host) {settings.host} is no address of this machine; 0.0.0.0 listens on all of its addresses"
            ) from None
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
