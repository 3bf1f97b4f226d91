"""The file of an Ed25519 key that signs the heads of chains, or an enrolment authority's certificates."""

import os
import secrets
from pathlib import Path

from mapveil_client.errors import InputError
from mapveil_client.private_file import new_private_file
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.vault import KEY_BYTES, read_key


def signing_key(path: Path, *, make: bool = False) -> Identity | None:
    """Read a signing key: 64 hexadecimal digits in a file that its owner alone may read; None where there is no file.

    ``make`` draws a missing key and writes its file; of several processes that do so, one key counts.

    Raises
    ------
    InputError
        Others may read the file, it holds no key, or it cannot be written.
    """
    try:
        if make and not path.exists():
            with new_private_file(path) as draft, draft.open("w") as file:
                file.write(secrets.token_hex(KEY_BYTES) + "\n")
                file.flush()
                os.fsync(file.fileno())
        if not path.exists():
            return None
        if not path.is_file():
            raise InputError(f"{path}: it is no file of a signing key")
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise InputError(
                f"{path}: the signing key must be readable by its owner only; run chmod 600 {path}"
            )
    except OSError as error:
        raise InputError(f"{path}: no signing key can be kept here ({error.strerror or error})") from error
    return Identity(read_key(path))
