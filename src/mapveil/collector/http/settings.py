"""The settings of ``mapveil serve``: one table, from which its options, its environment and its documentation come.

An option ``--body-seconds 30`` and a variable ``MAPVEIL_BODY_SECONDS=30`` say the same; the option wins.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, cast

from mapveil.collector.roles import Role
from mapveil.secure_sum.enrolment_authority import DAYS, LIST_DAYS, MOST_DAYS
from mapveil_client.errors import ParameterError, check

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_PREFIX: Final = "MAPVEIL_"
_OF_OTHERS: Final = frozenset(
    _PREFIX + name for name in ("LEDGER", "TRACEBACK", "ENROL", "AUTHORITY_ENROL")
)  # variables that other commands of Mapveil read
_OF_KUBERNETES: Final = re.compile("_SERVICE_|_TCP")  # of a service that is called mapveil


class Setting(NamedTuple):
    """One row of the table."""

    name: str
    default: str | int | None
    help: str
    unit: str  # of a number: "seconds", "bytes", "a second", or ""
    low: int  # of a number
    high: int
    choices: tuple[str, ...]  # of a word; empty where any text is accepted

    @property
    def number(self) -> bool:
        """Whether it is a number."""
        return isinstance(self.default, int)

    @property
    def variable(self) -> str:
        """Its variable of the environment."""
        return _PREFIX + self.name.upper()

    @property
    def option(self) -> str:
        """Its option on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def range_text(self) -> str:
        """Accepted values, in words."""
        if self.choices:
            return ", ".join(self.choices)
        if self.number:
            return f"{self.low} to {self.high}" + (f" ({self.unit})" if self.unit else "")
        return "text"

    def read(self, text: str) -> str | int:
        """The value that a text stands for."""
        if not self.number:
            self.check(text, self.variable)
            return text
        check(text.isascii() and text.isdecimal() and len(text) <= 15, self.variable, self.range_text, text)
        self.check(int(text), self.variable)
        return int(text)

    def check(self, value: object, name: str | None = None) -> None:
        """Refuse what is not accepted; raises ParameterError."""
        if self.number:
            good = isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high
        elif value is None:
            good = self.default is None
        else:
            good = isinstance(value, str) and bool(value) and (not self.choices or value in self.choices)
        check(good, f"{name or self.name}", self.range_text, value)


