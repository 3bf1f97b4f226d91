"""Which devices stay charged for a round, by what ended their part in it: the one table of pages, console and tests.

The collector's ledger charges a device when its survivors are about to be told. A device charges itself earlier, when
it makes its masked vector: it cannot see what became of it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mapveil.collector.rounds.life_cycle import ACTIVE, State
from mapveil_client.terms import CollectionTerms

JOINING: Final = "joining"
REPORTING: Final = "reporting"


class ChargeRow(NamedTuple):
    """One row, for a round (or a report) of epsilon."""

    event: str  # that ends a device's part
    ledger: str
    device: str
    phases: tuple[str, ...] = ()  # in which an operator's abort is this event


CHARGE_TABLE: Final = (
    ChargeRow("too few devices join, or an operator aborts before a round; the device is not asked", "0",
              "0: what was set aside is free again", (JOINING,)),
    ChargeRow("an operator aborts, or the round is run again, in `keys` or `shares`", "0",
              "0; a round that is run again is charged for itself", ("keys", "shares")),
    ChargeRow("the device is left out before it made its masked vector", "0", "0"),
    ChargeRow("its masked input is malformed, late or lost", "0", "epsilon"),
    ChargeRow("its boxes were wrong, or too few neighbours opened those of such a device, itself among them", "0",
              "epsilon"),
    ChargeRow("its shard is left out at the end of `inputs`, or the collection ends there", "0",
              "epsilon, if it made its masked vector"),
    ChargeRow("an operator aborts in `inputs`", "0", "epsilon, if it made its masked vector", ("inputs",)),
    ChargeRow("its shard is left out, or the collection ends, in `consents`, `answers` or later", "epsilon", "epsilon",
              ("consents", "answers")),
    ChargeRow("its own ANSWER is missing or wrong", "epsilon", "epsilon"),
    ChargeRow("a local report was made, whatever becomes of the collection", "epsilon, if it came in", "epsilon",
              (REPORTING,)),
    ChargeRow("the server no longer knows the collection (404), for an hour", "-",
              "what it charged before; the rest that was set aside is free again"),
)  # fmt: skip
"""Every event that ends a device's part, in the order of a round."""


def abort_rows(terms: CollectionTerms, state: State, phase: str | None) -> list[dict[str, Any]]:
    """The charge of an abort by an operator on each device, by phase; ``now`` marks the collection's phase.

    Empty for a collection whose reports are not counted in epsilon.
    """
    if terms.trust == "random-features":
        return []
    local = terms.trust == "local"
    here = REPORTING if local else phase or JOINING
    if state is State.FINISHING and not local:
        here = "answers"
    return [
        {
            "phases": list(row.phases),
            "ledger": row.ledger,
            "device": row.device,
            "now": here in row.phases and state in ACTIVE,
        }
        for row in CHARGE_TABLE
        if row.phases and (REPORTING in row.phases) == local
    ]
