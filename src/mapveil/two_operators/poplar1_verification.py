r"""Verification of Poplar1 reports by both operators: values at candidate prefixes, and the sketch that checks them.

.. math:: (s_0, s_1, s_2) = \Big( a + \sum_i r_i y_i,\; b + \sum_i r_i^2 y_i,\; c + \sum_i r_i z_i \Big), \qquad
    s_0^2 - s_1 - s_2 + A s_0 + B = 0

where: :math:`y_i` and :math:`z_i` are the value and the authenticator of the i-th prefix, :math:`r_i` random numbers
that no client knows, and :math:`a, b, c, A, B` of the client's message. It holds where at most one :math:`y_i` is not
zero, and that is one, with its authenticator.

Source: draft-irtf-cfrg-vdaf, sections 8.2.2 and 8.3.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.two_operators.finite_fields import FIELD64, FIELD255, Elements, Field, Octets
from mapveil_client.two_operators.idpf import VALUES, Tree, read_corrections
from mapveil_client.two_operators.poplar1 import Poplar1
from mapveil_client.two_operators.xofs import KEY_BYTES, SEED_BYTES


class Poplar1State(NamedTuple):
    """An operator's state between its steps at one level."""

    field: Field
    operator: int
    masks: Elements  # shares of A and B, shape (reports, 2, words)
    outputs: Elements  # shares of the prefixes' values, shape (reports, prefixes, words)
    accepted: BoolArray  # shape (reports,)


def check_prefixes(prefixes: BoolArray) -> None:
    """Refuse prefixes that are not ascending, and so not distinct.

    Raises
    ------
    ParameterError
        They are not, or there is none.
    """
    packed = np.packbits(prefixes, axis=1)
    rows = [row.tobytes() for row in packed]
    if not rows or any(first >= second for first, second in itertools.pairwise(rows)):
        raise ParameterError("prefixes must be at least one, distinct and in ascending order")


class _Step(NamedTuple):
    """The nodes of one level that are walked through."""

    parent: IntArray  # shape (nodes,), among the nodes of the level before
    bit: IntArray


def _steps(prefixes: BoolArray) -> list[_Step]:
    """The nodes of each level above ascending prefixes, and the prefixes themselves last."""
    steps, above = [], np.zeros(prefixes.shape[0], dtype=np.int64)
    for level in range(prefixes.shape[1]):
        bit = prefixes[:, level].astype(np.int64)
        number = 2 * above + bit
        fresh = np.concatenate([[True], np.diff(number) != 0])  # ascending prefixes keep equal nodes together
        steps.append(_Step(above[fresh], bit[fresh]))
        above = np.cumsum(fresh) - 1
    return steps


def prefix_values(
    tree: Tree, operator: int, public: Octets, keys: Octets, prefixes: BoolArray
) -> tuple[Elements, BoolArray]:
    """Shares of the values at ascending prefixes, and which reports are well formed.

    The values are of shape (reports, prefixes, VALUES, words). Run by: each operator.
    """
    words, good = read_corrections(public, tree.levels)
    seeds = keys[:, None]
    control = np.full((keys.shape[0], 1), bool(operator))
    last = prefixes.shape[1] - 1
    for level, step in enumerate(_steps(prefixes)):
        children, bits = tree.extend(level, seeds)
        correct = np.where(control[:, :, None], words.seeds[:, None, level], np.uint8(0))
        chosen = children[:, step.parent, step.bit] ^ correct[:, step.parent]
        control = (bits ^ (control[:, :, None] & words.control[:, None, level]))[:, step.parent, step.bit]
        if level < last:
            seeds = tree.next_seeds(level, chosen)
    field = tree.field(last)
    _, values = tree.convert(last, chosen)
    correction = words.leaf if field is FIELD255 else words.inner[:, last]
    values = np.where(control[:, :, None, None], field.add(values, correction[:, None]), values)
    return (field.negative(values) if operator else values), good


def sketch(
    vdaf: Poplar1,
    verify_key: bytes,
    operator: int,
    prefixes: BoolArray,
    nonces: Octets,
    public: Octets,
    inputs: Octets,
) -> tuple[Poplar1State, Octets]:
    """Evaluate the prefixes and an operator's share of the sketch, shape (reports, 3 * bytes). Run by: each operator.

    A level must be used once for a report: a second sketch with the same (a, b, c) would tell more.

    Parameters
    ----------
    vdaf : Poplar1
        The instance.
    verify_key : bytes
        32 bytes that the operators share and no client knows.
    operator : int
        0 for the leader, 1 for the helper.
    prefixes : ndarray of bool, shape (prefixes, bits)
        Candidates, ascending.
    nonces, public, inputs : ndarray of uint8, shape (reports, bytes)
        The reports; their sizes are those of ``vdaf``.

    Raises
    ------
    ParameterError
        The prefixes are not ascending, or too long.
    """
    check_prefixes(prefixes)
    level = prefixes.shape[1] - 1
    if level >= vdaf.levels:
        raise ParameterError(f"prefixes must be of at most {vdaf.levels} bits, got {level + 1}")
    tree = Tree(vdaf.levels, vdaf.context, nonces)
    field, reports = tree.field(level), nonces.shape[0]
    ends = np.cumsum([KEY_BYTES, SEED_BYTES, 2 * (vdaf.levels - 1) * FIELD64.size])
    keys, seeds, inner, leaf = np.split(inputs, ends, axis=1)
    inner_masks, good = FIELD64.decode(inner)
    leaf_masks, reduced = FIELD255.decode(leaf)
    values, formed = prefix_values(tree, operator, public, keys, prefixes)
    if field is FIELD64:
        masks = inner_masks[:, 2 * level : 2 * level + 2]
        triple = vdaf.correlation(operator, seeds, nonces, field, level + 1)[:, -1]
    else:
        masks, triple = leaf_masks, vdaf.correlation(operator, seeds, nonces, field, 1)[:, 0]
    random = vdaf.verification(verify_key, nonces, level, field, prefixes.shape[0])
    data, authenticators = values[:, :, 0], values[:, :, 1]
    scaled = field.multiply(data, random)
    sums = [scaled, field.multiply(scaled, random), field.multiply(authenticators, random)]
    shares = field.add(triple, np.stack([field.total(each, axis=1) for each in sums], axis=1))
    state = Poplar1State(field, operator, masks, data, good & reduced & formed)
    return state, field.encode(shares.reshape(reports, VALUES + 1, field.words))


def combine_sketch(field: Field, shares: tuple[Octets, Octets]) -> tuple[Octets, BoolArray]:
    """The sketch of both shares, and the reports whose shares are well formed. Run by: an operator."""
    decoded = [field.decode(each) for each in shares]
    return field.encode(field.add(decoded[0][0], decoded[1][0])), decoded[0][1] & decoded[1][1]


def finish_sketch(state: Poplar1State, message: Octets) -> tuple[Octets, BoolArray]:
    """An operator's share of the check, shape (reports, bytes), and the reports whose sketch is well formed."""
    field = state.field
    sums, good = field.decode(message)
    first, second, third = (sums[:, i] for i in range(3))
    share = field.add(field.multiply(state.masks[:, 0], first), state.masks[:, 1])
    if state.operator:
        square = field.subtract(field.multiply(first, first), field.add(second, third))
        share = field.add(share, square)
    return field.encode(share[:, None]), good


def decide_sketch(field: Field, shares: tuple[Octets, Octets]) -> BoolArray:
    """The reports that pass: both shares of the check add up to zero. Run by: an operator."""
    total, good = combine_sketch(field, shares)
    return good & ~total.any(axis=1)
