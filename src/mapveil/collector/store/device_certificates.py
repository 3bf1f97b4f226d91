"""Certificates of the store's devices, and the list of those that are revoked, as this process may give them.

With an authority of its own the collector signs both. Of an authority apart it has the lists that it is given as a
file: it serves the newest, and revokes the devices that are on it, so that no round asks them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import func, select, update
from sqlalchemy.engine import Connection

from mapveil.collector.clock import time_text
from mapveil.collector.recent import Recent
from mapveil.collector.refusals import Forbidden, NotFound, Refusal
from mapveil.collector.store.audit_log import record
from mapveil.collector.store.database import Store
from mapveil.collector.store.device_enrolment import close_enrolment
from mapveil.collector.store.schema import ADMITTED, devices, enrolments
from mapveil.secure_sum.enrolment_authority import DAYS, LIST_DAYS, EnrolmentAuthority
from mapveil_client.errors import InputError
from mapveil_client.secure_sum.certificate import Authority, Certificate, RevocationList

_LOG: Final = logging.getLogger("mapveil.collector")
LOOK_SECONDS: Final = 5.0
CERTIFY: Final = "device.certify"  # action of the line of the audit log
"""Seconds for which a list is served before the store or its file is looked at again."""

_KEPT: Final = 1 << 16  # certificates
_ARRAY_OF_7: Final = b"\x87"  # the first byte of a list
_AT_ONCE: Final = 500


@dataclass(frozen=True, kw_only=True)
class Lifetimes:
    """Lifetimes of what an authority signs, days."""

    certificate: int = DAYS
    revocations: int = LIST_DAYS


@dataclass
class _Served:
    """The list that is served."""

    made: RevocationList | None = None
    body: bytes = b""
    looked: float = float("-inf")  # monotonic
    file: tuple[int, int] | None = field(default=None)  # time of change and size


class Certification:
    """Certificates and revocation lists. Every method may be called from any thread.

    Parameters
    ----------
    store : Store
        Of the devices.
    authority : Authority or EnrolmentAuthority, optional
        Apart from this process, or its own.
    lifetimes : Lifetimes
        Of what its own authority signs.
    list_file : path, optional
        File with the newest list of an authority apart.
    """

    def __init__(
        self,
        store: Store,
        authority: Authority | EnrolmentAuthority | None,
        lifetimes: Lifetimes | None = None,
        list_file: Path | None = None,
    ) -> None:
        self._store, self._authority = store, authority
        self._lifetimes, self._file = lifetimes or Lifetimes(), list_file
        self._made: Recent[int, Certificate] = Recent(_KEPT)
        self._served, self._lock = _Served(), threading.Lock()

    async def certify(self, device: int) -> Certificate:
        """A certificate of an enrolled device's key; the same again until a third of its time is over.

        Raises
        ------
        NotFound
            The authority is apart.
        Forbidden
            The device is revoked or in quarantine.
        """
        if not isinstance(self._authority, EnrolmentAuthority):
            raise NotFound("this collector hosts no enrolment authority")
        made = await self._store.put(self._certify, device, records=True)
        if isinstance(made, Refusal):
            raise made.with_traceback(None)  # one refusal may be that of several devices of a batch
        return self._made.put(device, made)

    def _certify(self, connection: Connection, batch: Sequence[int]) -> list[Certificate | Refusal]:
        query = select(devices.c.id, devices.c.public_key).where(devices.c.id.in_(batch), ADMITTED)
        made = {row.id: self._certificate(connection, *row) for row in connection.execute(query).all()}
        barred = Forbidden("the device was revoked, or is in quarantine")
        return [made.get(device, barred) for device in batch]

    def _certificate(self, connection: Connection, device: int, key: bytes) -> Certificate:
        assert isinstance(self._authority, EnrolmentAuthority)
        now, known = self._store.clock.now().timestamp(), self._made.get(device)
        if known is not None and now < known.not_before + (known.expires - known.not_before) / 3:
            return known
        made = self._authority.certify(bytes(key), now, days=self._lifetimes.certificate)
        named = str(self._authority.named)  # a start with another key is refused
        record(connection, "authority", CERTIFY, None, device=device, authority=named, **made.summary)
        return made

    def revocation_list(self) -> bytes:
        """The newest list, as devices read it.

        Raises
        ------
        NotFound
            The authority is apart, and gave none, or none that is valid.
        """
        with self._lock:
            served = self._served
            if served.made is None or time.monotonic() - served.looked >= LOOK_SECONDS:
                if isinstance(self._authority, EnrolmentAuthority):
                    self._sign(self._authority)
                elif self._authority is not None and self._file is not None:
                    self._read(self._authority, self._file)
                served.looked = time.monotonic()
            if served.made is None or served.made.expires <= self._store.clock.now().timestamp():
                raise NotFound("this collector has no valid revocation list of the enrolment authority")
            return served.body

    def forget(self) -> None:
        """Look at the store at the next request: a device was revoked."""
        with self._lock:
            self._served.looked = float("-inf")

    def _sign(self, authority: EnrolmentAuthority) -> None:
        """Sign the keys of the revoked devices: again at once where there is one more, else before long."""
        now, served = self._store.clock.now().timestamp(), self._served
        revoked = devices.c.revoked_at.is_not(None)
        with self._store.read() as connection:
            count = connection.execute(select(func.count()).select_from(devices).where(revoked)).scalar_one()
            made = served.made
            fresh = made is not None and made.issued <= now < made.issued + (made.expires - made.issued) / 3
            if made is not None and made.number == count and fresh:
                return
            keys = [
                bytes(key)
                for key in connection.execute(select(devices.c.public_key).where(revoked)).scalars()
            ]
        served.made = authority.revoke(keys, now, days=self._lifetimes.revocations)
        served.body = served.made.encode()

    def _read(self, authority: Authority, path: Path) -> None:
        """Read the file where it changed; whatever is wrong with it, the list before is served while it lasts."""
        served = self._served
        try:
            found = path.stat()
            file = (found.st_mtime_ns, found.st_size)
            if file == served.file:
                return
            made = read_list(path)
        except OSError as error:
            _LOG.warning("%s: the revocation list cannot be read (%s)", path, error.strerror)
            return
        except InputError as error:
            _LOG.warning("%s", error)
            return
        now = self._store.clock.now().timestamp()
        if fault := made.fault(authority, now, served.made):
            served.file = file
            _LOG.warning("%s: %s", path, fault)
            return
        self._revoke(made)  # where the store cannot be written now, the next look tries again
        served.file, served.made, served.body = file, made, made.encode()

    def _revoke(self, made: RevocationList) -> None:
        """Revoke the devices of a list here too, so that no round asks them."""
        keys, now = sorted(made.keys), time_text(self._store.clock.now())
        by_token = select(enrolments.c.token_hash, devices.c.id).join_from(devices, enrolments)
        with self._store.write() as connection:
            found: list[Any] = []
            for first in range(0, len(keys), _AT_ONCE):
                here = devices.c.public_key.in_(keys[first : first + _AT_ONCE])
                found += connection.execute(by_token.where(here, devices.c.revoked_at.is_(None)))
            for _, device in sorted(map(tuple, found)):  # as enrolment locks tokens
                connection.execute(update(devices).where(devices.c.id == device).values(revoked_at=now))
                record(connection, "authority", "device.revoke", number=device)
                close_enrolment(connection, device, "authority", now)
            detail = {"list": made.number, "keys": len(keys), "expires": made.expires, "revoked": len(found)}
            record(connection, "authority", "authority.list", None, **detail)


def read_list(path: Path) -> RevocationList:
    """Read a file that holds a revocation list: its bytes, or hexadecimal.

    Raises
    ------
    InputError
        It cannot be read, or holds something else.
    """
    try:
        data = path.read_bytes()
        raw = data if data[:1] == _ARRAY_OF_7 else bytes.fromhex(data.decode("ascii").strip())
        return RevocationList.decode(raw)
    except OSError as error:
        raise InputError(f"{path}: the revocation list cannot be read ({error.strerror})") from None
    except (ValueError, InputError) as error:
        raise InputError(f"{path}: expected a revocation list ({error})") from None
