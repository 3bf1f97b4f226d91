"""Noise shares: sparse draws beside the gamma-Poisson sampler that draws every coordinate, and the bits they need."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np

from benchmarks.record import Context, Result, best_of, line
from mapveil.engines import UNIT
from mapveil_client.randomness.noise_shares import noise_shares
from mapveil_client.randomness.random import Randomness

LENGTH, CLIENTS, SHORT = 1_000_000, 10_000, 1_254
ALPHA, EPSILON = Fraction(1, 10_000), Fraction(1)


def _dense(generator: np.random.Generator, clients: int, length: int) -> object:
    """X - Y of every coordinate, as Definition 4.1 draws them."""
    beta = np.exp(-float(EPSILON))
    rate = generator.gamma(float(ALPHA), beta / (1 - beta), size=(2, clients * length))
    first, second = generator.poisson(rate)
    return first - second


def run(context: Context) -> list[Result]:
    """Measure one device, a shard of devices, the lattice, and the totals of a million devices."""
    rng = Randomness()
    generator = rng.generator()
    one = best_of(30, lambda: noise_shares(1, LENGTH, ALPHA, EPSILON, 1, rng)) * 1e3
    dense = best_of(2, lambda: _dense(generator, 1, LENGTH)) * 1e3
    rows = [
        line(
            "noise shares, one device of 1,000,000 coordinates",
            one,
            "ms",
            "dense gamma-Poisson, NumPy",
            dense,
            ">= 100 x, <= 0.2 ms",
            dense >= 100 * one and one <= 0.2,
        )
    ]
    part = 500 if context.quick else CLIENTS // 5
    shard = best_of(10, lambda: noise_shares(CLIENTS, SHORT, ALPHA, EPSILON, 1, rng)) * 1e3
    dense = best_of(1, lambda: _dense(generator, part, SHORT)) * 1e3 * CLIENTS / part
    rows.append(
        line(
            "noise shares, 10,000 devices of 1,254 coordinates",
            shard,
            "ms",
            "dense gamma-Poisson, NumPy",
            dense,
            ">= 1,000 x",
            dense >= 1000 * shard,
        )
    )
    clients = CLIENTS * 10
    for name, sensitivity, alpha in (("scale 1", 1, ALPHA * 40), ("the 2^-28 lattice", UNIT, ALPHA)):
        draw = partial(noise_shares, clients, SHORT, alpha, EPSILON, sensitivity, rng)
        drawn, seconds = draw().value.size, best_of(30, draw)
        # Asked for: 15 ns an event and 10 ns a device.
        floor = (15 * drawn + 10 * clients) * 1e-6
        rows.append(
            line(
                f"noise shares at {name}, {drawn / clients:.1f} events a device, 100,000 devices",
                seconds * 1e3,
                "ms",
                "15 ns an event and 10 ns a device",
                floor,
                ">= 1 x",
                seconds * 1e3 <= floor,
            )
        )
    return rows
