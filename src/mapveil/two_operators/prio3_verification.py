r"""Verification of Prio3 reports by the operators: shares of a verifier, which together show that a proof holds.

.. math:: \Big( \sum_c \rho_c\, o_c,\; W_1(t), \dots, W_a(t),\; G(t) \Big), \qquad
    \text{accepted where the first is 0 and } g(W_1(t), \dots, W_a(t)) = G(t)

where: :math:`o_c` are the circuit's checks, :math:`\rho` and :math:`t` random numbers that the client cannot know,
:math:`W_j` the wire polynomials, :math:`g` the gadget and :math:`G` the gadget polynomial of the proof. All are linear
in the shares but for g, which is computed of the sum.

A report that is refused, for whatever reason, is False in ``accepted`` and changes nothing.

Source: draft-irtf-cfrg-vdaf, sections 7.2.2 and 7.3.
"""

from typing import NamedTuple

import numpy as np

from mapveil_client.arrays import BoolArray
from mapveil_client.two_operators.finite_fields import Elements, Octets
from mapveil_client.two_operators.prio3 import Prio3, Prio3Usage
from mapveil_client.two_operators.xofs import SEED_BYTES


class Prio3State(NamedTuple):
    """An operator's state between its two steps."""

    outputs: Elements  # shares of what is added up, shape (reports, outputs, words)
    seed: Octets  # of the joint randomness as this operator computed it
    accepted: BoolArray  # shape (reports,)


class Prio3Start(NamedTuple):
    """An operator's first step."""

    state: Prio3State
    verifier: Octets  # its message to the other operators, shape (reports, bytes)


def verify_init(
    vdaf: Prio3, verify_key: bytes, operator: int, nonces: Octets, public: Octets, inputs: Octets
) -> Prio3Start:
    """Query an operator's shares of the measurements and proofs. Run by: each operator.

    Parameters
    ----------
    vdaf : Prio3
        The instance.
    verify_key : bytes
        32 bytes that the operators share and no client knows.
    operator : int
        0 for the leader.
    nonces, public, inputs : ndarray of uint8, shape (reports, bytes)
        The reports; their sizes are those of ``vdaf``.
    """
    field, shape = vdaf.circuit.over, vdaf.circuit.shape
    reports = nonces.shape[0]
    accepted = np.ones(reports, dtype=np.bool_)
    blinds = inputs[:, inputs.shape[1] - SEED_BYTES :] if vdaf.joint else inputs[:, :0]
    if operator:
        seeds = inputs[:, :SEED_BYTES]
        share, proofs = vdaf.measurement_share(operator, seeds), vdaf.proof_share(operator, seeds)
    else:
        elements, accepted = field.decode(inputs[:, : inputs.shape[1] - blinds.shape[1]])
        share, proofs = elements[:, : shape.length], elements[:, shape.length :]
    parts = np.split(public, vdaf.shares, axis=1) if vdaf.joint else []
    part = vdaf.joint_part(operator, blinds, share, nonces) if vdaf.joint else public
    if vdaf.joint:
        parts[operator] = part
    seed = vdaf.joint_seed(parts, reports)
    joint = vdaf.joint_randomness(seed, reports)
    reducing = shape.checks if shape.checks > 1 else 0
    binder: list[bytes | Octets] = [bytes([vdaf.proofs]), nonces]
    rands = vdaf.expanded(
        Prio3Usage.QUERY_RANDOMNESS, verify_key, binder, reports, (reducing + 1) * vdaf.proofs
    ).reshape(reports, vdaf.proofs, reducing + 1, field.words)
    verifiers = []
    for i in range(vdaf.proofs):
        proof = proofs[:, i * vdaf.proof_length : (i + 1) * vdaf.proof_length]
        verifier, safe = _query(vdaf, share, proof, rands[:, i], joint[:, i])
        verifiers.append(verifier)
        accepted = accepted & safe
    message = np.concatenate([field.encode(np.concatenate(verifiers, axis=1)), part], axis=1)
    return Prio3Start(Prio3State(vdaf.circuit.truncate(share), seed, accepted), message)


