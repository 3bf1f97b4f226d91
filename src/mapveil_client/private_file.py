"""Files that their owner alone may read, from the moment they exist, and that appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def create_private(path: Path) -> None:
    """Create an empty file that its owner alone may read and write.

    Raises
    ------
    OSError
        It cannot be created; ``FileExistsError`` where there is one.
    """
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


@contextmanager
def new_private_file(path: Path) -> Iterator[Path]:
    """Give an empty file to fill, which appears at ``path`` when the block ends well; its owner alone may read it.

    Of several processes that make one file, exactly one file appears, and the others' are deleted.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        create_private(draft)
        yield draft
        with suppress(FileExistsError):  # another process was first: its file counts
            os.link(draft, path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder last; not every platform can open a folder."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
