"""Files appear whole or not at all: written beside their place, then renamed into it."""

import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from glob import escape
from pathlib import Path

from mapveil_client.errors import InputError, MapveilError

_INPUT_ERRORS = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
_WRITER = re.compile(r"\.[0-9a-f]{8}-([1-9][0-9]*)\.partial")
_pending: ContextVar[list[tuple[Path, Path]] | None] = ContextVar("_pending", default=None)
"""Temporary files and their targets, inside :func:`all_or_none`."""


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a place to write to; rename it to ``path``, replacing a file there, when the block ends well.

    The temporary file lies in the same folder, so that the rename is atomic, and has the same suffix, which some
    writers look at. A link is followed.

    Raises
    ------
    InputError
        The folder does not exist or cannot be written to, or the path is not a plain file.
    MapveilError
        Writing failed, such as on a full disk.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"{path}: there is no folder {target.parent}; make it first")
    if target.exists() and not target.is_file():
        raise InputError(f"{path}: must be the path of a file to write; something else is there")
    _remove_left(target)
    place = target.with_name(f".{target.stem}.{secrets.token_hex(4)}-{os.getpid()}.partial{target.suffix}")
    try:
        # Created here rather than by the writer: a missing permission is seen before any work.
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield place
        pending = _pending.get()
        if pending is None:
            os.replace(place, target)
        else:
            pending.append((place, target))
    except _INPUT_ERRORS as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
    except (OSError, RuntimeError) as error:
        # GDAL's errors are pyogrio's, which is an extra.
        if not isinstance(error, OSError) and type(error).__module__ != "pyogrio.errors":
            raise
        reason = (str(getattr(error, "strerror", None) or error).splitlines() or ["no reason given"])[0]
        raise MapveilError(f"{path}: could not be written ({reason}); nothing is left of it") from error
    finally:
        if (place, target) not in (_pending.get() or ()):
            with suppress(OSError):
                place.unlink()


def _remove_left(target: Path) -> None:
    """Remove what a killed process left of the same target: a file whose name has the id of no running process."""
    if sys.platform == "win32":  # a signal would end a process
        return
    for left in target.parent.glob(f".{escape(target.stem)}.*.partial{escape(target.suffix)}"):
        named = _WRITER.search(left.name)
        if named and not _runs(int(named[1])):
            with suppress(OSError):
                left.unlink()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's; a number that is no process's
        return True
    return True


@contextmanager
def all_or_none() -> Iterator[None]:
    """Rename the files that the block writes with :func:`atomic_path` when the block ends well; else remove them.

    Inside another such block, its end is waited for.
    """
    if _pending.get() is not None:
        yield
        return
    pending: list[tuple[Path, Path]] = []
    token = _pending.set(pending)
    try:
        yield
        for place, target in pending:
            os.replace(place, target)
    except OSError as error:
        named = error.filename2 or error.filename
        raise MapveilError(f"{named}: could not be written ({error.strerror})") from error
    finally:
        _pending.reset(token)
        for place, _ in pending:
            with suppress(OSError):
                place.unlink()


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that :func:`atomic_path` cannot write to: make and remove a file in its folder.

    Raises
    ------
    InputError
        The folder does not exist or cannot be written to, or the path is not a plain file.
    """
    with suppress(_Checked), atomic_path(path):
        raise _Checked


class _Checked(Exception):
    """Ends a block of :func:`atomic_path` before its file is renamed."""