def _text(default: str | None, about: str, *choices: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": about, "choices": choices})


def _number(default: int, about: str, low: int = 1, high: int = 1 << 40, unit: str = "") -> Any:
    limits = {"help": about, "low": low, "high": high, "unit": unit}
    return dataclasses.field(default=default, metadata=limits)


_seconds: Final = partial(_number, high=3600, unit="seconds")
_bytes: Final = partial(_number, unit="bytes")
_burst: Final = partial(_number, high=10_000_000)


def _rate(default: int, about: str) -> Any:
    return _number(default, about + "; 0 sets no limit", 0, 10_000_000)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Configuration of the service; every field is a row of :data:`SETTINGS`."""

    store: str = _text(
        "sqlite:///mapveil-collector.sqlite",
        "Store: sqlite:///FILE, a file, or postgresql://USER@HOST/DATABASE",
    )
    host: str = _text("127.0.0.1", "Address to listen on")
    port: int = _number(8321, "Port to listen on; 0 takes a free one", 0, 65535)
    workers: int = _number(1, "Processes; more than one needs PostgreSQL", 1, 64)
    role: str = _text(
        "all",
        "Part of the service that this process plays; parts need PostgreSQL",
        *(role.value for role in Role),
    )
    lease_seconds: int = _seconds(30, "Time after which another takes the work of a worker that was killed")
    exports: str | None = _text(
        None,
        "Folder, or URL of fsspec, for files of maps; beside an SQLite store, or temporary, by default",
    )
    export_bytes: int = _bytes(4 << 30, "Maximum size of the files of maps in a folder, together")
    keep_days: int = _number(
        0,
        "Days after a collection's end until its members, reports' senders and assignments are deleted; 0: never",
        0,
        36_500,
        "days",
    )
    map_bytes: int = _bytes(256 * _MIB, "Maximum size of the maps kept in memory, beside the newest")
    tls_cert: str | None = _text(None, "File with the certificate chain (PEM); enables HTTPS")
    tls_key: str | None = _text(None, "File with the certificate's key (PEM)")
    trusted_proxies: str | None = _text(
        None, "Addresses of trusted proxies (X-Forwarded-For), separated by commas"
    )
    head_key: str | None = _text(
        None, "File with the key that signs heads; beside an SQLite store by default"
    )
    authority: str | None = _text(
        None, "Enrolment authority apart from this collector, POPULATION:KEY, from 'mapveil enrol-authority'"
    )
    authority_key: str | None = _text(
        None,
        "File with the key of this collector's own enrolment authority; beside an SQLite store by default",
    )
    population: str = _text("devices", "Population that the collector's own authority certifies")
    certificate_days: int = _number(DAYS, "Lifetime of a device's certificate", 1, MOST_DAYS, "days")
    revocation_list: str | None = _text(
        None, "File with the newest revocation list of an authority apart, from 'mapveil enrol-authority'"
    )
    list_days: int = _number(LIST_DAYS, "Lifetime of a revocation list of its own", 1, MOST_DAYS, "days")
    operator: str | None = _text(
        None, "Part in sums by two operators that do not collude; none by default", "leader", "helper"
    )
    peer: str | None = _text(None, "Address of the helper, for the leader")
    peer_key: str | None = _text(None, "File with the key that both operators share, 64 hexadecimal digits")
    operator_key: str | None = _text(
        None, "File with this operator's own key; beside an SQLite store by default"
    )
    log_format: str = _text("text", "Format of the log", "text", "json")
    log_level: str = _text("info", "Minimum level that is logged", "debug", "info", "warning", "error")
    metrics: str = _text("open", "Access to /metrics: everybody, viewers, or none", "open", "viewer", "off")

    json_bytes: int = _bytes(_MIB, "Largest body of JSON")
    report_bytes: int = _bytes(256 * _KIB, "Largest report of a local or a projection collection")
    message_bytes: int = _bytes(64 * _MIB, "Largest message of a secure sum")
    query_bytes: int = _bytes(_MIB, "Largest query of private retrieval")
    waiting_bytes: int = _bytes(
        512 * _MIB,
        "Maximum total size of the bodies being received; one address has a quarter of it once half is taken",
        _MIB,
    )
    header_bytes: int = _bytes(16 * _KIB, "Maximum size of a request's head", 512, _MIB)
    header_seconds: int = _seconds(10, "Maximum time to receive the head of a request")
    body_seconds: int = _seconds(
        20,
        "Maximum time to receive a body, plus its size over --body-rate, half of which it keeps up all along",
    )
    body_rate: int = _number(8 * _KIB, "Minimum rate of a body, bytes a second", 1, 1 << 30, "bytes a second")
    idle_seconds: int = _seconds(30, "Time until an idle connection is closed")
    write_seconds: int = _seconds(30, "Time until a client that does not read is disconnected")
    connections: int = _number(4096, "Maximum number of connections", 1, 1_000_000)
    address_rate: int = _rate(5_000, "Maximum requests a second from one address")
    address_burst: int = _burst(20_000, "Maximum burst of requests from one address")
    failure_rate: int = _rate(5, "Maximum refused tokens and signatures a second from one address")
    failure_burst: int = _burst(50, "Maximum burst of refused tokens and signatures from one address")
    device_requests: int = _number(
        1_000,
        "Visits of devices a second, all together, that devices are told to keep to; one that finds a new phase brings "
        "two requests more",
        1,
        10_000_000,
    )
    device_rate: int = _rate(20, "Maximum requests a second of one device")
    device_burst: int = _burst(200, "Maximum burst of requests of one device")
    # Chosen so that one device a second may enrol, and a stolen token needs a day for 10,000 invented devices.
    enrol_minute: int = _number(
        60, "Maximum devices that one enrolment token lets in a minute; 0 sets no limit", 0, 10_000_000
    )
    enrol_day: int = _number(
        10_000, "Maximum devices that one enrolment token lets in a day; 0 sets no limit", 0, 10_000_000
    )
    work_at_once: int = _burst(16, "Maximum files and maps that one token waits for at once")
    work_hour: int = _number(
        240, "Maximum files and maps that one token has made in an hour; 0 sets no limit", 0, 10_000_000
    )
    threads: int = _number(8, "Threads that read the store and draw maps", 1, 256)
    shutdown_seconds: int = _seconds(20, "Maximum time for requests in progress when stopping")

    def __post_init__(self) -> None:
        for row in SETTINGS:
            row.check(getattr(self, row.name))
        if self.trusted_proxies is not None:
            for proxy in self.trusted_proxies.split(","):
                _check_proxy(proxy.strip())
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ParameterError("TLS needs both tls_cert (--tls-cert) and tls_key (--tls-key)")
        if self.authority is not None and self.authority_key is not None:
            raise ParameterError(
                "authority (--authority) and authority_key (--authority-key) exclude each other, also as "
                "variables MAPVEIL_...: apart, or the collector's own"
            )
        if self.revocation_list is not None and self.authority is None:
            raise ParameterError(
                "revocation_list (--revocation-list) is that of an authority apart: give authority (--authority) "
                "too; the collector's own signs its list itself"
            )
        if (self.operator is None) != (self.peer_key is None):
            raise ParameterError("operator (--operator) and peer_key (--peer-key) go together")
        if (self.operator == "leader") != (self.peer is not None):
            raise ParameterError(
                "peer (--peer) is the helper's address: given with --operator leader, and only there"
            )
        if self.operator is not None and self.workers > 1:
            raise ParameterError("workers (--workers) must be 1 for an operator of two")
        if self.role != Role.ALL and (self.operator is not None or not self.store.startswith("postgresql")):
            raise ParameterError(
                f"role (--role) must be all on SQLite and for an operator of two, got {self.role}; "
                "processes of other roles share a store on PostgreSQL"
            )
        if self.role in (Role.INTAKE, Role.WORKER) and self.exports is None:
            raise ParameterError(
                "exports (--exports) must name the folder or URL that processes of both roles intake and worker reach"
            )
        if self.workers > 1 and not self.store.startswith("postgresql"):
            raise ParameterError(
                f"workers (--workers) must be 1 on SQLite, got {self.workers}; more need a store on PostgreSQL"
            )

    @property
    def scheme(self) -> str:
        """``https`` where there is a certificate."""
        return "http" if self.tls_cert is None else "https"

    @classmethod
    def read(cls, environment: Mapping[str, str], given: Mapping[str, Any] | None = None) -> Settings:
        """Settings from the environment and, above it, from what was given.

        Parameters
        ----------
        environment : mapping
            Such as ``os.environ``; an empty variable says nothing.
        given : mapping, optional
            By name; None says nothing.
        """
        values: dict[str, Any] = {
            row.name: row.read(text) for row in SETTINGS if (text := environment.get(row.variable))
        }
        values |= {name: value for name, value in (given or {}).items() if value is not None}
        return cls(**values)

    @property
    def in_clear(self) -> bool:
        """Whether other machines reach the service without TLS of its own, and no proxy is named that may have it."""
        try:
            here = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            here = self.host == "localhost"
        return not here and self.tls_cert is None and self.trusted_proxies is None

    def environment(self) -> dict[str, str]:
        """The variables that :meth:`read` makes these settings of again: how a worker process gets them."""
        values = ((row.variable, getattr(self, row.name)) for row in SETTINGS)
        return {variable: str(value) for variable, value in values if value is not None}

    def __repr__(self) -> str:
        # The store's URL may hold a password.
        return f"Settings({self.scheme}://{self.host}:{self.port}, workers={self.workers})"


def _check_proxy(text: str) -> None:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ParameterError(
            f"trusted_proxies (--trusted-proxies) must be addresses or networks such as 10.0.0.0/24, got {text!r}"
        ) from None


def _row(each: dataclasses.Field[Any]) -> Setting:
    about = each.metadata
    default = cast("str | int | None", each.default)
    return Setting(each.name, default, **{"unit": "", "low": 0, "high": 0, "choices": (), **about})


SETTINGS: Final = tuple(_row(each) for each in dataclasses.fields(Settings))
"""Every setting, in the order of the documentation."""


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Variables of the environment that look like settings and are none, each with the nearest setting's, if any.

    Examples
    --------
    >>> unknown_variables({"MAPVEIL_WORKER": "2", "MAPVEIL_PORT": "80", "HOME": "/"})
    {'MAPVEIL_WORKER': 'MAPVEIL_WORKERS'}
    """
    known = [row.variable for row in SETTINGS]
    unknown = (name for name in sorted(environment) if name.startswith(_PREFIX))
    unknown = (
        name for name in unknown if name not in _OF_OTHERS.union(known) and not _OF_KUBERNETES.search(name)
    )
    return {name: next(iter(difflib.get_close_matches(name, known, 1, 0.8)), None) for name in unknown}
