"""The memory of a device: its identity, charges, frequencies and part in each collection, and its own log.

One record, sealed in a :class:`~mapveil_client.vault.Vault` and saved before anything leaves; without a vault it lives
as long as the process, for simulations. The log never holds a location or a key.
"""

from __future__ import annotations

import base64
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil_client.device_account import Account
from mapveil_client.errors import InputError, Secret, one_line
from mapveil_client.random_features.frequencies import KeptFrequencies
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.certificate import Authority, Certificate, RevocationList
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.vault import Vault

_LOGGER: Final = logging.getLogger("mapveil_client")
_VERSION: Final = 2
_SEED_BYTES: Final = 32
_MOST_LINES: Final = 500
_MOST_REFUSED: Final = 1000


class Line(NamedTuple):
    """One line."""

    at: str  # UTC, ISO 8601
    collection: str  # its identifier, or empty
    event: str  # enrolled | joined | refused | charged | sent | unsent | waiting | left | ended
    text: str

    def __str__(self) -> str:
        return f"{self.at} {self.event} {self.collection or '-'}: {self.text}"


class DeviceLog:
    """The last lines of a device's log, ``lines`` first; each also goes to the logger ``mapveil_client``."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._lines: deque[Line] = deque(lines, maxlen=_MOST_LINES)

    @property
    def lines(self) -> tuple[Line, ...]:
        """The last 500 lines, the oldest first."""
        return tuple(self._lines)

    def add(self, event: str, text: str, collection: str = "") -> None:
        """Write a line."""
        text = one_line(text)
        line = Line(datetime.now(UTC).isoformat(timespec="seconds"), collection, event, text)
        self._lines.append(line)
        _LOGGER.info("%s %s: %s", event, collection or "-", text)


@dataclass
class Part:
    """The part of a device in one collection.

    Parameters
    ----------
    terms : str
        Digest of the terms, hexadecimal.
    state : str
        ``joined``; ``reported``: its one report was made; ``left``: it takes no further part; ``ended``.
    reason : str
        Reason for which it left.
    round : int
        The last round that it answered, 0 for none.
    announcement : str
        Digest of that round's announcement, hexadecimal.
    shard, client : int
        The device's shard in that round, and its number there.
    phase : str
        Phase of its last answer.
    answer : bytes
        The last answer, or the report: sent again, byte for byte, after a restart.
    sent : bool
        Whether the server has acknowledged it.
    machine : bytes
        The state of its client of the secure sum. Secret.
    window : int
        The window of a series that it drew when it joined, and reports about; -1 without a series.
    """

    terms: str
    state: str = "joined"
    reason: str = ""
    round: int = 0
    announcement: str = ""
    shard: int = 0
    client: int = 0
    phase: str = ""
    answer: bytes = field(default=b"", repr=False)
    sent: bool = False
    machine: bytes = field(default=b"", repr=False)
    window: int = -1

    @property
    def running(self) -> bool:
        """Whether the device still takes part."""
        return self.state in ("joined", "reported")

    def forget(self, state: str, reason: str = "") -> None:
        """Take no further part, and forget everything secret."""
        self.state, self.reason = state, one_line(reason)
        self.answer = self.machine = b""

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready record."""
        record = dict(vars(self))
        for name in ("answer", "machine"):
            record[name] = base64.b64encode(record[name]).decode()
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Part:
        """Read back a record of :meth:`to_record`."""
        given = dict(record)
        for name in ("answer", "machine"):
            given[name] = base64.b64decode(given[name], validate=True)
        return cls(**given)


