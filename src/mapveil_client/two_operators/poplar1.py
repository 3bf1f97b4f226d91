r"""Poplar1: one message of about a kilobyte with which two operators count prefixes of a client's path, and no other.

.. math:: \beta_l = (1, k_l), \qquad A = -2 a + k_l, \qquad B = a^2 + b - k_l a + c

where: :math:`\beta_l` is the value at level l of the client's path, :math:`k_l` a random authenticator, and
:math:`(a, b, c)` random numbers of each level, by shares of which the operators check that their shares of the values
of any set of prefixes are zero but for at most one, which is one.

Source: draft-irtf-cfrg-vdaf, section 8.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from mapveil_client.arrays import BoolArray
from mapveil_client.errors import check
from mapveil_client.two_operators.finite_fields import FIELD64, FIELD255, Elements, Field, Octets
from mapveil_client.two_operators.idpf import Tree, correction_bytes, write_corrections
from mapveil_client.two_operators.prio3 import Sharded
from mapveil_client.two_operators.xofs import KEY_BYTES, SEED_BYTES, TurboShakeXof, separation

POPLAR1 = 6
"""Codepoint."""


class Poplar1Usage(IntEnum):
    """Uses of the XOF, by number."""

    SHARDING = 1
    CORRELATION_INNER = 2
    CORRELATION_LEAF = 3
    VERIFICATION = 4


@dataclass(frozen=True)
class Poplar1:
    """An instance: what a client and both operators agree on.

    Parameters
    ----------
    levels : int
        Bits of a path, at least 1.
    context : bytes
        The application, such as the id of a collection.
    """

    levels: int
    context: bytes

    def __post_init__(self) -> None:
        check(1 <= self.levels <= 1 << 16, "levels", "from 1 to 65536", self.levels)

    @property
    def randomness_bytes(self) -> int:
        """Random bytes that a client needs for one report."""
        return 2 * KEY_BYTES + 3 * SEED_BYTES

    @property
    def public_bytes(self) -> int:
        """Bytes of a report's public share."""
        return correction_bytes(self.levels)

    def input_bytes(self, operator: int) -> int:
        """Bytes of a report's input share, the same for both operators."""
        return KEY_BYTES + SEED_BYTES + 2 * (self.levels - 1) * FIELD64.size + 2 * FIELD255.size

    def shard(self, paths: BoolArray, nonces: Octets, randomness: Octets) -> Sharded:
        """Divide paths into messages for the operators. Run by: the client.

        Parameters
        ----------
        paths : ndarray of bool, shape (reports, levels)
            The paths, most significant bit first.
        nonces : ndarray of uint8, shape (reports, 16)
            Public random names of the reports.
        randomness : ndarray of uint8, shape (reports, randomness_bytes)
            Uniform bytes, secret.
        """
        reports, inner = paths.shape[0], self.levels - 1
        shape = (reports, self.randomness_bytes)
        check(randomness.shape == shape, "randomness", f"of shape {shape}", randomness.shape)
        keys, first, second, sharding = np.split(randomness, [32, 64, 96], axis=1)
        stream = self._xof(Poplar1Usage.SHARDING, sharding, [nonces], reports)
        drawn = stream.sequence([(FIELD64, inner), (FIELD255, 1), (FIELD64, 2 * inner), (FIELD255, 2)])
        authenticator, second_share = drawn[:2], drawn[2:]
        one = FIELD64.of(1), FIELD255.of(1)
        values = [
            np.stack([np.broadcast_to(unit, each.shape), each], axis=2)
            for unit, each in zip(one, authenticator, strict=True)
        ]
        tree = Tree(self.levels, self.context, nonces)
        words, tree_keys = tree.generate(paths, values[0], values[1][:, 0], keys)
        shares: list[list[Octets]] = [[tree_keys[0], first], [tree_keys[1], second]]
        for level_field, level_count, key, other in zip(
            (FIELD64, FIELD255), (inner, 1), authenticator, second_share, strict=True
        ):
            triples = [
                self.correlation(operator, seeds, nonces, level_field, level_count)
                for operator, seeds in enumerate((first, second))
            ]
            offset = level_field.add(*triples)
            pair = _masks(level_field, offset, key).reshape(reports, 2 * level_count, level_field.words)
            shares[0].append(level_field.encode(level_field.subtract(pair, other)))
            shares[1].append(level_field.encode(other))
        inputs = tuple(np.concatenate(each, axis=1) for each in shares)
        return Sharded(write_corrections(words), inputs)

    def correlation(
        self, operator: int, seeds: Octets, nonces: Octets, field: Field, levels: int
    ) -> Elements:
        """An operator's shares of (a, b, c) of the first levels, shape (reports, levels, 3, words).

        Run by: the client, and the operator. The last level is a stream of its own, of ``FIELD255``.
        """
        inner = field is FIELD64
        usage = Poplar1Usage.CORRELATION_INNER if inner else Poplar1Usage.CORRELATION_LEAF
        drawn = self._xof(usage, seeds, [bytes([operator]), nonces], seeds.shape[0]).elements(
            field, 3 * levels
        )
        return drawn.reshape(seeds.shape[0], levels, 3, field.words)

    def verification(
        self, verify_key: bytes, nonces: Octets, level: int, field: Field, count: int
    ) -> Elements:
        """Random numbers of a level's prefixes that no client knows. Run by: the operators."""
        binder: list[bytes | Octets] = [nonces, level.to_bytes(2, "big")]
        return self._xof(Poplar1Usage.VERIFICATION, verify_key, binder, nonces.shape[0]).elements(
            field, count
        )

    def _xof(
        self, usage: Poplar1Usage, seeds: Octets | bytes, binder: list[bytes | Octets], reports: int
    ) -> TurboShakeXof:
        return TurboShakeXof(seeds, separation(0, POPLAR1, usage, self.context), binder, reports)


def _masks(field: Field, triples: Elements, key: Elements) -> Elements:
    """A and B of each level, shape (reports, levels, 2, words)."""
    a, b, c = (triples[:, :, i] for i in range(3))
    first = field.subtract(key, field.add(a, a))
    second = field.add(field.multiply(a, field.subtract(a, key)), field.add(b, c))
    return np.stack([first, second], axis=2)
