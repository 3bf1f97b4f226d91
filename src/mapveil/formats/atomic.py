"""Files appear whole or not at all: written beside their place, then renamed into it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mapveil_client.errors import InputError, MapveilError

_INPUT_ERRORS = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


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
    place = target.with_name(f".{target.stem}.{secrets.token_hex(4)}.partial{target.suffix}")
    try:
        # Created here rather than by the writer: a missing permission is seen before any work.
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield place
        os.replace(place, target)
    except _INPUT_ERRORS as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
    except OSError as error:
        reason = str(error.strerror or error).splitlines()[0]
        raise MapveilError(f"{path}: could not be written ({reason}); nothing is left of it") from error
    finally:
        with suppress(OSError):
            place.unlink()
