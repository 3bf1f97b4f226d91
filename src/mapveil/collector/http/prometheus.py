"""Metrics of the service, for Prometheus.

Labels are routes, statuses, phases and states: nothing of a person or of a collection. Several workers of one host
share their numbers through files, where ``PROMETHEUS_MULTIPROC_DIR`` names a folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from mapveil.collector.rounds.life_cycle import State

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

_LATENCIES: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PHASES: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """The numbers of one service.

    Parameters
    ----------
    states : callable
        Returns the number of collections in each state; called at every scrape.
    """

    def __init__(self, states: Callable[[], Mapping[str, int]]) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._own = CollectorRegistry()
        self.requests = Counter(
            "mapveil_requests", "Requests answered", ("route", "method", "status"), registry=self._own
        )
        self.seconds = Histogram(
            "mapveil_request_seconds",
            "From the head of a request to the end of its response",
            ("route",),
            buckets=_LATENCIES,
            registry=self._own,
        )
        self.reports = Counter("mapveil_reports", "Reports accepted", registry=self._own)
        self.messages = Counter(
            "mapveil_messages", "Messages of secure sums accepted", ("phase",), registry=self._own
        )
        self.joined = Counter("mapveil_members", "Devices that joined a collection", registry=self._own)
        self.phase_seconds = Histogram(
            "mapveil_phase_seconds",
            "How long a phase of a round was open",
            ("phase",),
            buckets=_PHASES,
            registry=self._own,
        )
        self.commit_seconds = Histogram(
            "mapveil_store_commit_seconds",
            "One durable commit of the store, of however many requests",
            buckets=_LATENCIES,
            registry=self._own,
        )
        self.bodies = Gauge(
            "mapveil_body_bytes",
            "Bytes of bodies that are being received",
            registry=self._own,
            multiprocess_mode="livesum",
        )
        self.collections = Gauge(
            "mapveil_collections",
            "Collections by state",
            ("state",),
            registry=self._own,
            multiprocess_mode="mostrecent",
        )
        self._states = states
        self._counted: dict[tuple[str, str, int], Any] = {}
        self._timed: dict[str, Any] = {}

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        # labels() takes a lock and builds strings; the few combinations there are stay at hand.
        key = (route, method, status)
        counter = self._counted.get(key)
        if counter is None:
            counter = self._counted[key] = self.requests.labels(route, method, str(status))
            self._timed.setdefault(route, self.seconds.labels(route))
        counter.inc()
        self._timed[route].observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format. Run by: a thread."""
        from prometheus_client import CollectorRegistry, generate_latest

        counts = self._states()
        for state in State:
            self.collections.labels(state.value).set(counts.get(state.value, 0))
        shown = self._own
        if os.environ.get(_FOLDER):
            from prometheus_client.multiprocess import MultiProcessCollector

            shown = CollectorRegistry()
            MultiProcessCollector(shown)
        return generate_latest(shown)
