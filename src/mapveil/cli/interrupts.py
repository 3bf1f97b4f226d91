"""Ctrl-C and SIGTERM end a command in order: cleanups run, and one line says what was charged."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_CLEANUP_SECONDS: Final = 1.0
"""A signal so soon after another, as of a key that is pressed twice, must not end the cleanup."""


@contextmanager
def interruptible() -> Iterator[list[signal.Signals]]:
    """Turn SIGINT and SIGTERM into :class:`KeyboardInterrupt` inside the block; yields the signals that came.

    Libraries may turn the exception into one of their own: that a signal came is known from the list. A signal that is
    ignored, as SIGINT is in a background job, stays so. Outside the main thread nothing changes.
    """
    came: list[signal.Signals] = []
    last = -math.inf

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal last
        came.append(signal.Signals(number))
        before, last = last, time.monotonic()
        if last - before > _CLEANUP_SECONDS:
            raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, stop)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
