"""The process in which finished maps become files: neither its memory nor Python's lock is the service's.

It runs while there are files to make, one after another, at a lower priority than the rounds.
"""

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple, Self

from mapveil.collector.refusals import Refusal, where_raised
from mapveil.collector.rounds.results import StoredMap
from mapveil_client.errors import InputError, MissingExtra

_NICE: Final = 5

SUFFIXES: Final = {
    "geotiff": ".tif",
    "geoparquet": ".parquet",
    "geojson": ".geojson",
    "png": ".png",
    "html": ".html",
}
"""Suffix of each format that a map can be downloaded in, by its name in the address."""


class Made(NamedTuple):
    """Outcome of making a file: nothing, or the refusal that whoever asked for it is given."""

    status: int = 0
    message: str = ""
    where: str = ""  # of an internal fault, for the log

    def encode(self) -> bytes:
        """The refusal as the store keeps it."""
        return f"{self.status} {self.message}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote."""
        status, _, message = data.decode().partition(" ")
        return cls(int(status), message)

    @property
    def refusal(self) -> Refusal:
        """The refusal."""
        return Refusal(self.message, status=self.status)


class ExportProcess:
    """One process, started for the first file; :meth:`close` gives its memory back."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def make(self, stored: StoredMap, path: Path) -> Made:
        """Write a map as a file, whose suffix says the format."""
        if self._pipe is None:
            self._pipe = self._start()
        try:
            self._pipe.send((stored, str(path)))
            made: Made = self._pipe.recv()
        except (EOFError, OSError):
            self.close()
            return Made(503, "the process that makes files was ended, perhaps for want of memory")
        return made

    def _start(self) -> Connection:
        spawn = multiprocessing.get_context("spawn")
        own, other = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(other,), name="mapveil-exports", daemon=True)
        self._process.start()
        other.close()
        return own

    def stop(self) -> None:
        """End the process from another thread, whatever it is doing."""
        if self._process is not None:
            self._process.terminate()

    def close(self) -> None:
        """End the process."""
        self.stop()
        if self._process is not None:
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


def _serve(pipe: Connection) -> None:
    """Make files until the other end is closed, as the end of the service's process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the service ends this process
    os.nice(_NICE)
    try:
        while True:
            stored, path = pipe.recv()
            pipe.send(_make(stored, path))
    except (EOFError, OSError):
        return


def _make(stored: StoredMap, path: str) -> Made:
    try:
        stored.decode().save(path)
    except MissingExtra as error:
        return Made(503, str(error))
    except InputError as error:
        return Made(422, str(error))
    except Exception as error:
        told = "the file could not be made; the log of the worker says where"
        return Made(500, told, where_raised(error))
    return Made()
