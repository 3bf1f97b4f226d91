"""The state of a device for its owner: identity, certificate, and the budget as it stands now."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mapveil_client.device_account import Budget
from mapveil_client.epsilon import readable
from mapveil_client.memory import DeviceMemory
from mapveil_client.policy import DevicePolicy


@dataclass(frozen=True, kw_only=True)
class DeviceStatus:
    """State of a device; none of it secret, and none of it a location.

    Parameters
    ----------
    device : int or None
        Number at the collector; None before it enrolled.
    certificate_expires, list_expires : int or None
        When its certificate and its revocation list expire, seconds since 1970.
    revoked : bool
        Whether it is on that list.
    budget : Budget
        Of its policy.
    spent_ever, spent : Fraction
        Charges of its life, and those that count against the budget now: with a period, charges older than that are
        renewed, whether or not any collection was considered since.
    set_aside : Fraction
        Grants of running collections that are not charged yet.
    left : Fraction
        Budget that may still be granted.
    running : int
        Number of collections that it takes part in.
    """

    device: int | None
    certificate_expires: int | None
    list_expires: int | None
    revoked: bool
    budget: Budget
    spent_ever: Fraction
    spent: Fraction
    set_aside: Fraction
    left: Fraction
    running: int

    @classmethod
    def of(cls, memory: DeviceMemory, policy: DevicePolicy) -> DeviceStatus:
        """The state of a memory under a policy, by the clock of its account. Run by: the device."""
        account, budget, listed = memory.account, policy.budget, memory.revoked
        left, spent = account.left(budget), account.spent_of(budget)
        return cls(
            device=memory.device,
            certificate_expires=None if memory.certificate is None else memory.certificate.expires,
            list_expires=None if listed is None else listed.expires,
            revoked=listed is not None and memory.identity.public in listed.keys,
            budget=budget,
            spent_ever=account.spent,
            spent=spent,
            set_aside=budget.epsilon - left - spent,
            left=left,
            running=sum(part.running for part in memory.parts.values()),
        )

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready record; exact fractions as strings."""
        exact = ("spent_ever", "spent", "set_aside", "left")
        return {
            **vars(self),
            "budget": str(self.budget),
            **{name: str(getattr(self, name)) for name in exact},
        }

    def __str__(self) -> str:
        return (
            f"{readable(self.spent)} spent of {self.budget}, {readable(self.set_aside)} set aside, "
            f"{readable(self.left)} left; {readable(self.spent_ever)} spent in its life; takes part in {self.running}"
        )
