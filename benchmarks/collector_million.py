"""A million reports of local privacy over loopback HTTP; a quarter of an hour, most of it to make the devices."""

from __future__ import annotations

from benchmarks.collector_reports import million
from benchmarks.record import Context, Result


def run(context: Context) -> list[Result]:
    """Measure them."""
    return million(context)
