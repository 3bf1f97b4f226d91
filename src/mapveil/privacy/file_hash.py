"""The hash of a released file, which signatures and the ledger's lines state: of a CSV with the metadata beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Final

CSV_METADATA_SUFFIX: Final = "-metadata.json"
"""Suffix of the file beside a CSV that holds its metadata, as "CSV on the Web" has it."""

_AT_ONCE: Final = 1 << 20  # bytes


def files_written(path: Path) -> tuple[Path, ...]:
    """The files that an output writes: of a CSV its metadata too."""
    return (path, Path(f"{path}{CSV_METADATA_SUFFIX}")) if path.suffix.lower() == ".csv" else (path,)


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, hexadecimal; of a CSV and its metadata, each after its length (8 bytes).

    Raises
    ------
    OSError
        A file cannot be read.
    """
    found, parts = hashlib.sha256(), files_written(path)
    for part in parts:
        if len(parts) > 1:
            found.update(part.stat().st_size.to_bytes(8, "big"))
        with part.open("rb") as opened:
            while piece := opened.read(_AT_ONCE):
                found.update(piece)
    return found.hexdigest()


def hashes_of(outputs: Sequence[str | PathLike[str]]) -> dict[str, list[str]]:
    """The hashes of outputs by their names without folders; none of what is no file, such as standard output."""
    made: dict[str, list[str]] = {}
    for output in map(Path, outputs):
        held = made.setdefault(output.name, [])
        if all(part.is_file() for part in files_written(output)):
            held.append(file_hash(output))
    return made
