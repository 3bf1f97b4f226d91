"""Noise samplers: samples per second beside OpenDP's vector sampler and the cipher that feeds ours."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.record import Context, Result, best_of, in_process, line
from mapveil.engines import UNIT
from mapveil.privacy.discrete_laplace import discrete_laplace
from mapveil_client.randomness.random import Randomness

COUNT = 10_000_000


def run(context: Context) -> list[Result]:
    """Measure the sampler on the lattice and at scale one."""
    rng = Randomness()
    lattice = COUNT / best_of(3, lambda: discrete_laplace(COUNT, Fraction(1), UNIT, rng)) / 1e6
    small = COUNT / best_of(3, lambda: discrete_laplace(COUNT, Fraction(1), 1, rng)) / 1e6
    # The limit: two bytes of AES-256-CTR keystream per sample at scale one.
    words = COUNT / best_of(3, lambda: rng.words(COUNT, np.uint16)) / 1e6
    rows = [
        line(
            "noise at scale 1",
            small,
            "M/s",
            "its random bits alone (AES-256-CTR)",
            words,
            ">= 200 M/s",
            small >= 200,
        ),
        line(
            "noise on the 2^-28 lattice", lattice, "M/s", "the floor asked for", 10.0, ">= 1 x", lattice >= 10
        ),
    ]
    if context.peers:
        peer = in_process(context.peers, "peers/opendp_noise.py", 200_000)["per_second"] / 1e6
        rows.append(
            line(
                "noise on the 2^-28 lattice",
                lattice,
                "M/s",
                "OpenDP vector sampler",
                peer,
                ">= 50 x",
                lattice >= 50 * peer,
            )
        )
    return rows
