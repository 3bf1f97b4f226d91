r"""A device's file: sealed under a key that the caller gives, replaced whole or not at all, open once at a time.

.. math:: \text{"mapveil vault 2\\n"} \,\|\, n \,\|\, \operatorname{AES-256-GCM}_k(n, g \,\|\, \text{content})

where: n are 12 random bytes, drawn for each writing, k is the key, g the generation in 8 bytes, most significant first,
and the text before n is authenticated with the content. A file that cannot be opened is an error and never a reason to
begin anew: a second draw of a device's frequencies, or an account that begins at zero, would break the promise of the
first.

Opening takes a lock and counts the generation up, as every writing does: a second handle is refused, and a handle whose
file was replaced writes nothing. A copy that is opened elsewhere, or an older one put back, is noticed only where a
:class:`MonotonicCounter` counts with it: without one, keep the folder out of backups that are restored.
"""

import os
import secrets
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mapveil_client.errors import InputError, MapveilError, Secret
from mapveil_client.private_file import create_private, sync_folder

KEY_BYTES: Final = 32
_MAGIC: Final = b"mapveil vault 2\n"
_OLDER: Final = b"mapveil vault 1\n"  # its content had no generation before it
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_GENERATION_BYTES: Final = 8


class MonotonicCounter(Protocol):
    """A counter that nobody can set back, such as that of a phone's secure element; one for each vault."""

    def value(self) -> int:
        """The number of increments ever, 0 at first."""

    def increment(self) -> None:
        """Count one up; it lasts when this returns."""


