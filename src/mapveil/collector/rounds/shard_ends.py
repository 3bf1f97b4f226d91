"""The end of a phase, shard by shard: what its machine comes to, as the store keeps it, and all of them together.

Each shard is a piece of work of its own. Its machine has no randomness, so whichever worker does it, and however
often, the result is the same bytes.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self

import numpy as np

from mapveil.collector.rounds.plan_replay import round_terms
from mapveil.collector.rounds.shard_machines import RoundMachines, ShardFailure
from mapveil.collector.store.watched_devices import FAULT
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.arrays import IntArray
from mapveil_client.secure_sum.states import Abort, ServerState, server_phases

_MODULAR: Final = np.dtype("<u8")

Lines = tuple[tuple[str, dict[str, Any]], ...]
"""Lines of the audit log: action and detail."""


class ShardEnd(NamedTuple):
    """Result of a phase in one shard."""

    shard: int
    included: int  # devices in its sum, once that is settled; 0 before, and where it failed
    failure: str  # reason for which it ended without a sum; empty where it goes on
    withdrawn: tuple[int, ...]  # clients whose masked inputs count no more
    lines: Lines  # for the audit log
    total: bytes  # uint64, little-endian, modulo the round's modulus; empty before the end of the round

    def encode(self) -> bytes:
        """The result as the store keeps it: a line of JSON, then the sum."""
        return json.dumps(self[:-1], sort_keys=True).encode() + b"\n" + self.total

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote."""
        head, _, total = data.partition(b"\n")
        shard, included, failure, withdrawn, lines = json.loads(head)
        return cls(shard, included, failure, tuple(withdrawn), tuple(map(tuple, lines)), total)


class Closed(NamedTuple):
    """Result of a phase, over all shards."""

    phase: ServerState  # the next one
    included: int | None  # devices in the sums, once that is settled
    total: IntArray | None  # units of all shards, once the round is done
    left: int  # shards that go on
    failed: tuple[ShardFailure, ...]  # shards that ended with this phase
    withdrawn: tuple[tuple[int, int], ...]  # shard and client whose masked inputs count no more
    lines: Lines  # for the audit log


def close_shard(held: RoundMachines, shard: int, phase: ServerState) -> ShardEnd:
    """Let a shard's machine take the messages of a phase from the store, and close it. CPU-heavy."""
    following, machine = _following(held.announcement, phase), held.machines[shard]
    terms = round_terms(held.announcement)
    included, total = 0, b""
    withdrawn: tuple[int, ...] = ()
    with machine.lock:
        try:
            machine.bring_up(following)
            if _settled(following):
                included = int(np.count_nonzero(machine.server.included))
            if following is ServerState.DONE:
                if terms.plausible(machine.server.total, included):
                    total = machine.server.total.astype(_MODULAR).tobytes()
                else:
                    machine.fail(phase, "a coordinate of its sum is outside its range")
            if phase is ServerState.INPUTS:
                withdrawn = tuple(np.flatnonzero(machine.server.withdrawn).tolist())
        except Abort:
            pass
        failure = machine.failure
        faults = tuple((FAULT, held.fault(machine, each)) for each in machine.faults(phase))
        if not held.answers:
            machine.let_go()
    if failure is None:
        return ShardEnd(shard, included, "", withdrawn, faults, total)
    return ShardEnd(shard, 0, failure.reason, (), (("shard.fail", held.described(failure)), *faults), b"")


def close_round(announced: RoundAnnouncement, phase: ServerState, ends: Iterable[ShardEnd]) -> Closed:
    """Put the results of a phase's shards together."""
    following, terms = _following(announced, phase), round_terms(announced)
    included, left, units = 0, 0, None
    failed: list[ShardFailure] = []
    withdrawn: list[tuple[int, int]] = []
    lines: list[tuple[str, dict[str, Any]]] = []
    for end in ends:
        lines += end.lines
        if end.failure:
            failed.append(ShardFailure(end.shard, phase, end.failure))
            continue
        left += 1
        included += end.included
        withdrawn += [(end.shard, client) for client in end.withdrawn]
        if end.total:
            of_shard = terms.units([np.frombuffer(end.total, dtype=_MODULAR)])
            units = of_shard if units is None else units + of_shard
    settled = included if _settled(following) else None
    return Closed(following, settled, units, left, tuple(failed), tuple(withdrawn), tuple(lines))


def _following(announced: RoundAnnouncement, phase: ServerState) -> ServerState:
    order = (*server_phases(announced.active), ServerState.DONE)
    return order[order.index(phase) + 1]


def _settled(phase: ServerState) -> bool:
    """Whether it is settled, once a phase begins, which devices are in the sums."""
    return phase.value > ServerState.INPUTS.value
