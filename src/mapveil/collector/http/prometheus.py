"""Metrics of the service, for Prometheus.

Labels are routes, statuses, phases and states: nothing of a person or of a collection. Several workers of one host
share their numbers through files, where ``PROMETHEUS_MULTIPROC_DIR`` names a folder.
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.store.work_queue import Task

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LATENCIES: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PHASES: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """The numbers of one service.

    Parameters
    ----------
    states, waiting : callable
        Return the number of collections in each state, and of pieces of work that wait or are being done by kind;
        called at every scrape.
    """

    def __init__(
        self, states: Callable[[], Mapping[str, int]], waiting: Callable[[], Mapping[str, int]] = dict
    ) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._own = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self._own), partial(Gauge, registry=self._own)
        histogram = partial(Histogram, registry=self._own)
        self.requests = counter("mapveil_requests", "Requests answered", ("route", "method", "status"))
        about = "Requests that ended in an error of Mapveil's own: a number that is there before the first of them"
        self.errors = counter("mapveil_errors", about)
        about = "From the head of a request to the end of its response"
        self.seconds = histogram("mapveil_request_seconds", about, ("route",), buckets=_LATENCIES)
        self.reports = counter("mapveil_reports", "Reports accepted")
        self.messages = counter("mapveil_messages", "Messages of secure sums accepted", ("phase",))
        self.joined = counter("mapveil_members", "Devices that joined a collection")
        about = "How long a phase of a round was open"
        self.phase_seconds = histogram("mapveil_phase_seconds", about, ("phase",), buckets=_PHASES)
        about = "One durable commit of the store, of however many requests"
        self.commit_seconds = histogram("mapveil_store_commit_seconds", about, buckets=_LATENCIES)
        about = "Bytes of bodies that are being received"
        self.bodies = gauge("mapveil_body_bytes", about, multiprocess_mode="livesum")
        about = "Collections by state"
        self.collections = gauge("mapveil_collections", about, ("state",), multiprocess_mode="mostrecent")
        about = "Pieces of work that wait or are being done, by kind"
        self.work = gauge("mapveil_work_waiting", about, ("task",), multiprocess_mode="mostrecent")
        about = "Loops of this process that come to no end"
        self.stuck = gauge("mapveil_stuck_loops", about, multiprocess_mode="livesum")
        self._gauge = gauge
        self._conducted: Any = None
        self._states, self._waiting = states, waiting
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
        if status == 500:
            self.errors.inc()
        self._timed[route].observe(seconds)

    def set_conducted(self, conducted: bool | None) -> None:
        """Set whether some process conducts; None, of an enrolment authority: no such number is served."""
        if conducted is None:
            return
        if self._conducted is None:  # not before: a new number is 0
            about = (
                "1 where some process takes the steps of collections, 0 where no heartbeat of one is recent"
            )
            self._conducted = self._gauge("mapveil_conducted", about, multiprocess_mode="livemostrecent")
        self._conducted.set(conducted)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format. Run by: a thread."""
        from prometheus_client import CollectorRegistry, generate_latest

        counts, waiting = self._states(), self._waiting()
        for state in State:
            self.collections.labels(state.value).set(counts.get(state.value, 0))
        for task in Task:
            self.work.labels(task.value).set(waiting.get(task.value, 0))
        shown = self._own
        if folder := os.environ.get(_FOLDER):
            from prometheus_client.multiprocess import MultiProcessCollector

            _forget_dead(Path(folder))
            shown = CollectorRegistry()
            MultiProcessCollector(shown)
        return generate_latest(shown)


def _forget_dead(folder: Path) -> None:
    """Remove what processes that have ended said of themselves, such as one that was killed because it was stuck."""
    from prometheus_client.multiprocess import mark_process_dead

    for process in {int(file.stem.rpartition("_")[2]) for file in folder.glob("gauge_live*.db")}:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            with contextlib.suppress(FileNotFoundError):  # a sibling that is scraped too was faster
                mark_process_dead(process, str(folder))
