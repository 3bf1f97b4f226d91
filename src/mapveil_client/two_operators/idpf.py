r"""Incremental distributed point functions: two short keys for the values along one path of a binary tree.

.. math:: \mathrm{Eval}(k_0, x) + \mathrm{Eval}(k_1, x) = \begin{cases} \beta_{|x|} & x \text{ is a prefix of }
    \alpha \\ 0 & \text{otherwise} \end{cases}

where: :math:`k_0, k_1` are the keys, :math:`\alpha` is the path and :math:`\beta` its value at each level. A node is a
seed of 16 bytes and a control bit; on the path the operators' seeds differ and one of them holds the bit, elsewhere
they are equal. One correction word for each level, which is public, keeps it so.

Source: draft-irtf-cfrg-vdaf, section 8.3; Boneh, Boyle, Corrigan-Gibbs, Gilboa, Ishai, "Lightweight Techniques for
Private Heavy Hitters" (2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import CipherContext

from mapveil_client.arrays import BoolArray
from mapveil_client.errors import check
from mapveil_client.two_operators.finite_fields import FIELD64, FIELD255, Elements, Field, Octets
from mapveil_client.two_operators.xofs import (
    KEY_BYTES,
    TurboShakeXof,
    drawn_elements,
    fixed_key_stream,
    fixed_keys,
    separation,
)

VALUES: Final = 2
"""Elements of a value."""

Seeds = npt.NDArray[np.uint8]
"""Seeds of nodes, shape (reports, nodes, 16)."""


class Corrections(NamedTuple):
    """The correction words of reports."""

    control: BoolArray  # shape (reports, levels, 2)
    seeds: Seeds  # shape (reports, levels, 16)
    inner: Elements  # values of all levels but the last, shape (reports, levels - 1, VALUES, 1)
    leaf: Elements  # shape (reports, VALUES, 4)


@dataclass(frozen=True)
class Tree:
    """The tree of reports: its levels, and the hashes that derive its nodes.

    Parameters
    ----------
    levels : int
        Bits of a path.
    context : bytes
        The application.
    nonces : ndarray of uint8, shape (reports, 16)
        Public random names of the reports.
    """

    levels: int
    context: bytes
    nonces: Octets

    def field(self, level: int) -> Field:
        """The field of a level's values."""
        return FIELD64 if level < self.levels - 1 else FIELD255

    @cached_property
    def _keys(self) -> tuple[list[CipherContext], list[CipherContext]]:
        extending, converting = (fixed_keys(self._tag(usage), self.nonces) for usage in (0, 1))
        return extending, converting

    def _tag(self, usage: int) -> bytes:
        return separation(1, 0, usage, self.context)

    def _leaf_xof(self, usage: int, seeds: Seeds) -> TurboShakeXof:
        nonces = np.repeat(self.nonces, seeds.shape[1], axis=0)
        flat = seeds.reshape(-1, KEY_BYTES)
        return TurboShakeXof(flat, self._tag(usage), [nonces], flat.shape[0])

    def extend(self, level: int, seeds: Seeds) -> tuple[Seeds, BoolArray]:
        """Both children's seeds, shape (reports, nodes, 2, 16), and control bits, shape (reports, nodes, 2)."""
        if level < self.levels - 1:
            stream = fixed_key_stream(self._keys[0], seeds, 2)
        else:
            stream = self._leaf_xof(0, seeds).octets(2 * KEY_BYTES)
        children = np.array(stream).reshape(*seeds.shape[:2], 2, KEY_BYTES)
        control = (children[..., 0] & 1).astype(np.bool_)
        children[..., 0] &= 0xFE
        return children, control

    def next_seeds(self, level: int, seeds: Seeds) -> Seeds:
        """The seeds of nodes that are walked through, without their values."""
        if level < self.levels - 1:
            return fixed_key_stream(self._keys[1], seeds, 1)
        return self._leaf_xof(1, seeds).octets(KEY_BYTES).reshape(seeds.shape)

    def convert(self, level: int, seeds: Seeds) -> tuple[Seeds, Elements]:
        """The seeds of nodes, and their values before correction, shape (reports, nodes, VALUES, words)."""
        field, shape = self.field(level), seeds.shape[:2]
        if level == self.levels - 1:
            xof = self._leaf_xof(1, seeds)
            (values,) = xof.sequence([(field, VALUES)], skip=KEY_BYTES)
            return self.next_seeds(level, seeds), values.reshape(*shape, VALUES, field.words)
        blocks = 1 + VALUES * field.size // KEY_BYTES
        stream = fixed_key_stream(self._keys[1], seeds, blocks)
        flat = stream.reshape(-1, KEY_BYTES * blocks)

        def longer(row: int, size: int) -> bytes:
            report, node = divmod(row, shape[1])
            key, seed = self._keys[1][report : report + 1], seeds[report : report + 1, node : node + 1]
            made = fixed_key_stream(key, seed, 1 + -(-size // KEY_BYTES))
            return made.tobytes()[KEY_BYTES : KEY_BYTES + size]

        (values,) = drawn_elements([(field, VALUES)], flat[:, KEY_BYTES:], longer)
        return stream[..., :KEY_BYTES], values.reshape(*shape, VALUES, field.words)

    def generate(
        self, paths: BoolArray, inner: Elements, leaf: Elements, randomness: Octets
    ) -> tuple[Corrections, tuple[Octets, Octets]]:
        """Correction words, and both keys. Run by: the client.

        Parameters
        ----------
        paths : ndarray of bool, shape (reports, levels)
            The paths.
        inner : Elements, shape (reports, levels - 1, VALUES, 1)
            Values of all levels but the last.
        leaf : Elements, shape (reports, VALUES, 4)
            Values of the last level.
        randomness : ndarray of uint8, shape (reports, 32)
            Uniform bytes, secret: the keys.
        """
        reports = paths.shape[0]
        check(paths.shape == (reports, self.levels), "paths", f"of {self.levels} bits", paths.shape)
        keys = randomness[:, :KEY_BYTES], randomness[:, KEY_BYTES:]
        seeds = np.stack(keys, axis=1)  # (reports, operators, 16)
        control = np.broadcast_to(np.array([False, True]), (reports, 2))
        words: list[tuple[BoolArray, Seeds, Elements]] = []
        row = np.arange(reports)
        for level in range(self.levels):
            bit = paths[:, level]
            keep = bit.astype(np.int64)
            children, bits = self.extend(level, seeds)
            lost = children[row, :, 1 - keep]
            seed = lost[:, 0] ^ lost[:, 1]
            correct = bits[:, 0] ^ bits[:, 1] ^ np.stack([~bit, bit], axis=1)
            kept = children[row, :, keep] ^ np.where(control[..., None], seed[:, None], np.uint8(0))
            control = bits[row, :, keep] ^ (control & correct[row, keep][:, None])
            seeds, values = self.convert(level, kept)
            field = self.field(level)
            wanted = inner[:, level] if level < self.levels - 1 else leaf
            value = field.add(field.subtract(wanted, values[:, 0]), values[:, 1])
            value = np.where(control[:, 1, None, None], field.negative(value), value)
            words.append((correct, seed, value))
        corrections = Corrections(
            np.stack([each[0] for each in words], axis=1),
            np.stack([each[1] for each in words], axis=1),
            np.stack([FIELD64.zeros(reports, VALUES), *(each[2] for each in words[:-1])], axis=1)[:, 1:],
            words[-1][2],
        )
        return corrections, keys


def correction_bytes(levels: int) -> int:
    """Bytes of the correction words."""
    inner = (levels - 1) * VALUES * FIELD64.size
    return -(-2 * levels // 8) + KEY_BYTES * levels + inner + VALUES * FIELD255.size


def write_corrections(words: Corrections) -> Octets:
    """The correction words as bytes: control bits, seeds, values. Run by: the client."""
    reports = words.control.shape[0]
    bits = np.packbits(words.control.reshape(reports, -1), axis=1, bitorder="little")
    inner = FIELD64.encode(words.inner.reshape(reports, -1, 1))
    return np.concatenate(
        [bits, words.seeds.reshape(reports, -1), inner, FIELD255.encode(words.leaf)], axis=1
    )


def read_corrections(octets: Octets, levels: int) -> tuple[Corrections, BoolArray]:
    """Correction words of bytes, and which reports have well-formed ones. Run by: the operators."""
    reports, packed = octets.shape[0], -(-2 * levels // 8)
    ends = np.cumsum([packed, KEY_BYTES * levels, (levels - 1) * VALUES * FIELD64.size])
    bits, seeds, inner, leaf = np.split(octets, ends, axis=1)
    unpacked = np.unpackbits(bits, axis=1, bitorder="little")
    inner_values, good = FIELD64.decode(inner)
    leaf_values, reduced = FIELD255.decode(leaf)
    good &= reduced & ~unpacked[:, 2 * levels :].any(axis=1)
    control = unpacked[:, : 2 * levels].reshape(reports, levels, 2).astype(np.bool_)
    shaped = inner_values.reshape(reports, levels - 1, VALUES, 1)
    return Corrections(control, seeds.reshape(reports, levels, KEY_BYTES), shaped, leaf_values), good
