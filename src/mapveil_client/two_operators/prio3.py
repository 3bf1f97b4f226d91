r"""Prio3: one message of secret shares and a proof that the measurement is valid, for two operators or more.

.. math:: x = \sum_{j} x_j, \qquad x_0 = x - \sum_{j \ge 1} \mathrm{XOF}(s_j), \qquad
    \pi = (w_1, \dots, w_a,\; G(\omega^0), \dots, G(\omega^{d (p - 1)}))

where: :math:`x` is the encoded measurement and :math:`x_j` its shares, of which all but the leader's are seeds
:math:`s_j`; :math:`\pi` is the proof, shared alike: :math:`w` are random values of the a wire polynomials at one, and
:math:`G` is the gadget on the wire polynomials, of degree :math:`d (p - 1)`, p being the least power of two above the
number of calls.

Messages are arrays of bytes, one row for each report, whose sizes are public.

Source: draft-irtf-cfrg-vdaf, sections 7.2 and 7.3; codepoint 7 is of draft-ietf-ppm-l1-bound-sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from mapveil_client.arrays import IntArray
from mapveil_client.errors import check
from mapveil_client.two_operators.finite_fields import Elements, Octets
from mapveil_client.two_operators.validity_circuits import Circuit
from mapveil_client.two_operators.xofs import NONCE_BYTES, SEED_BYTES, TurboShakeXof, separation

L1_BOUND_SUM: Final = 7
"""Codepoint of Prio3L1BoundSum."""


class Prio3Usage(IntEnum):
    """Uses of the XOF, by number."""

    MEASUREMENT_SHARE = 1
    PROOF_SHARE = 2
    JOINT_RANDOMNESS = 3
    PROVE_RANDOMNESS = 4
    QUERY_RANDOMNESS = 5
    JOINT_SEED = 6
    JOINT_PART = 7


class Sharded(NamedTuple):
    """The messages of reports."""

    public: Octets  # for all operators, shape (reports, bytes)
    inputs: tuple[Octets, ...]  # for each operator


@dataclass(frozen=True)
class Prio3:
    """An instance: what a client and the operators agree on.

    Parameters
    ----------
    circuit : Circuit
        The check of a measurement.
    algorithm : int
        Codepoint.
    context : bytes
        The application, such as the id of a collection.
    shares : int
        Operators, from 2 to 255.
    proofs : int
        Proofs of one measurement, from 1 to 255: more than one in a small field.
    """

    circuit: Circuit
    algorithm: int
    context: bytes
    shares: int = 2
    proofs: int = 1

    def __post_init__(self) -> None:
        check(2 <= self.shares <= 255, "shares", "from 2 to 255", self.shares)
        check(1 <= self.proofs <= 255, "proofs", "from 1 to 255", self.proofs)

    @property
    def joint(self) -> bool:
        """Whether the circuit takes joint randomness."""
        return self.circuit.shape.joint > 0

    @property
    def wire_length(self) -> int:
        """Values that make a wire polynomial, p."""
        return 1 << self.circuit.shape.calls.bit_length()

    @property
    def gadget_length(self) -> int:
        """Values that make the gadget polynomial."""
        return self.circuit.degree * (self.wire_length - 1) + 1

    @property
    def proof_length(self) -> int:
        """Elements of one proof."""
        return self.circuit.shape.arity + self.gadget_length

    @property
    def verifier_length(self) -> int:
        """Elements of one proof's verifier."""
        return self.circuit.shape.arity + 2

    @property
    def randomness_bytes(self) -> int:
        """Random bytes that a client needs for one report."""
        return SEED_BYTES * self.shares * (2 if self.joint else 1)

    @property
    def public_bytes(self) -> int:
        """Bytes of a report's public share."""
        return SEED_BYTES * self.shares if self.joint else 0

    def input_bytes(self, operator: int) -> int:
        """Bytes of a report's input share for an operator: 0 is the leader."""
        elements = self.circuit.shape.length + self.proof_length * self.proofs
        share = SEED_BYTES if operator else elements * self.circuit.over.size
        return share + (SEED_BYTES if self.joint else 0)

    def shard(self, measurements: IntArray, nonces: Octets, randomness: Octets) -> Sharded:
        """Encode measurements, prove that they are valid, and divide both into shares. Run by: the client.

        Parameters
        ----------
        measurements : ndarray of int64
            As the circuit's ``encode`` takes them.
        nonces : ndarray of uint8, shape (reports, 16)
            Public random names of the reports.
        randomness : ndarray of uint8, shape (reports, randomness_bytes)
            Uniform bytes, secret.

        Raises
        ------
        InputError
            A measurement is not valid.
        ParameterError
            Nonces or randomness have another shape.
        """
        encoded = self.circuit.encode(measurements)
        reports, field = encoded.shape[0], self.circuit.over
        check(nonces.shape == (reports, NONCE_BYTES), "nonces", f"of shape ({reports}, 16)", nonces.shape)
        shape = (reports, self.randomness_bytes)
        check(randomness.shape == shape, "randomness", f"of shape {shape}", randomness.shape)
        seeds = list(np.split(randomness, randomness.shape[1] // SEED_BYTES, axis=1))
        helpers = [[seeds.pop(0) for _ in range(2 if self.joint else 1)] for _ in range(self.shares - 1)]
        leader_blind = seeds.pop(0) if self.joint else None
        (prove_seed,) = seeds
        leader = encoded
        parts: list[Octets] = []
        for operator, helper in enumerate(helpers, start=1):
            share = self.measurement_share(operator, helper[0])
            leader = field.subtract(leader, share)
            parts += [self.joint_part(operator, helper[1], share, nonces)] if self.joint else []
        if leader_blind is not None:
            parts.insert(0, self.joint_part(0, leader_blind, leader, nonces))
        joint = self.joint_randomness(self.joint_seed(parts, reports), reports)
        arity = self.circuit.shape.arity
        rands = self.expanded(
            Prio3Usage.PROVE_RANDOMNESS, prove_seed, [bytes([self.proofs])], reports, arity * self.proofs
        )
        proofs = np.concatenate(
            [
                self._prove(encoded, rands[:, arity * i : arity * (i + 1)], joint[:, i])
                for i in range(self.proofs)
            ],
            axis=1,
        )
        for operator, helper in enumerate(helpers, start=1):
            proofs = field.subtract(proofs, self.proof_share(operator, helper[0]))
        first = [
            field.encode(leader),
            field.encode(proofs),
            *([] if leader_blind is None else [leader_blind]),
        ]
        inputs = (np.concatenate(first, axis=1), *(np.concatenate(helper, axis=1) for helper in helpers))
        empty = np.zeros((reports, 0), dtype=np.uint8)
        return Sharded(np.concatenate([empty, *parts], axis=1), inputs)

    def _prove(self, encoded: Elements, seeds: Elements, joint: Elements) -> Elements:
        """One proof, shape (reports, proof_length, words)."""
        field, shape = self.circuit.over, self.circuit.shape
        wires = field.zeros(encoded.shape[0], shape.arity, self.wire_length)
        wires[:, :, 0] = seeds
        wires[:, :, 1 : shape.calls + 1] = self.circuit.wires(encoded, joint, 1)
        points = 1 << (self.gadget_length - 1).bit_length()
        gadget = self.circuit.gadget(field.values(field.coefficients(wires), points))
        return np.concatenate([seeds, gadget[:, : self.gadget_length]], axis=1)

    def expanded(
        self,
        usage: Prio3Usage,
        seeds: Octets | bytes,
        binder: list[bytes | Octets],
        reports: int,
        length: int,
    ) -> Elements:
        """Elements of each report's seed, shape (reports, length, words). Run by: client and operators."""
        return self._xof(usage, seeds, binder, reports).elements(self.circuit.over, length)

    def _xof(
        self, usage: Prio3Usage, seeds: Octets | bytes, binder: list[bytes | Octets], reports: int
    ) -> TurboShakeXof:
        return TurboShakeXof(seeds, separation(0, self.algorithm, usage, self.context), binder, reports)

    def measurement_share(self, operator: int, seeds: Octets) -> Elements:
        """A helper's share of the encoded measurements. Run by: client and helper."""
        length = self.circuit.shape.length
        return self.expanded(Prio3Usage.MEASUREMENT_SHARE, seeds, [bytes([operator])], seeds.shape[0], length)

    def proof_share(self, operator: int, seeds: Octets) -> Elements:
        """A helper's share of all proofs. Run by: client and helper."""
        binder: list[bytes | Octets] = [bytes([self.proofs, operator])]
        length = self.proof_length * self.proofs
        return self.expanded(Prio3Usage.PROOF_SHARE, seeds, binder, seeds.shape[0], length)

    def joint_part(self, operator: int, blinds: Octets, share: Elements, nonces: Octets) -> Octets:
        """An operator's part of the joint randomness, shape (reports, 32). Run by: client and operators."""
        binder: list[bytes | Octets] = [bytes([operator]), nonces, self.circuit.over.encode(share)]
        return self._xof(Prio3Usage.JOINT_PART, blinds, binder, blinds.shape[0]).octets(SEED_BYTES)

    def joint_seed(self, parts: list[Octets], reports: int) -> Octets:
        """The seed of the joint randomness, shape (reports, 32), or (reports, 0) where there is none."""
        if not self.joint:
            return np.zeros((reports, 0), dtype=np.uint8)
        binder: list[bytes | Octets] = [*parts]
        return self._xof(Prio3Usage.JOINT_SEED, bytes(SEED_BYTES), binder, reports).octets(SEED_BYTES)

    def joint_randomness(self, seeds: Octets, reports: int) -> Elements:
        """Joint randomness of each proof, shape (reports, proofs, joint, words)."""
        field, length = self.circuit.over, self.circuit.shape.joint
        if not self.joint:
            return field.zeros(reports, self.proofs, 0)
        drawn = self.expanded(
            Prio3Usage.JOINT_RANDOMNESS, seeds, [bytes([self.proofs])], reports, length * self.proofs
        )
        return drawn.reshape(reports, self.proofs, length, field.words)
