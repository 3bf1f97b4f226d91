"""Private retrieval on one core: the database a second beside the memory it is read from, and a client's share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from benchmarks.record import Context, Result, best_of, line
from mapveil.retrieval.byte_product import compiled_product, plain_product
from mapveil.retrieval.pir_client import Client
from mapveil.retrieval.pir_server import Server
from mapveil.retrieval.records import Database
from mapveil_client.randomness.random import Randomness

RECORDS, RECORD_BYTES = 8_388_608, 8  # 64 MiB
GIGABYTE = 1e9


@contextmanager
def one_core() -> Iterator[None]:
    """Stay on one core where the system lets us."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def alternating(repeats: int, *calls: Callable[[], object]) -> list[float]:
    """Seconds of the fastest of some rounds, the calls taking turns so that a busy machine slows all alike."""
    best = [float("inf")] * len(calls)
    for _ in range(repeats):
        for at, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[at] = min(best[at], time.perf_counter() - start)
    return best


def run(context: Context) -> list[Result]:
    """Measure the kernels, a whole answer, the hint, and a client's query."""
    records = RECORDS // 16 if context.quick else RECORDS
    content = np.random.default_rng(1).integers(0, 256, (records, RECORD_BYTES), dtype=np.uint8)
    database = Database.of(content)
    matrix = database.matrix
    size = matrix.size / GIGABYTE
    megabytes = f"{matrix.size / (1 << 20):.0f} MiB"
    compiled = compiled_product()
    start = time.perf_counter()
    server = Server(database)
    hint = time.perf_counter() - start
    vector = Randomness().words(matrix.shape[1], np.uint32).astype(np.uint32)
    whole = matrix.reshape(-1)[: matrix.size // 8 * 8].view(np.uint64)
    with one_core():
        fast, plain, memory = alternating(
            12, lambda: compiled(matrix, vector), lambda: plain_product(matrix, vector), whole.sum
        )
    limit = "reading the same bytes from memory"
    rows = [
        line(f"retrieval, {name}, {megabytes}, one core", size / seconds, "GB/s", limit, size / memory,
             f">= {goal} GB/s", size / seconds >= goal)
        for name, seconds, goal in (("compiled", fast, 8), ("NumPy only", plain, 3))
    ]  # fmt: skip
    client = Client(server.offer())
    for message in server.hint_messages():
        client.receive_hint(message)
    query = client.query(0)
    with one_core():
        answer, bare, ask = alternating(
            12,
            lambda: server.answer(query.message),
            lambda: compiled(matrix, vector),
            lambda: client.query(0),
        )
        keystream = best_of(5, lambda: _keystream(4096 * matrix.shape[1]))
    traffic = database.shape.traffic()
    # A hint is 1024 products for each byte, as floats.
    tile = np.ones((1024, 1024))
    floats = best_of(3, lambda: tile @ tile) * matrix.size / 1024**2
    per_query = (traffic.query + traffic.answer) / 1e3
    return [
        *rows,
        line(f"retrieval, an answer with its messages, {megabytes}", answer * 1e3, "ms", "the product", bare * 1e3),
        line(f"retrieval, a client's query, {megabytes}", ask * 1e3, "ms", "its keystream", keystream * 1e3),
        line(f"retrieval, the hint of {megabytes}, once", hint, "s", "the same products in BLAS alone", floats),
        line(f"retrieval, a question and its answer, {megabytes}", per_query, "kB", "the whole database",
             traffic.database / 1e3),
        line(f"retrieval, the hint of {megabytes}, once", traffic.hint / 1e3, "kB", "the whole database",
             traffic.database / 1e3),
    ]  # fmt: skip


def _keystream(count: int) -> bytes:
    """Bytes of AES-256 in counter mode."""
    stream = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
    piece = bytes(1 << 20)
    for _ in range(count >> 20):
        stream.update(piece)
    return stream.update(bytes(count & ((1 << 20) - 1)))
