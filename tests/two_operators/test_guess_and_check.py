"""Whether a report passes says nothing of the site, even to an operator that changes its share by a guess of it.

The operator adds the vector that moves a contribution from the guessed site to another one, with all that it can
compute of the proof or of the authenticators. The checks are linear in the shares, so that a change of one operator's
share is as a change of the other's.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from mapveil.two_operators import prio3_verification as prio
from mapveil.two_operators.aggregation import HELPER, LEADER, Operator
from mapveil.two_operators.sum_schemes import PathScheme, Scheme, VectorScheme
from mapveil.two_operators.verification_messages import InputShares, Opening
from mapveil_client.arrays import IntArray
from mapveil_client.two_operators.finite_fields import FIELD64, Elements, Octets
from mapveil_client.two_operators.poplar1 import Poplar1Usage
from mapveil_client.two_operators.prio3 import Prio3, Prio3Usage, Sharded

KEY = bytes(range(32))
COLLECTION = b"test collection." * 2
PLACES = [0, 1, 2, 3, -1] * 3  # sites of the clients; -1 contributes nothing
VECTORS, PATHS = VectorScheme(4, 3, COLLECTION), PathScheme(1, COLLECTION)
OF_SCHEME = pytest.mark.parametrize("scheme", [VECTORS, PATHS], ids=["vectors", "paths"])


def one_hot(sites: list[int]) -> IntArray:
    return (np.array(sites)[:, None] == np.arange(4)).astype(np.int64)


def vector_change(
    opening: Opening, sent: Sharded, randomness: Octets, guess: int, other: int, known: bool
) -> Octets:
    """The leader's verifier shares of a contribution that is moved, and of a proof that is moved with it.

    The move of the proof needs the wire polynomials' values at one; an operator that does not know them takes others.
    """
    vdaf, field, reports = VECTORS.vdaf, VECTORS.field, len(PLACES)
    parts = np.split(sent.public, 2, axis=1)
    joint = vdaf.joint_randomness(vdaf.joint_seed(parts, reports), reports)[:, 0]
    seed = randomness[:, -32:] if known else np.zeros((reports, 32), dtype=np.uint8)
    wires = vdaf.expanded(Prio3Usage.PROVE_RANDOMNESS, seed, [bytes([1])], reports, vdaf.circuit.shape.arity)

    def proven(site: int) -> Elements:
        encoded = vdaf.circuit.encode(one_hot([site] * reports))
        return np.concatenate([encoded, vdaf._prove(encoded, wires, joint)], axis=1)

    class Stated(Prio3):
        """Tells the part of the joint randomness that belongs to the share as it was."""

        def joint_part(self, operator: int, blinds: Octets, share: Elements, nonces: Octets) -> Octets:
            return parts[operator]

    own, blind = sent.inputs[0][:, :-32], sent.inputs[0][:, -32:]
    moved = field.add(field.decode(own)[0], field.subtract(proven(other), proven(guess)))
    changed = np.concatenate([field.encode(moved), blind], axis=1)
    stated = Stated(vdaf.circuit, vdaf.algorithm, vdaf.context)
    return prio.verify_init(stated, KEY, LEADER, opening.nonces, sent.public, changed).verifier


def path_change(
    opening: Opening, sent: Sharded, randomness: Octets, guess: int, other: int, known: bool
) -> Octets:
    """The leader's sketch shares of values that are moved, and of authenticators that are moved with them.

    The move of the authenticators needs the client's key; an operator that does not know it takes zero.
    """
    vdaf, reports, level = PATHS.vdaf, len(PLACES), PATHS.prefixes.shape[1] - 1
    stream = vdaf._xof(Poplar1Usage.SHARDING, randomness[:, 96:], [opening.nonces], reports)
    (keys,) = stream.sequence([(FIELD64, vdaf.levels - 1)])
    key = keys[:, level : level + 1] if known else FIELD64.zeros(reports, 1)
    random = vdaf.verification(KEY, opening.nonces, level, FIELD64, PATHS.sites)
    move = FIELD64.subtract(random[:, other], random[:, guess])[:, None]
    squares = FIELD64.multiply(random, random)
    change = [
        move,
        FIELD64.subtract(squares[:, other], squares[:, guess])[:, None],
        FIELD64.multiply(key, move),
    ]
    shares = FIELD64.decode(opening.shares)[0]
    return FIELD64.encode(FIELD64.add(shares, np.concatenate(change, axis=1)))


Change = Callable[[Opening, Sharded, Octets, int, int, bool], Octets]
CHANGES: dict[Scheme, Change] = {VECTORS: vector_change, PATHS: path_change}


def passed(scheme: Scheme, guess: int, other: int, *, known: bool) -> list[bool]:
    """Which reports pass when an operator moves its shares from the guessed site to another."""
    generator = np.random.default_rng(guess)
    nonces, randomness = (
        generator.integers(0, 256, (len(PLACES), size), dtype=np.uint8)
        for size in (16, scheme.randomness_bytes)
    )
    sent = scheme.shard(one_hot(PLACES), nonces, randomness)
    leader, helper = (
        Operator(scheme, number, COLLECTION, KEY, Fraction(1), 1) for number in (LEADER, HELPER)
    )
    for operator, inputs in zip((leader, helper), sent.inputs, strict=True):
        rows = zip(nonces, sent.public, inputs, strict=True)
        operator.receive(InputShares(*(part.tobytes() for part in row)) for row in rows)
    opening = leader.open(leader.waiting)
    changed = CHANGES[scheme](opening, sent, randomness, guess, other, known)
    closing = leader.close(helper.respond(opening._replace(shares=changed)))
    # A malicious leader says that all pass; the helper decides for itself.
    helper.settle(closing._replace(accepted=np.ones(len(PLACES), dtype=np.bool_)))
    assert helper.accepted == leader.accepted == closing.accepted.sum()
    decided: list[bool] = closing.accepted.tolist()
    return decided


@OF_SCHEME
def test_whether_a_changed_report_passes_says_nothing_of_the_site(scheme: Scheme) -> None:
    """It is refused at every site, the guessed one as any, but for a chance of about 2^-64."""
    for guess in range(4):
        for other in set(range(4)) - {guess}:
            assert not any(passed(scheme, guess, other, known=False)), (guess, other)


@OF_SCHEME
def test_only_the_clients_secret_numbers_keep_the_guess_from_being_checked(scheme: Scheme) -> None:
    """The same change by somebody who knew them passes exactly where the guess is right: the attack is a real one."""
    for guess in range(4):
        other = (guess + 1) % 4
        assert passed(scheme, guess, other, known=True) == [place == guess for place in PLACES]


@OF_SCHEME
def test_a_report_that_is_not_changed_passes_at_every_site(scheme: Scheme) -> None:
    assert all(passed(scheme, 1, 1, known=False))
