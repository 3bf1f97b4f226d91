"""A collection over loopback HTTP that checks on its server: signed keys, two messages more, a denser graph."""

from __future__ import annotations

from benchmarks.collector import sums
from benchmarks.record import Context, Result


def run(context: Context) -> list[Result]:
    """Measure a collection against a malicious server."""
    few = context.quick
    return sums(context, 60 if few else 1_000, active=True, phase_seconds=4 if few else 60)