class Vault(Secret):
    """One sealed file.

    Parameters
    ----------
    path : path-like
        In an existing folder.
    key : bytes
        32 uniform bytes, kept where the platform keeps keys.
    counter : MonotonicCounter, optional
        Counts the generations: an older copy, or a file that is gone, is refused.
    held : bool
        Whether the caller holds the whole folder, see :func:`locked`, so that the file needs no lock of its own.

    Raises
    ------
    InputError
        The key has another length.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     vault = Vault(f"{folder}/device.vault", bytes(32))
    ...     missing = vault.open()
    ...     vault.write(b"secret")
    ...     vault.close()
    ...     missing, vault.open()
    (None, b'secret')
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        key: bytes,
        *,
        counter: MonotonicCounter | None = None,
        held: bool = False,
    ) -> None:
        if len(key) != KEY_BYTES:
            raise InputError(f"the key of a device's vault has {len(key)} bytes; expected {KEY_BYTES}")
        self.path = Path(path)
        self._key, self._counter, self._held = key, counter, held
        self._generation: int | None = None  # as this handle wrote it; None while it is closed
        self._process = 0  # that opened it
        self._lock: weakref.finalize[[int], Vault] | None = None

    def open(self) -> bytes | None:
        """Take the file for this handle alone; its content, None where there is no file yet.

        Raises
        ------
        InputError
            Another handle has it; it cannot be read or opened: another key, a damaged file, or no vault; or the counter
            says that it is an older copy, or was deleted.
        """
        if self._generation is not None:
            raise InputError(f"{self.path}: is open already; expected one handle at a time")
        self._process = os.getpid()
        if not self._held:
            descriptor = _take(self.path.with_name(f".{self.path.name}.lock"), self.path)
            self._lock = weakref.finalize(self, os.close, descriptor)
        try:
            found = self._read()
            counted = self._counted(None if found is None else found[0])
            self._generation = counted if found is None else found[0]
            if found is None:
                return None
            self.write(found[1])
        except BaseException:
            self.close()
            raise
        return found[1]

    def close(self) -> None:
        """Leave the file to the next handle; this one writes no more."""
        self._generation = None
        if self._lock is not None:
            self._lock()
            self._lock = None

    def _counted(self, generation: int | None) -> int:
        """The counter's value, one behind at most: a process may have ended between a writing and its count."""
        if self._counter is None:
            return generation or 0
        counted = self._counter.value()
        if generation is None and counted:
            raise InputError(
                f"{self.path}: is gone, and its counter stands at {counted}; nothing is begun anew"
            )
        if generation == counted + 1:
            self._counter.increment()
        elif generation is not None and generation != counted:
            raise InputError(
                f"{self.path}: is a copy of generation {generation}, and its counter stands at {counted}; "
                "nothing is begun anew and nothing sent"
            )
        return counted

    def _read(self) -> tuple[int, bytes] | None:
        """The generation and the content; None where there is no file yet."""
        try:
            sealed = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror or error})") from error
        if sealed.startswith(_OLDER):
            raise InputError(
                f"{self.path}: is a vault of layout 1; this Mapveil opens layout 2 only, so nothing is begun anew and "
                "nothing sent; use the Mapveil that wrote it"
            )
        body = sealed[len(_MAGIC) :]
        if not sealed.startswith(_MAGIC) or len(body) < _NONCE_BYTES + _GENERATION_BYTES + _TAG_BYTES:
            raise InputError(
                f"{self.path}: is no whole vault of a device; nothing is begun anew and nothing sent"
            )
        try:
            plain = AESGCM(self._key).decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], _MAGIC)
        except InvalidTag:
            raise InputError(
                f"{self.path}: does not open: another key, or a damaged file; nothing is begun anew and nothing sent"
            ) from None
        return int.from_bytes(plain[:_GENERATION_BYTES], "big"), plain[_GENERATION_BYTES:]

    def write(self, content: bytes) -> None:
        """Replace the content, in the next generation; it is on the disk when this returns.

        Raises
        ------
        InputError
            This handle is not open, or the file is no longer the one that it wrote.
        MapveilError
            Writing failed; what was there before still is.
        """
        if self._generation is None:
            raise InputError(f"{self.path}: is not open in this handle; nothing is sent")
        if os.getpid() != self._process:  # a fork inherits the handle and its lock
            raise InputError(f"{self.path}: is open in another process; nothing is sent")
        found = self._read()
        if (0 if found is None else found[0]) != self._generation:
            raise InputError(
                f"{self.path}: was replaced meanwhile, such as by an older copy; nothing is sent"
            )
        nonce, generation = os.urandom(_NONCE_BYTES), self._generation + 1
        plain = generation.to_bytes(_GENERATION_BYTES, "big") + content
        sealed = _MAGIC + nonce + AESGCM(self._key).encrypt(nonce, plain, _MAGIC)
        place = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.partial")
        try:
            create_private(place)
            with place.open("wb") as file:
                file.write(sealed)
                file.flush()
                os.fsync(file.fileno())
            os.replace(place, self.path)
            self._generation = generation
            sync_folder(self.path.parent)
        except OSError as error:
            raise MapveilError(
                f"{self.path}: could not be written ({error.strerror or error}); nothing is sent"
            ) from error
        finally:
            with suppress(OSError):
                place.unlink(missing_ok=True)
        while self._counter is not None and self._counter.value() < generation:
            self._counter.increment()

    def __repr__(self) -> str:
        return f"Vault({self.path})"


def read_key(path: str | os.PathLike[str]) -> bytes:
    """Read a key file: 64 hexadecimal digits, or 32 bytes as they are.

    Raises
    ------
    InputError
        It cannot be read, or holds something else.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(content) == KEY_BYTES:
        return content
    with suppress(ValueError, UnicodeDecodeError):
        key = bytes.fromhex(content.decode("ascii").strip())
        if len(key) == KEY_BYTES:
            return key
    raise InputError(f"{path}: is no key; expected 64 hexadecimal digits, or {KEY_BYTES} random bytes")


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a folder of vaults alone: two processes would spend the same budget twice.

    Raises
    ------
    InputError
        Another process holds it, or there is no such folder.
    """
    descriptor = _take(Path(folder) / ".lock", Path(folder))
    try:
        yield
    finally:
        os.close(descriptor)


def _take(place: Path, what: Path) -> int:
    """Lock a file for this process and handle alone; the lock ends with the descriptor, however the process ends."""
    try:
        descriptor = os.open(place, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise InputError(f"{what}: cannot be used ({error.strerror or error}); expected a folder") from error
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InputError(f"{what}: is in use by another process or handle; expected one at a time") from None
    return descriptor
