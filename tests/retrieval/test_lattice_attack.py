"""The price of an attack, against block sizes that others published."""

from __future__ import annotations

import math

import pytest

from mapveil.retrieval.lattice_parameters import DEVIATION
from mapveil_client.errors import ParameterError
from tests.retrieval.lattice_attack import primal_attack


@pytest.mark.parametrize(
    ("secret", "deviation", "block", "core"),
    # The lattice estimator's documentation, usvp: Kyber-512 (beta 406, core 2^118.6), Kyber-768 (624, 2^182.2).
    [(512, math.sqrt(1.5), 406, 118.6), (768, 1.0, 624, 182.2)],
)
def test_it_finds_the_published_block_sizes(secret, deviation, block, core):
    found = primal_attack(secret, 3329, deviation, deviation)
    assert found.block == block
    assert round(found.core_bits, 1) == core


def test_our_parameters_are_harder_than_the_standards_row():
    # Homomorphic Encryption Standard (2018), 128 bits classical: n = 1024, secrets of the errors' law, log q = 29.
    standard = primal_attack(1024, 1 << 29, 3.19, 3.19)
    assert 128 <= standard.bits < 134
    assert primal_attack().bits > standard.bits + 10


def test_ternary_secrets_and_the_papers_errors_would_be_easier():
    ours = primal_attack().block
    assert primal_attack(secret_deviation=math.sqrt(2 / 3)).block < ours - 50
    assert primal_attack(secret_deviation=6.4, error_deviation=6.4).block < ours - 50


def test_the_figures_of_the_documentation():
    ours, paper = primal_attack(), primal_attack(secret_deviation=6.4, error_deviation=6.4)
    assert (ours.block, round(ours.core_bits), round(ours.bits)) == (395, 115, 146)
    assert (paper.block, round(paper.core_bits), round(paper.bits)) == (326, 95, 126)


def test_it_grows_with_what_makes_it_hard():
    sigma = float(DEVIATION)
    assert primal_attack(secret=1100).block > primal_attack().block > primal_attack(secret=900).block
    assert primal_attack(modulus=1 << 40).block < primal_attack().block
    assert primal_attack(error_deviation=2 * sigma).block > primal_attack().block


@pytest.mark.parametrize(
    "wrong", [{"secret": 0}, {"modulus": 1}, {"secret_deviation": 0}, {"error_deviation": -1}]
)
def test_parameters_out_of_range(wrong):
    with pytest.raises(ParameterError, match=r"must be|expected"):
        primal_attack(**wrong)