def _query(
    vdaf: Prio3, share: Elements, proof: Elements, rands: Elements, joint: Elements
) -> tuple[Elements, BoolArray]:
    """One proof's verifier share, and whether the point that it was evaluated at is safe."""
    circuit, field, shape = vdaf.circuit, vdaf.circuit.over, vdaf.circuit.shape
    seeds, gadget = proof[:, : shape.arity], proof[:, shape.arity :]
    p = vdaf.wire_length
    points = 1 << (vdaf.gadget_length - 1).bit_length()
    checks = circuit.outputs(share, _calls(vdaf, gadget, points), vdaf.shares)
    if shape.checks > 1:
        checks = field.total(field.multiply(checks, rands[:, :-1]), axis=1)[:, None]
    t = rands[:, -1]
    # At a root of unity the verifier would tell a wire's value.
    safe = ~field.equal(field.power(t, p), field.of(1))
    of_wires = field.weights(t, p, p)[:, : shape.calls + 1]  # the wires past the last call are zero
    at_wires = field.add(
        field.multiply(seeds, of_wires[:, :1]),
        circuit.wires_at(share, joint, vdaf.shares, of_wires[:, 1:]),
    )
    of_gadget = field.weights(t, vdaf.gadget_length, points)
    at_gadget = field.total(field.multiply(gadget, of_gadget), axis=1)[:, None]
    return np.concatenate([checks, at_wires, at_gadget], axis=1), safe


def _calls(vdaf: Prio3, gadget: Elements, points: int) -> Elements:
    """Outputs of the gadget's calls: values of its polynomial at roots of unity, shape (reports, calls, words)."""
    field, step = vdaf.circuit.over, points // vdaf.wire_length
    places = np.arange(1, vdaf.circuit.shape.calls + 1) * step
    inside = places < vdaf.gadget_length
    called = gadget[:, places[inside]]
    for place in places[~inside].tolist():  # few, and only of gadgets of degree three or more
        at = field.of(pow(field.root(points), place, field.modulus))
        weights = field.weights(at, vdaf.gadget_length, points)
        called = np.concatenate(
            [called, field.total(field.multiply(gadget, weights), axis=1)[:, None]], axis=1
        )
    return called


class Prio3Message(NamedTuple):
    """All operators' messages combined."""

    message: Octets  # shape (reports, 32), or (reports, 0) without joint randomness
    accepted: BoolArray  # shape (reports,): whether the proofs hold


def combine_verifiers(vdaf: Prio3, verifiers: list[Octets]) -> Prio3Message:
    """Add up the operators' verifier shares and decide. Run by: an operator; the order is that of the operators.

    A row of another size than the instance's must have been refused before.
    """
    field, circuit = vdaf.circuit.over, vdaf.circuit
    reports, size = verifiers[0].shape[0], vdaf.verifier_length * vdaf.proofs * field.size
    total = field.zeros(reports, vdaf.verifier_length * vdaf.proofs)
    accepted = np.ones(reports, dtype=np.bool_)
    for each in verifiers:
        elements, good = field.decode(each[:, :size])
        total, accepted = field.add(total, elements), accepted & good
    zero = field.zeros(1)[0]
    for i in range(vdaf.proofs):
        verifier = total[:, i * vdaf.verifier_length : (i + 1) * vdaf.verifier_length]
        accepted &= field.equal(verifier[:, 0], zero)
        accepted &= field.equal(circuit.gadget(verifier[:, 1:-1]), verifier[:, -1])
    return Prio3Message(vdaf.joint_seed([each[:, size:] for each in verifiers], reports), accepted)


def verify_next(state: Prio3State, message: Octets) -> tuple[Elements, BoolArray]:
    """Shares of what is added up, and which reports are accepted. Run by: each operator.

    A report whose joint randomness the client did not derive from its shares is refused.
    """
    return state.outputs, state.accepted & (state.seed == message).all(axis=1)
