"""The roles of a service's processes, and what each does again and again beside answering."""

import enum
from typing import Final


class Role(enum.StrEnum):
    """Part of a service that a process plays; any number of processes play the same one."""

    ALL = "all"
    INTAKE = "intake"  # answers devices, operators and viewers
    WORKER = "worker"  # closes shards, makes maps and files of them
    CONDUCTOR = "conductor"  # decides what is due, one process at a time


class Loop(enum.Enum):
    """One loop; none waits for another."""

    CONDUCT = "conductor"
    LEAD = "leader"  # with the helper, which may not answer for minutes
    SHARDS = "shards"
    MAPS = "maps"  # a map of a million cells takes minutes
    EXPORTS = "exports"


LOOPS: Final = {
    Role.ALL: tuple(Loop),
    Role.INTAKE: (),
    Role.WORKER: (Loop.SHARDS, Loop.MAPS, Loop.EXPORTS),
    Role.CONDUCTOR: (Loop.CONDUCT, Loop.LEAD),
}
"""Loops of each role."""
