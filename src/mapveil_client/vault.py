r"""A device's file: sealed under a key that the caller gives, replaced whole or not at all.

.. math:: \text{"mapveil vault 1\\n"} \,\|\, n \,\|\, \operatorname{AES-256-GCM}_k(n, \text{content})

where: n are 12 random bytes, drawn for each writing, k is the key, and the text before n is authenticated with the
content. A file that cannot be opened is an error and never a reason to begin anew: a second draw of a device's
frequencies, or an account that begins at zero, would break the promise of the first.

An older copy put back is not noticed: keep the folder out of backups that are restored.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mapveil_client.errors import InputError, MapveilError, Secret

KEY_BYTES: Final = 32
_MAGIC: Final = b"mapveil vault 1\n"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


class Vault(Secret):
    """One sealed file.

    Parameters
    ----------
    path : path-like
        In an existing folder.
    key : bytes
        32 uniform bytes, kept where the platform keeps keys.

    Raises
    ------
    InputError
        The key has another length.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     vault = Vault(f"{folder}/device.vault", bytes(32))
    ...     missing = vault.read()
    ...     vault.write(b"secret")
    ...     missing, vault.read()
    (None, b'secret')
    """

    def __init__(self, path: str | os.PathLike[str], key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise InputError(f"the key of a device's vault has {len(key)} bytes; expected {KEY_BYTES}")
        self.path = Path(path)
        self._key = key

    def read(self) -> bytes | None:
        """The content; None where there is no file yet.

        Raises
        ------
        InputError
            It cannot be read or opened: another key, a damaged file, or no vault.
        """
        try:
            sealed = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror or error})") from error
        body = sealed[len(_MAGIC) :]
        if not sealed.startswith(_MAGIC) or len(body) < _NONCE_BYTES + _TAG_BYTES:
            raise InputError(
                f"{self.path}: is no whole vault of a device; nothing is begun anew and nothing sent"
            )
        try:
            return AESGCM(self._key).decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], _MAGIC)
        except InvalidTag:
            raise InputError(
                f"{self.path}: does not open: another key, or a damaged file; nothing is begun anew and nothing sent"
            ) from None

    def write(self, content: bytes) -> None:
        """Replace the content; it is on the disk when this returns.

        Raises
        ------
        MapveilError
            Writing failed; what was there before still is.
        """
        nonce = os.urandom(_NONCE_BYTES)
        sealed = _MAGIC + nonce + AESGCM(self._key).encrypt(nonce, content, _MAGIC)
        place = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.partial")
        try:
            with os.fdopen(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(sealed)
                file.flush()
                os.fsync(file.fileno())
            os.replace(place, self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise MapveilError(
                f"{self.path}: could not be written ({error.strerror or error}); nothing is sent"
            ) from error
        finally:
            with suppress(OSError):
                place.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"Vault({self.path})"


def _sync_folder(folder: Path) -> None:
    """Make a renaming last; not every platform can open a folder."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
    place = Path(folder) / ".lock"
    try:
        descriptor = os.open(place, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be used ({error.strerror or error}); expected a folder"
        ) from error
    try:
        if os.name == "posix":
            import fcntl

            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{folder}: is in use by another process; expected one at a time") from None
        yield
    finally:
        os.close(descriptor)