class DeviceMemory(Secret):
    """The memory of one device.

    Parameters
    ----------
    seed : bytes
        32 uniform bytes: its identity's private key.
    vault : Vault, optional
        File of the memory; without one it lives as long as the process.
    """

    def __init__(
        self, seed: bytes, vault: Vault | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._seed, self._vault = seed, vault
        self.identity = Identity(seed)  # signs its requests, keys and consents
        self.device: int | None = None  # number at the collector, once enrolled
        self.certificate: Certificate | None = None  # of its identity, by an enrolment authority
        self.revoked: RevocationList | None = None  # the newest of that authority
        self.account = Account(clock=clock)
        self.parts: dict[str, Part] = {}  # by collection
        self.frequencies: KeptFrequencies | None = None  # of its random Fourier features
        self.refused: dict[str, str] = {}  # reasons by collection, the last 1000; others are judged once more
        self.log = DeviceLog()

    @classmethod
    def open(
        cls,
        vault: Vault | None = None,
        rng: Randomness | None = None,
        clock: Callable[[], float] = time.time,
    ) -> DeviceMemory:
        """Read the vault; draw an identity, and save it, only where there is no file at all.

        ``clock`` tells the seconds since 1970, for budgets that renew.

        Raises
        ------
        InputError
            The vault does not open, or what is in it cannot be read. Nothing is drawn then.
        """
        content = None if vault is None else vault.open()
        if content is not None:
            return cls._read(content, vault, clock)
        stream = Randomness() if rng is None else rng
        made = cls(stream.words(_SEED_BYTES, np.uint8).tobytes(), vault, clock)
        made.save()
        return made

    @property
    def lasting(self) -> bool:
        """Whether it outlives the process."""
        return self._vault is not None

    def save(self) -> None:
        """Write the vault; called before anything leaves the device.

        Raises
        ------
        MapveilError
            The vault cannot be written: then nothing may be sent.
        """
        if self._vault is not None:
            self._vault.write(self._content())

    def refuse(self, collection: str, reason: str) -> None:
        """Take no part in a collection, and remember why. Not saved yet."""
        self.refused[collection] = one_line(reason)
        while len(self.refused) > _MOST_REFUSED:
            del self.refused[next(iter(self.refused))]
        self.log.add("refused", reason, collection)

    def leave(self, collection: str, state: str, reason: str, event: str | None = None) -> None:
        """Take no further part in a collection: what was set aside and not charged is free again."""
        part = self.parts.get(collection)
        if part is not None:
            part.forget(state, reason)
        self.account.end(collection)
        self.log.add(event or state, reason, collection)
        self.save()

    def fault_of_credentials(self, authority: Authority | None, now: float) -> str | None:
        """Why this device cannot take part in signed rounds that an authority certifies; None where it can."""
        certificate, revoked, public = self.certificate, self.revoked, self.identity.public
        if certificate is None or authority is None:
            return "this device has no certificate of the enrolment authority that its policy names"
        if (fault := certificate.fault(authority, public, now)) is not None:
            return f"this device: {fault}"
        if revoked is None:
            return "this device has no revocation list of the enrolment authority that its policy names"
        if public in revoked.keys:
            return f"this device was revoked by the enrolment authority of {authority.population}"
        return revoked.fault(authority, now)

    def _content(self) -> bytes:
        record = {
            "version": _VERSION,
            "seed": self._seed.hex(),
            "device": self.device,
            "certificate": None if self.certificate is None else self.certificate.encode().hex(),
            "revoked": None if self.revoked is None else self.revoked.encode().hex(),
            "account": self.account.to_record(),
            "parts": {name: part.to_record() for name, part in self.parts.items()},
            "frequencies": None if self.frequencies is None else self.frequencies.to_record(),
            "refused": self.refused,
            "log": [list(line) for line in self.log.lines],
        }
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def _read(cls, content: bytes, vault: Vault | None, clock: Callable[[], float]) -> DeviceMemory:
        try:
            record = json.loads(content)
            version = record["version"]
            made = cls._from_record(record, vault, clock) if version == _VERSION else None
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, InputError) as error:
            raise InputError(
                f"{vault}: what is in it cannot be read ({type(error).__name__}); "
                "nothing is begun anew and nothing sent"
            ) from None
        if made is None:
            raise InputError(
                f"{vault}: version of the device's record must be {_VERSION}, got {version!r}; nothing is begun anew "
                "and nothing sent; use the Mapveil that wrote it"
            )
        return made

    @classmethod
    def _from_record(
        cls, record: Mapping[str, Any], vault: Vault | None, clock: Callable[[], float]
    ) -> DeviceMemory:
        made = cls(bytes.fromhex(record["seed"]), vault, clock)
        made.device = record["device"]
        held = record["certificate"]
        made.certificate = None if held is None else Certificate.decode(bytes.fromhex(held))
        listed = record.get("revoked")  # a device of a version before has none yet
        made.revoked = None if listed is None else RevocationList.decode(bytes.fromhex(listed))
        made.account = Account.from_record(record["account"], clock)
        made.parts = {name: Part.from_record(part) for name, part in record["parts"].items()}
        kept = record["frequencies"]
        made.frequencies = None if kept is None else KeptFrequencies.from_record(kept)
        made.refused = dict(record["refused"])
        made.log = DeviceLog(Line(*line) for line in record["log"])
        return made

    def __repr__(self) -> str:
        return f"DeviceMemory({self.identity!r}, {self.account!r})"
