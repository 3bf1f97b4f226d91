"""Files of finished maps, each made once: in a folder, or wherever fsspec reaches, such as ``s3://bucket/exports``."""

import contextlib
import importlib
import os
import secrets
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Final

from mapveil.collector.refusals import StoreUnavailable
from mapveil_client.errors import InputError
from mapveil_client.private_file import new_private_file

MOST_BYTES: Final = 4 << 30
"""Files kept in a folder, together; one can be made again."""

_CHUNK: Final = 1 << 20
_PLACE: Final = ".place"  # the file that holds the folder's name in the queue of work
_DRAFT_SECONDS: Final = 3600.0  # until a draft counts as left behind by a process that ended


class ExportFiles:
    """Files that workers make and every process of a service reads.

    Parameters
    ----------
    where : str, optional
        A folder, which only processes of one machine share, or an URL of fsspec. By default a folder of this process.
    most : int
        Bytes kept in a folder; the files used longest ago are deleted. An URL is never tidied: its bucket may be.

    Raises
    ------
    InputError
        fsspec is not installed, or does not know the URL.
    """

    def __init__(self, where: str | None = None, most: int = MOST_BYTES) -> None:
        self._where, self._most = where, most
        self._remote: Any = None
        if where is not None and "://" in where:
            try:
                self._remote, self._root = importlib.import_module("fsspec").core.url_to_fs(where)
            except (ImportError, ValueError) as error:
                scheme = where.partition("://")[0]
                raise InputError(
                    f"exports at {scheme}:// need fsspec and its package for {scheme} ({error}); expected a folder "
                    "or an URL of an installed one"
                ) from None

    @cached_property
    def _folder(self) -> Path:
        if self._where is None:
            made = tempfile.mkdtemp(prefix="mapveil-exports-")
            weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
            return Path(made)
        folder = Path(self._where).absolute()
        folder.mkdir(mode=0o700, exist_ok=True)  # none above it: that may be a mistyped one
        return folder

    @cached_property
    def place(self) -> str:
        """The place as the queue of work names it: equal for all processes that see the same files.

        A folder is named by a file in it, for containers and machines mount one folder under their own names.
        """
        if self._remote is not None:
            return str(self._where)
        with _reaching():
            named = self._folder / _PLACE
            if not named.exists():
                with new_private_file(named) as draft:
                    draft.write_text(secrets.token_hex(16), encoding="ascii")
                    draft.chmod(0o644)  # no secret, and processes of another user may share the folder
            return named.read_text(encoding="ascii")

    def check(self) -> None:
        """Refuse a folder that cannot be made or written.

        Raises
        ------
        InputError
            It cannot.
        """
        if self._where is None or self._remote is not None:
            return
        try:
            with _reaching(), tempfile.TemporaryFile(dir=self._folder):
                assert self.place
        except (StoreUnavailable, FileNotFoundError) as error:
            reason = getattr(error.__cause__ or error, "strerror", "")
            raise InputError(
                f"{self._where}: files of maps cannot be kept there ({reason}); expected for exports (--exports) a "
                "folder that the service may write, or can make in one that is there"
            ) from None

    def size(self, name: str) -> int | None:
        """Bytes of a file; None where it is not there."""
        with _reaching(), contextlib.suppress(FileNotFoundError):
            if self._remote is not None:
                return int(self._remote.info(self._path(name))["size"])
            os.utime(self._folder / name)  # it is used now
            return (self._folder / name).stat().st_size
        return None

    def read(self, name: str) -> Iterator[bytes]:
        """The content of a file, in chunks."""
        with _reaching(), self._open(name) as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def keep(self, name: str, made: Path) -> None:
        """Keep a file that was made, whole or not at all, whoever else keeps it at the same time."""
        draft = f".{name}.{secrets.token_hex(8)}"
        with _reaching(missing=True):
            if self._remote is not None:
                self._remote.makedirs(self._root, exist_ok=True)
                self._remote.put_file(str(made), self._path(draft))
                self._remote.mv(self._path(draft), self._path(name))
                return
            part = self._folder / draft
            try:
                shutil.copyfile(made, part)
                part.replace(self._folder / name)
            finally:
                part.unlink(missing_ok=True)
            self._tidy(name)

    def _open(self, name: str) -> IO[bytes]:
        if self._remote is not None:
            opened: IO[bytes] = self._remote.open(self._path(name), "rb")
            return opened
        return (self._folder / name).open("rb")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _tidy(self, newest: str) -> None:
        """Delete the files used longest ago, but for the newest, until the others are few enough bytes."""
        found = []
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another worker deleted it
                about = path.stat()
                draft = path.name.startswith(".") and time.time() - about.st_mtime < _DRAFT_SECONDS
                if path.name not in (newest, _PLACE) and not draft:
                    found.append((path, about))
        left = self._most - (self._folder / newest).stat().st_size
        for path, about in sorted(found, key=lambda each: each[1].st_mtime_ns, reverse=True):
            left -= about.st_size
            if left < 0:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _reaching(*, missing: bool = False) -> Iterator[None]:
    """Tell storage that fails from a request that is wrong; so does storage where what is ``missing`` must be there."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not missing:
            raise
        raise StoreUnavailable("the place of exported files cannot be read or written now") from error
