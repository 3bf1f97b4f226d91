"""The sandbox of commands that choose defaults: they can read no data file but those of the role tune.

Landlock (Linux 5.13 and above) keeps a process, its threads and all that it starts from reading other files than those
named once, whatever library reads them and by whatever path. Code that runs before the call, such as imports, and files
that are open already are not confined.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.data_sets import files_in, sets_of
from mapveil_client.errors import InputError

ROOT: Final = Path(__file__).parents[1]
CODE: Final = tuple(ROOT / name for name in ("src", "benchmarks", "reproductions"))
_FOLDERS: Final = tuple(map(Path, ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/sys")))
_DEVICES: Final = tuple(map(Path, ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")))  # not /dev/shm

# Numbers of system calls are those of every architecture; see landlock(7).
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_READ_FILE: Final = 1 << 2
_BENEATH: Final = 1
_VERSION: Final = 1
_NO_NEW_PRIVILEGES: Final = 38


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def can_confine() -> bool:
    """Whether this system has Landlock."""
    if sys.platform != "linux":
        return False
    version: int = _libc().syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)
    return version > 0


def confine_to_tuning_data(arguments: Sequence[str]) -> None:
    """From here on this process reads code, its temporary files, and data of the role tune in the folders named.

    Parameters
    ----------
    arguments : sequence of str
        Those of the command line; each that is a folder may hold data.

    Raises
    ------
    InputError
        The system has no Landlock, or a folder named lies where every file can be read.
    """
    if not can_confine():
        raise InputError(
            "choosing defaults needs Landlock (Linux 5.13 or above), which hides data of the role test"
        )
    libraries = {Path(each) for each in (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())}
    open_to_all = (*_FOLDERS, *libraries, *CODE)
    for folder in filter(Path.is_dir, map(Path.expanduser, map(Path, arguments))):
        inside = (each for each in open_to_all if folder.resolve().is_relative_to(each.resolve()))
        if (around := next(inside, None)) is not None:
            raise InputError(f"{folder}: lies in {around}, all of which this command can read; move the data")
    # A new folder: nothing was copied into it before.
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="mapveil-tuning-")
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)
    allowed = [*open_to_all, *_DEVICES, Path(tempfile.tempdir), *tuning_files(arguments)]
    libc, rules = _libc(), _Ruleset(_READ_FILE)
    ruleset = _checked(libc.syscall(_CREATE, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), 0))
    for path in filter(Path.exists, allowed):
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = _Beneath(_READ_FILE, opened)
        _checked(libc.syscall(_ADD, ruleset, _BENEATH, ctypes.byref(rule), 0))
        os.close(opened)
    _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(libc.syscall(_RESTRICT, ruleset, 0))
    os.close(ruleset)


def tuning_files(arguments: Sequence[str]) -> Iterator[Path]:
    """The files in the folders named all of whose data sets have the role tune; links, which may lead anywhere, not."""
    for folder in (Path(each).expanduser() for each in arguments):
        if folder.is_dir():
            yield from (
                path
                for path in files_in(folder)
                if not path.is_symlink() and all(each.role == "tune" for each in sets_of(path))
            )


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock")
    return result
