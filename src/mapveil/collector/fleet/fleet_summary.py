"""Summary of a fleet's run: devices that answered, refusals by reason, and the cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from mapveil_client.epsilon import readable

if TYPE_CHECKING:
    from mapveil_client.device_client import DeviceClient

_NUMBERED: Final = re.compile(r"\b(client) \d+")


@dataclass(frozen=True, kw_only=True)
class FleetSummary:
    """Summary of a fleet's run.

    Parameters
    ----------
    devices, joined : int
        Devices in the fleet, and those that took part in a collection.
    sent : int
        Messages and reports that the server took.
    refused, left : mapping of str to int
        Devices that took no part, and devices that took part and left, by reason.
    dropped : int
        Devices that were made to drop out.
    unreachable : int
        Requests that were given up.
    epsilon : Fraction
        Largest epsilon that a device has spent in its life.
    budget : str
        Budget of the devices' policy.
    least_left : Fraction
        Least budget that a device has left now.
    bytes_up, bytes_down : tuple of float and int
        Mean and maximum of the bytes of one device's bodies.
    seconds : float
        From the first enrolment to the end.
    states : mapping of str to str
        Last state of each collection.
    reasons : mapping of str to str
        Reason of each collection that was aborted, as the server gives it.
    """

    devices: int
    joined: int
    sent: int
    refused: Mapping[str, int]
    left: Mapping[str, int]
    dropped: int
    unreachable: int
    epsilon: Fraction
    budget: str
    least_left: Fraction
    bytes_up: tuple[float, int]
    bytes_down: tuple[float, int]
    seconds: float
    states: Mapping[str, str]
    reasons: Mapping[str, str]

    @classmethod
    def of(
        cls,
        clients: Iterable[DeviceClient],
        states: Mapping[str, str],
        *,
        sent: int,
        dropped: int,
        unreachable: int,
        seconds: float,
        reasons: Mapping[str, str] | None = None,
    ) -> FleetSummary:
        """Count what the devices' own memories say about these collections."""
        devices = list(clients)
        refused: Counter[str] = Counter()
        left: Counter[str] = Counter()
        joined = 0
        for client in devices:
            memory = client.memory
            parts = [memory.parts[name] for name in states if name in memory.parts]
            # The server may have refused to let it in, such as one that it revoked.
            joined += any(part.state != "left" or part.round or part.sent for part in parts)
            refused.update(_plain(memory.refused[name]) for name in states if name in memory.refused)
            left.update(_plain(part.reason) for part in parts if part.state == "left")
        up, down = (_mean_and_most(getattr(each.traffic, way) for each in devices) for way in ("up", "down"))
        return cls(
            devices=len(devices),
            joined=joined,
            sent=sent,
            refused=dict(refused.most_common()),
            left=dict(left.most_common()),
            dropped=dropped,
            unreachable=unreachable,
            epsilon=max((client.memory.account.spent for client in devices), default=Fraction(0)),
            budget=" or ".join(sorted({str(client.policy.budget) for client in devices})),
            least_left=min(
                (client.memory.account.left(client.policy.budget) for client in devices), default=Fraction(0)
            ),
            bytes_up=up,
            bytes_down=down,
            seconds=seconds,
            states=dict(states),
            reasons=dict(reasons or {}),
        )

    @property
    def good(self) -> bool:
        """Whether every collection came to its end, and somebody took part."""
        return self.joined > 0 and all(state == "done" for state in self.states.values())

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready record."""
        up, down = ({"mean": round(mean, 1), "most": most} for mean, most in (self.bytes_up, self.bytes_down))
        changed = {
            "epsilon": str(self.epsilon),
            "least_left": str(self.least_left),
            "seconds": round(self.seconds, 2),
        }
        return {**vars(self), **changed, "bytes_up": up, "bytes_down": down}

    def lines(self) -> list[str]:
        """The summary for a person."""
        up, down = (f"{mean:,.0f} ({most:,})" for mean, most in (self.bytes_up, self.bytes_down))
        made = [
            *(": ".join(filter(None, (*each, self.reasons.get(each[0])))) for each in self.states.items()),
            f"{self.devices} devices, {self.joined} took part, {self.sent} messages sent in {self.seconds:.1f} s",
            f"the most that a device has spent in its life: epsilon {readable(self.epsilon)}",
            f"the least that a device has left now: epsilon {readable(self.least_left)} of {self.budget}",
            f"bytes of one device, mean (most): up {up}, down {down}",
        ]
        if self.dropped:
            made.append(f"{self.dropped} made to drop out")
        for what, reasons in (("refused", self.refused), ("left", self.left)):
            made += [f"{count} {what}: {reason}" for reason, count in reasons.items()]
        if self.unreachable:
            made.append(f"{self.unreachable} requests given up: the server did not answer")
        return made


def _mean_and_most(sizes: Iterable[int]) -> tuple[float, int]:
    known = list(sizes) or [0]
    return sum(known) / len(known), max(known)


def _plain(reason: str) -> str:
    """A reason without the numbers that differ from device to device."""
    return _NUMBERED.sub(r"a \1", reason)
