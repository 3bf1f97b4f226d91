"""A device's frequencies, and its offset: drawn once, kept, and never drawn again.

A second, independent set for the same place would narrow it down as a second feature does, so the store is where
privacy lives: it draws once for the policy's largest number of features, and later queries take the first of those.

The offset moves all places of the device by the same few metres before they become phases. Exact phases tell any two
known addresses apart; phases of places moved by an unknown offset do not tell neighbours apart, and because it is kept,
asking again does not average it away.
"""

from __future__ import annotations

import math
import os
import secrets
import struct
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mapveil.random_features.kernels import Kernel, kernel_named
from mapveil.random_features.policy import Policy
from mapveil.random_features.variates import normals
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, ParameterError, PromiseError
from mapveil_client.randomness.random import Randomness, as_randomness

_MAGIC: Final = b"mapveil frequencies 1\n"
_HEAD: Final = struct.Struct("<16sHHB")  # kernel, features, dimension, spent


def unit_frequencies(
    devices: int, features: int, kernel: Kernel, dimension: int, rng: Randomness
) -> FloatArray:
    """Draw frequencies for bandwidth 1 for many devices at once. Run by: each client, or a simulation of them.

    Parameters
    ----------
    devices, features : int
        How many.
    kernel : Kernel
        Whose spectral law.
    dimension : int
        Number of axes.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of float64, shape (dimension, devices, features)
        Radians per bandwidth.
    """
    drawn = kernel.frequencies(devices * features, dimension, rng)
    return drawn.reshape(dimension, devices, features)


def offsets(devices: int, dimension: int, jitter_m: float, rng: Randomness) -> FloatArray:
    """Draw each device's offset: normal along x and y, none in time. Run by: each client, or a simulation of them.

    Parameters
    ----------
    devices, dimension : int
        How many devices and axes.
    jitter_m : float
        Standard deviation along each axis, metres.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of float64, shape (dimension, devices)
    """
    made = np.zeros((dimension, devices))
    if jitter_m:
        made[:2] = jitter_m * normals(made[:2].size, rng).reshape(made[:2].shape)
    return made


class Kept(NamedTuple):
    """What a device draws once. Secret."""

    units: FloatArray  # frequencies for bandwidth 1, (dimension, 1, features)
    offset: FloatArray  # (dimension, 1), metres


class FrequencyStore:
    """The file of a real device's frequencies. Run by: the client.

    The file is secret: with it, every answer of the device past and future is a set of known waves. It is written whole
    or not at all, readable by its owner only, and never overwritten by a second draw; a damaged one is an error, not
    a reason to draw again.

    Parameters
    ----------
    path : path-like
        Where they are kept; in an existing folder.
    policy : Policy
        The device's; its kernel, axes and largest number of features fix what is drawn.
    jitter_m : float
        Standard deviation of the device's offset, metres.
    one_shot : bool
        Answer one query only: the frequencies are discarded, on the disk too, before the answer leaves.
    rng : Randomness, optional
        For tests; the operating system's by default.

    Raises
    ------
    InputError
        The file cannot be read or written, is damaged, or was made under another policy.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        policy: Policy,
        *,
        jitter_m: float = 0.0,
        one_shot: bool = False,
        rng: Randomness | None = None,
    ) -> None:
        if not 0 <= jitter_m < math.inf:
            raise ParameterError(f"jitter_m is {jitter_m!r}; a number of metres from 0 is accepted")
        self._path, self._policy, self._one_shot = Path(path), policy, one_shot
        if not self._path.exists():
            stream, law = as_randomness(rng), kernel_named(policy.kernel)
            units = unit_frequencies(1, policy.features, law, policy.dimension, stream)
            self._write(Kept(units, offsets(1, policy.dimension, jitter_m, stream)), first=True)
        # Read back in any case: another process may have been first.
        self._kept = self._read()

    def take(self, features: int) -> Kept:
        """The first ``features`` frequencies, and the offset.

        Raises
        ------
        PromiseError
            They were discarded after an answer in one-shot mode: there is no second one.
        """
        if self._kept is None:
            raise PromiseError("this device answers once, and has answered: its frequencies are discarded")
        if not 1 <= features <= self._policy.features:
            raise PromiseError(f"{features} frequencies are asked; this device has {self._policy.features}")
        taken = Kept(self._kept.units[:, :, :features].copy(), self._kept.offset.copy())
        if self._one_shot:
            self._kept = None
            self._write(None)
        return taken

    def __repr__(self) -> str:
        state = "discarded" if self._kept is None else "kept"
        return f"FrequencyStore({self._policy.kernel}, {self._policy.features} features, {state})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a FrequencyStore holds secret frequencies and cannot be pickled or copied")

    def _head(self, spent: bool) -> bytes:
        policy = self._policy
        return _HEAD.pack(policy.kernel.encode(), policy.features, policy.dimension, spent)

    def _write(self, kept: Kept | None, *, first: bool = False) -> None:
        body = (
            b"" if kept is None else np.concatenate([part.ravel() for part in kept]).astype("<f8").tobytes()
        )
        content = _MAGIC + self._head(kept is None) + body
        place = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.partial")
        try:
            with os.fdopen(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if first:
                self._place_unless_there(place)
            else:
                # Zeros first, so that the old content does not stay where the disk had it.
                self._path.write_bytes(bytes(self._path.stat().st_size))
                os.replace(place, self._path)
        except OSError as error:
            raise InputError(
                f"{self._path}: frequencies cannot be kept ({error.strerror or error}); nothing is answered"
            ) from error
        finally:
            place.unlink(missing_ok=True)

    def _place_unless_there(self, place: Path) -> None:
        try:
            os.link(place, self._path)  # unlike a rename it never replaces what another process wrote
        except FileExistsError:
            return

    def _read(self) -> Kept | None:
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise InputError(f"{self._path}: frequencies cannot be read ({error.strerror})") from error
        head, policy = len(_MAGIC), self._policy
        if not content.startswith(_MAGIC) or len(content) < head + _HEAD.size:
            raise InputError(
                f"{self._path}: is no whole file of frequencies; it is not drawn again: nothing is answered"
            )
        known = content[head : head + _HEAD.size]
        body = content[head + _HEAD.size :]
        if known == self._head(True) and not body:
            return None
        if known != self._head(False):
            raise InputError(f"{self._path}: was drawn under another policy; that one is accepted")
        numbers = np.frombuffer(body, dtype="<f8") if len(body) % 8 == 0 else np.zeros(0)
        drawn = policy.features * policy.dimension
        if numbers.size != drawn + policy.dimension or not bool(np.isfinite(numbers).all()):
            raise InputError(f"{self._path}: is damaged; it is not drawn again: nothing is answered")
        numbers = numbers.astype(np.float64)
        return Kept(
            numbers[:drawn].reshape(policy.dimension, 1, policy.features),
            numbers[drawn:].reshape(policy.dimension, 1),
        )
