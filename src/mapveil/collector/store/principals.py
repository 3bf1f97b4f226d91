"""Accounts: operators by token and role, devices by the key they enrolled with.

A token is drawn from the operating system's randomness, shown once, and kept as its SHA-256 only: ``mvo_`` and 43
characters for an operator, ``mve_`` and 43 for enrolling devices.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar, get_args

from sqlalchemy import func, select, update
from sqlalchemy.engine import Connection, Row
from sqlalchemy.sql.schema import Table

from mapveil.collector.clock import time_text
from mapveil.collector.refusals import Conflict, Forbidden, Invalid, NotFound, Refusal, Unauthorized
from mapveil.collector.store.audit_log import record
from mapveil.collector.store.database import Store
from mapveil.collector.store.device_enrolment import Candidate, EnrolDevices, close_enrolment
from mapveil.collector.store.schema import ADMITTED, MOST_NUMBER, devices, enrolments, operators
from mapveil_client.secure_sum.keys import enrolment_statement, signed_by

T = TypeVar("T")
Role = Literal["viewer", "operator", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)  # each may do what the ones before may
MOST_USES: Final = 1 << 24
MOST_DAYS: Final = 3650  # lifetime of a token; chosen so that one for ten years can be issued
OPERATOR: Final = "mvo_"
ENROLMENT: Final = "mve_"
_BYTES: Final = 32
_REST: Final = re.compile(r"[A-Za-z0-9_-]{43}")


def draw_token(prefix: str) -> str:
    """Draw a token: its prefix and 43 characters."""
    return prefix + secrets.token_urlsafe(_BYTES)


def is_token(text: str, prefix: str) -> bool:
    """Whether a text looks like a token of a kind."""
    return text.startswith(prefix) and _REST.fullmatch(text, len(prefix)) is not None


def _other_token(text: str, wanted: str) -> Unauthorized:
    """The refusal of a text that is no token of the kind that is wanted."""
    of = {OPERATOR: ("an operator's token", "operator"), ENROLMENT: ("an enrolment token", "enrolment")}
    others = (found for prefix, (found, _) in of.items() if prefix != wanted and is_token(text, prefix))
    cut = f"a token that begins with {wanted} and is not whole" if text.startswith(wanted) else "no token"
    kind, option = of[wanted]
    needed = f"{kind}: {wanted} and 43 characters, as mapveil serve --new-{option} prints"
    return Unauthorized(f"this is {next(others, cut)}", needed)


def token_hash(token: str) -> bytes:
    """Hash of a token, 32 bytes: the token is 256 uniform bits, so a plain hash reveals nothing."""
    return hashlib.sha256(token.encode()).digest()


@dataclass(frozen=True)
class Operator:
    """An operator, without the token."""

    id: int
    name: str
    role: Role
    created_at: str
    expires_at: str
    revoked_at: str | None

    @property
    def actor(self) -> str:
        """Name in the audit log."""
        return f"operator {self.id}"

    def require(self, role: str) -> None:
        """Refuse unless this operator may do what a role may."""
        if ROLES.index(self.role) < ROLES.index(role):
            raise Forbidden(f"this needs the role {role}; the token's role is {self.role}")


@dataclass(frozen=True)
class NewOperator(Operator):
    """A new operator and the token, which is shown this once; only its SHA-256 is kept."""

    token: str = field(repr=False)


@dataclass(frozen=True)
class Enrolment:
    """A token with which devices enrol, without the token."""

    id: int
    name: str
    uses_left: int
    created_by: int | None  # an operator; none: the command line
    created_at: str
    expires_at: str
    revoked_at: str | None


@dataclass(frozen=True)
class NewEnrolment(Enrolment):
    """A new token for enrolment, which is shown this once; only its SHA-256 is kept."""

    token: str = field(repr=False)


def check_operator(name: str, role: str, lifetime: timedelta) -> None:
    """Refuse what no operator can be made with, before there is a store. Arguments as ``Accounts.create_operator``."""
    if role not in ROLES:
        raise Invalid(f"role must be one of {', '.join(ROLES)}, got {role[:20]!r}")
    _check_token(name, lifetime)


def check_enrolment(name: str, uses: int, lifetime: timedelta) -> None:
    """Refuse what no enrolment token can be made with. Arguments as ``Accounts.create_enrolment``."""
    if isinstance(uses, bool) or not isinstance(uses, int) or not 1 <= uses <= MOST_USES:
        raise Invalid(f"uses of an enrolment token must be 1 to {MOST_USES}, got {uses!r}")
    _check_token(name, lifetime)


def _check_token(name: str, lifetime: timedelta) -> None:
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise Invalid("name of a token must have 1 to 100 printable characters")
    if not timedelta(0) < lifetime <= timedelta(days=MOST_DAYS):
        raise Invalid(f"lifetime of a token must be above 0 to {MOST_DAYS} days, got {lifetime}")


class Accounts:
    """The operators, enrolment tokens and devices of a store. Every method may be called from any thread.

    Parameters
    ----------
    store : Store
        Of the collector.
    pace : sequence of (int, int)
        Maximum devices that one enrolment token lets in within so many seconds; a maximum of 0 sets no limit.
    """

    def __init__(self, store: Store, pace: Sequence[tuple[int, int]] = ()) -> None:
        self._store = store
        self._enrolling = EnrolDevices([each for each in pace if each[0]])

    def create_operator(self, name: str, role: str, lifetime: timedelta, actor: str) -> NewOperator:
        """Make an operator.

        Parameters
        ----------
        name : str
            For people; at most 100 characters.
        role : str
            ``viewer``, ``operator`` or ``admin``.
        lifetime : timedelta
            Validity of the token.
        actor : str
            Name in the audit log of the one who makes the token.
        """
        check_operator(name, role, lifetime)
        values = {"name": name, "role": role}
        return NewOperator(**self._issue("operator", OPERATOR, values, lifetime, actor, role=role))

    def verify_operator(self, token: str) -> Operator:
        """The operator that a token is of."""
        if not is_token(token, OPERATOR):
            raise _other_token(token, OPERATOR)
        with self._store.read() as connection:
            row = connection.execute(
                select(operators).where(operators.c.token_hash == token_hash(token))
            ).one_or_none()
        if row is None:
            raise Unauthorized("the token is unknown here", "one that was made with this collector's store")
        if row.revoked_at is not None:
            raise Unauthorized("the token was revoked")
        if row.expires_at <= self._now():
            raise Unauthorized(f"the token expired at {row.expires_at}")
        return _account(Operator, row)

    def operators(self) -> list[Operator]:
        """All operators ever made."""
        return self._all(Operator, operators)

    def revoke_operator(self, number: int, actor: str) -> None:
        """Take an operator's token back, at once and for good."""
        self._revoke("operator", number, actor)

    def create_enrolment(
        self, name: str, uses: int, lifetime: timedelta, created_by: int | None, actor: str
    ) -> NewEnrolment:
        """Make a token with which devices enrol.

        Parameters
        ----------
        name : str
            For people; at most 100 characters.
        uses : int
            Number of devices that may enrol with it.
        lifetime : timedelta
            Validity of the token.
        created_by : int, optional
            The operator; none for the command line.
        actor : str
            Name in the audit log of the one who makes the token.
        """
        check_enrolment(name, uses, lifetime)
        values = {"name": name, "uses_left": uses, "created_by": created_by}
        return NewEnrolment(**self._issue("enrolment", ENROLMENT, values, lifetime, actor, uses=uses))

    def enrolments(self) -> list[Enrolment]:
        """All enrolment tokens ever made."""
        return self._all(Enrolment, enrolments)

    def revoke_enrolment(self, number: int, actor: str) -> None:
        """Let no more devices enrol with a token; those that did stay."""
        self._revoke("enrolment", number, actor)

    async def enrol(self, token: str, public_key: bytes, signature: bytes, *, simulated: bool = False) -> int:
        """Enrol a device; the same key again gives the same device, and uses nothing up.

        Parameters
        ----------
        token : str
            An enrolment token.
        public_key : bytes
            Ed25519, 32 bytes.
        signature : bytes
            Of :func:`mapveil_client.secure_sum.keys.enrolment_statement`.
        simulated : bool
            Whether it is one of a fleet in one process, as it says: maps that it is in say that they are simulations.

        Returns
        -------
        int
            The device.
        """
        if len(public_key) != 32:
            raise Invalid(f"a public key of {len(public_key)} bytes", "one of 32 bytes")
        if not is_token(token, ENROLMENT):
            raise _other_token(token, ENROLMENT)
        if not signed_by(public_key, signature, enrolment_statement(token, public_key)):
            raise Unauthorized("the signature of the enrolment is not that of the public key")
        candidate = Candidate(token_hash(token), public_key, simulated)
        made = await self._store.put(self._enrolling, candidate, records=True)
        if isinstance(made, Refusal):
            raise made.with_traceback(None)  # one refusal may be that of many devices of a batch
        return made

    def revoke_device(self, device: int, actor: str) -> None:
        """Revoke a device; its signatures are refused within half a minute.

        The token that it enrolled with lets nobody else in: whoever lost the device could enrol another key.
        """
        self._mark("device", device, actor, "revoked_at", "revoke", then=close_enrolment)

    def quarantine_device(self, device: int, actor: str) -> None:
        """Refuse a device's signatures within half a minute, and ask it in no round, until it is released."""
        self._mark("device", device, actor, "quarantined_at", "quarantine")

    def release_device(self, device: int, actor: str) -> None:
        """Take a device out of quarantine."""
        self._mark("device", device, actor, "quarantined_at", "release", at=False)

    def device_count(self) -> int:
        """Number of devices that are enrolled, not revoked and not in quarantine."""
        with self._store.read() as connection:
            counted = select(func.count()).select_from(devices).where(ADMITTED)
            return int(connection.execute(counted).scalar_one())

    def _all(self, kind: type[T], table: Table) -> list[T]:
        with self._store.read() as connection:
            return [_account(kind, row) for row in connection.execute(select(table).order_by(table.c.id))]

    def _issue(
        self, kind: str, prefix: str, values: dict[str, Any], lifetime: timedelta, actor: str, **said: Any
    ) -> dict[str, Any]:
        """Insert a row with a new token; the row, with the token in place of its hash."""
        now, token, table = self._store.clock.now(), draw_token(prefix), _TABLES[kind]
        row = {**values, "created_at": time_text(now), "expires_at": time_text(now + lifetime)}
        with self._store.write() as connection:
            insert = table.insert().values(**row, token_hash=token_hash(token)).returning(table.c.id)
            number = int(connection.execute(insert).scalar_one())
            record(connection, actor, f"{kind}.create", None, **{kind: number, **said})
        return {"id": number, **row, "revoked_at": None, "token": token}

    def _revoke(self, kind: str, number: int, actor: str) -> None:
        self._mark(kind, number, actor, "revoked_at", "revoke")

    def _mark(
        self,
        kind: str,
        number: int,
        actor: str,
        column: str,
        action: str,
        *,
        at: bool = True,
        then: Callable[[Connection, int, str, str], None] | None = None,
    ) -> None:
        """Set the time in a column, or clear it, and record that; nothing where it is so already."""
        table = _TABLES[kind]
        if not 0 < number <= MOST_NUMBER:
            raise NotFound(f"there is no such {kind}")
        with self._store.write() as connection:
            here = table.c.id == number
            row = connection.execute(select(table).where(here)).one_or_none()
            if row is None:
                raise NotFound(f"there is no {kind} {number}")
            if action != "revoke" and row.revoked_at is not None:
                raise Conflict(f"{kind} {number} is revoked, for good")
            if not at and row._mapping[column] is None:
                raise Conflict(f"{kind} {number} is not in quarantine")
            old = table.c[column].is_(None) if at else table.c[column].is_not(None)
            values = {column: self._now() if at else None}
            if connection.execute(update(table).where(here, old).values(**values)).rowcount:
                record(connection, actor, f"{kind}.{action}", number=number)
                if then is not None:
                    then(connection, number, actor, self._now())

    def _now(self) -> str:
        return time_text(self._store.clock.now())


_TABLES: Final = {"operator": operators, "enrolment": enrolments, "device": devices}


def _account(kind: type[T], row: Row[Any]) -> T:
    """A row without the hash of its token."""
    return kind(**{name: value for name, value in row._mapping.items() if name != "token_hash"})
