"""Sums by two operators beside a single server's: bytes, and seconds of devices and operators.

Times are processor seconds, so that other work on the machine does not count. The collection: vectors of 1,024 numbers
whose sum is at most 16, and paths of a raster of depth 5; the single server sums the same vectors over shards of 100.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from benchmarks.record import Context, Result, line
from mapveil.secure_sum.drivers import largest_messages
from mapveil.secure_sum.protocol_sum import ProtocolSum
from mapveil.two_operators.aggregation import HELPER, LEADER, Operator, verify_together
from mapveil.two_operators.sum_schemes import PathScheme, Scheme, VectorScheme
from mapveil.two_operators.verification_messages import InputShares
from mapveil_client.arrays import IntArray
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.round_parameters import SumSettings
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors
from mapveil_client.two_operators import field_arithmetic, turbo_shake

LENGTH, MOST, SHARD, BITS = 1024, 16, 100, 20


def cpu(call: Callable[[], object]) -> float:
    """Processor seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def kernels(name: str) -> None:
    """Run everything with ``"NumPy"`` alone, or ``"compiled"`` from the first call on."""
    for module in (field_arithmetic, turbo_shake):
        vars(module)["COMPILE_AFTER_S"] = math.inf if name == "NumPy" else 0.0


def contributions(scheme: Scheme, reports: int) -> IntArray:
    """Random contributions as large as they may be."""
    generator = np.random.default_rng(1)
    made = np.zeros((reports, scheme.sites), dtype=np.int64)
    for _ in range(scheme.most):
        made[np.arange(reports), generator.integers(0, scheme.sites, reports)] += 1
    return made


def messages(scheme: Scheme, reports: int) -> tuple[list[InputShares], list[InputShares]]:
    """Reports of as many devices, each operator's part."""
    generator, given = np.random.default_rng(2), contributions(scheme, reports)
    nonces, randomness = (
        generator.integers(0, 256, (reports, size), dtype=np.uint8) for size in (16, scheme.randomness_bytes)
    )
    made = scheme.shard(given, nonces, randomness)
    first, second = (
        [
            InputShares(*(part.tobytes() for part in row))
            for row in zip(nonces, made.public, inputs, strict=True)
        ]
        for inputs in made.inputs
    )
    return first, second


def verification_seconds(scheme: Scheme, reports: int) -> float:
    """Processor seconds of one operator for a report: half of both operators' work."""
    sent = messages(scheme, reports)
    pair = [
        Operator(scheme, number, scheme.collection, bytes(32), Fraction(1), 1) for number in (LEADER, HELPER)
    ]
    for operator, part in zip(pair, sent, strict=True):
        operator.receive(part)
    taken = cpu(lambda: verify_together(pair[LEADER], pair[HELPER]))
    assert pair[LEADER].accepted == pair[HELPER].accepted == reports
    return taken / reports / 2


def single_server(devices: int) -> tuple[float, int, int]:
    """Processor seconds of a whole secure sum for each device, server and device together; bytes up and down."""
    scheme = VectorScheme(LENGTH, MOST, bytes(32))
    client, position = np.nonzero(contributions(scheme, devices))
    value = contributions(scheme, devices)[client, position]
    vectors = SparseVectors(devices, LENGTH, client, position, value)
    settings = SumSettings(
        length=LENGTH,
        bits=BITS,
        corrupt=Fraction(1, 20),
        dropout=Fraction(1, 10),
        round_id=bytes(16),
        context=b"b",
    )
    leaves = np.full(devices, Leaves.NEVER, dtype=np.int8)
    shards = np.array([0, devices])
    taken = cpu(
        lambda: ProtocolSum().sums(
            vectors, shards, leaves, settings, Randomness(1), before_reveal=lambda counts: None
        )
    )
    up, down = largest_messages(settings, devices)
    return taken / devices, sum(up.values()), sum(down.values())


def run(context: Context) -> list[Result]:
    """Measure."""
    devices = 20 if context.quick else SHARD
    reports = 16 if context.quick else 512
    vector: Scheme = VectorScheme(LENGTH, MOST, bytes(32))
    path: Scheme = PathScheme(5, bytes(32))
    deep: Scheme = PathScheme(10, bytes(32))
    seconds, up, down = single_server(devices)
    peer = f"a secure sum of {devices} devices"
    results: list[Result] = []
    cases = (("vector of 1,024, bound 16", vector, 100.0), ("path of depth 5", path, 2.0))
    for name, scheme, limit in (*cases, ("path of depth 10", deep, 2.0)):
        size = (scheme.sizes(LEADER)[0] + sum(scheme.sizes(number)[1] for number in (LEADER, HELPER))) / 1e3
        beside = f"{peer} of 1,024 ({down / 1e3:.1f} kB down)"
        goal = f"<= {limit:g} kB"
        results.append(
            line(f"two operators, {name}: upload", size, "kB", beside, up / 1e3, goal, size <= limit)
        )
    beside = f"{peer}, device and server"
    for kind, most in (("NumPy", 300.0), ("compiled", 50.0)):
        kernels(kind)
        for name, scheme, _ in cases:
            messages(scheme, 16)  # compile
            verification_seconds(scheme, 16)
            what = f"two operators, {name}, {kind}"
            taken = 1e3 * min(cpu(partial(messages, scheme, 1)) for _ in range(3))
            goal, held = f"<= {most:g} ms", taken <= most
            results.append(line(f"{what}: a device", taken, "ms", beside, 1e3 * seconds, goal, held))
            taken = 1e3 * verification_seconds(scheme, reports)
            goal, decided = ("", None) if kind == "NumPy" else ("<= 3 ms", taken <= 3)
            what += ": an operator, of a report"
            results.append(line(what, taken, "ms", beside, 1e3 * seconds, goal, decided))
    kernels("compiled")
    return results
