"""Rows of an operator's store, as values."""

from __future__ import annotations

from typing import NamedTuple

from mapveil.collector.operators.peer_messages import AskedQuery


class Task(NamedTuple):
    """An operator's part of a collection."""

    operator: int
    sums: bytes
    accepted: int
    refused: dict[str, int]


class Job(NamedTuple):
    """A row of a job."""

    number: int
    request: bytes
    reply: bytes
    closing: bytes
    done: bool


class Answered(NamedTuple):
    """A query, and what is known of its answer."""

    query: AskedQuery
    share: bytes
    total: bytes | None
