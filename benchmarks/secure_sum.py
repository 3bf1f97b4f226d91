"""Secure sums: each phase beside the primitives it cannot do without, whole shards, and Flower's SecAgg+.

Times of single phases are processor seconds, so that other work on the machine does not count.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher as Library
from cryptography.hazmat.primitives.ciphers import algorithms, modes

from benchmarks.record import Context, Result, in_process, line
from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil.secure_sum.protocol_sum import ProtocolSum
from mapveil.secure_sum.server import Server
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.certificate import Credentials
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.secure_sum.masks import Cipher, Purpose, add_masks, agree, info, word_type
from mapveil_client.secure_sum.messages import SIGNATURE_BYTES, roster_entry_bytes, usual_size
from mapveil_client.secure_sum.round_parameters import RoundParameters, SumSettings
from mapveil_client.secure_sum.states import sent_messages, server_phases
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors, packed_size

LIMIT = 120.0
BITS = 20
PIECE = 1 << 18


def cpu(call: Callable[[], object]) -> float:
    """Processor seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def exchange_seconds() -> float:
    """Of one X25519 key agreement, bare."""
    private, public = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    return min(cpu(lambda: [private.exchange(public) for _ in range(500)]) for _ in range(5)) / 500


def keystream_seconds(cipher: Cipher) -> float:
    """Of one byte of keystream, bare, in pieces that stay in the cache."""
    zeros, room = bytes(PIECE), bytearray(PIECE + 15)
    stream = (
        Library(algorithms.AES(bytes(32)), modes.CTR(bytes(16)))
        if cipher is Cipher.AES_256_CTR
        else Library(algorithms.ChaCha20(bytes(32), bytes(16)), None)
    ).encryptor()
    return min(cpu(lambda: [stream.update_into(zeros, room) for _ in range(200)]) for _ in range(5)) / (
        200 * PIECE
    )


class Phases(NamedTuple):
    """Processor seconds of one round: per client (mean) of each phase, and of the server in all."""

    keys: float
    shares: float
    mask: float
    answer: float  # and, in an active round, its consent
    server: float
    unmask: float  # of that, the last step

    @property
    def client(self) -> float:
        """All phases of one client."""
        return self.keys + self.shares + self.mask + self.answer


def play(parameters: RoundParameters, dropped: int, seed: int) -> Phases:
    """Run one round in this process; the first ``dropped`` clients leave before their input."""
    generator = np.random.default_rng(seed)
    vectors = generator.integers(0, 100, (parameters.clients, min(parameters.length, 1_000)))
    rng = Randomness(seed)
    graph_seed = rng.words(32, np.uint8).tobytes()
    authority = EnrolmentAuthority("benchmark", Identity.draw(rng))
    server = Server(parameters, graph_seed, authority=authority.named)
    clients = []
    for i, row in enumerate(vectors):
        vector = np.resize(row, parameters.length)
        credentials = None
        if parameters.signed:
            identity = Identity.draw(rng)
            certificate = authority.certify(identity.public, time.time())
            credentials = Credentials(identity, certificate, authority.named)
        clients.append(Client(parameters, i, vector, Randomness(), credentials=credentials))
    outbox: dict[int, bytes] = {}
    spent, serving, unmasking = [], 0.0, 0.0
    for phase in range(len(server_phases(parameters.active))):
        answers, seconds = {}, 0.0
        for client in clients if phase < 2 else clients[dropped:]:
            start = time.process_time()
            answer = client.receive(outbox[client.client]) if phase else client.advertise()
            seconds += time.process_time() - start
            answers[client.client] = answer
        spent.append(seconds / len(answers))
        start = time.process_time()
        for i, data in answers.items():
            server.receive(i, data)
        received = time.process_time()
        outbox = dict(server.close_phase())
        unmasking = time.process_time() - received
        serving += time.process_time() - start
    wanted = np.resize(vectors[dropped:].sum(axis=0), parameters.length)
    if not np.array_equal(server.total, wanted.astype(np.uint64)):
        raise AssertionError("the sum is wrong")
    keys, shares, mask, *answering = spent
    return Phases(keys, shares, mask, sum(answering), serving, unmasking)


def parameters_of(
    clients: int, neighbours: int, threshold: int, length: int, dropped: int
) -> RoundParameters:
    """A round of a given graph."""
    return RoundParameters(
        round_id=b"benchmark",
        clients=clients,
        neighbours=neighbours,
        threshold=threshold,
        length=length,
        bits=BITS,
        minimum=clients - dropped,
    )


def by_phase(clients: int, exchange: float, byte: float) -> list[Result]:
    """A round at the shard size of the paper's tables, or less: each phase beside its limit."""
    settings = SumSettings(
        length=1_254, bits=BITS, corrupt=Fraction(1, 20), dropout=Fraction(1, 20), round_id=b"benchmark"
    )
    parameters = settings.parameters(clients)
    k, dropped = parameters.neighbours, clients // 20
    found = play(parameters, dropped, 1)
    stream = byte * parameters.length * word_type(BITS).itemsize
    kept = clients - dropped
    name = f"secure sum, n = {clients:,}, l = 1,254, k = {k}"
    rows = [
        ("a client's keys", found.keys, "2 X25519", 2 * exchange),
        ("a client's shares", found.shares, f"{k} X25519", k * exchange),
        ("a client's masked input", found.mask, f"{k} X25519 and {k + 1} keystreams", k * exchange + (k + 1) * stream),
        (
            "the server's unmasking",
            found.unmask,
            "its X25519 and keystreams",
            dropped * k * kept / clients * (exchange + stream) + kept * stream,
        ),
    ]  # fmt: skip
    return [
        line(f"{name}: {what}", 1e3 * figure, "ms", limit, 1e3 * least) for what, figure, limit, least in rows
    ]


def beside_stream(name: str, figure: float, least: float) -> Result:
    """A line that may cost twice the keystream it needs."""
    return line(name, 1e3 * figure, "ms", "the keystream alone", 1e3 * least, "<= 2 x", figure <= 2 * least)


def long_vectors(length: int, neighbours: int, exchange: float, byte: float) -> list[Result]:
    """Masks of long vectors beside their keystream: the kernel alone, then a client and the server whole."""
    rows = []
    seeds = [Randomness().words(32, np.uint8).tobytes() for _ in range(neighbours)]
    signs = [1, -1] * (neighbours // 2)
    for cipher, bits in itertools.product(Cipher, (BITS, 64)):
        vector = np.zeros(length, dtype=word_type(bits))
        figure = min(cpu(partial(add_masks, vector, seeds, signs, cipher)) for _ in range(3))
        least = keystream_seconds(cipher) * vector.nbytes * neighbours
        name = f"{neighbours} masks of {length:,} {8 * vector.itemsize}-bit words, {cipher.name}"
        rows.append(beside_stream(name, figure, least))
    clients, dropped = neighbours + 1, neighbours // 20
    found = play(parameters_of(clients, neighbours, 2 * neighbours // 3, length, dropped), dropped, 2)
    stream = byte * length * word_type(BITS).itemsize
    for what, figure, streams in (
        ("a client's masked input", found.mask, neighbours + 1),
        ("the server's unmasking", found.unmask, clients - dropped + dropped * (clients - dropped)),
    ):
        name = f"secure sum, {length:,} coordinates, k = {neighbours}: {what}"
        rows.append(beside_stream(name, figure, streams * stream))
    return rows


def message_bytes(parameters: RoundParameters) -> int:
    """Bytes that a client sends and receives at most, less its vector."""
    kinds = itertools.chain(*sent_messages(parameters.active))
    return sum(usual_size(parameters, kind) for kind in kinds) - packed_size(
        parameters.length, parameters.bits
    )


def signed_by_a_committee(clients: int, before: tuple[int, int], run: bool) -> list[Result]:
    """An active round beside one in which neighbours signed the survivors for each other: ``before``, its k and t.

    Bytes of the latter are those of today's messages with k signatures in place of the committee's part. Its
    processor time is that of its k and t without those signatures.
    """
    settings = SumSettings(
        length=1_254, bits=BITS, corrupt=Fraction(1, 20), dropout=Fraction(1, 20), round_id=b"b", active=True
    )
    ours = settings.parameters(clients)
    theirs = replace(ours, neighbours=before[0], threshold=before[1], committee=1, quorum=1)
    name, peer = f"active secure sum, n = {clients:,}", "where neighbours signed the survivors"
    added = SIGNATURE_BYTES * (theirs.neighbours - 1) - roster_entry_bytes(theirs)
    rows = [
        line(f"{name}: neighbours", ours.neighbours, "", peer, theirs.neighbours),
        line(f"{name}: threshold", ours.threshold, "", peer, theirs.threshold),
        line(f"{name}: committee", ours.committee, "", "its quorum", ours.quorum),
        line(
            f"{name}: a client's messages but for its vector",
            1e-3 * message_bytes(ours),
            "kB",
            peer,
            1e-3 * (message_bytes(theirs) + added),
        ),
    ]
    if run:
        found, other = (play(each, clients // 20, 5).client for each in (ours, theirs))
        rows.append(line(f"{name}: a client", 1e3 * found, "ms", f"{peer} (its k and t)", 1e3 * other))
    return rows


def shard(clients: int, active: bool) -> Result:
    """A whole shard on two processes, wall-clock."""
    generator = np.random.default_rng(3)
    entries = 5 * clients
    vectors = SparseVectors(
        clients,
        1_254,
        np.sort(generator.integers(0, clients, entries)),
        generator.integers(0, 1_254, entries),
        generator.integers(-9, 99, entries),
    )
    leaves = np.full(clients, Leaves.NEVER, dtype=np.int8)
    lost = generator.choice(clients, clients // 20, replace=False)
    leaves[lost] = generator.integers(Leaves.NOTHING, Leaves.INPUT, lost.size)
    settings = SumSettings(
        length=1_254,
        bits=BITS,
        corrupt=Fraction(1, 20),
        dropout=Fraction(1, 20),
        round_id=b"benchmark",
        active=active,
    )
    with ProtocolSum(workers=2) as driver:
        start = time.perf_counter()
        (found,) = driver.sums(
            vectors, np.array([0, clients]), leaves, settings, Randomness(), before_reveal=lambda _: None
        )
        seconds = time.perf_counter() - start
    if not np.array_equal(found.total, vectors.sum(leaves >= Leaves.INPUT).astype(np.uint64) % (1 << BITS)):
        raise AssertionError("the sum is wrong")
    server = "a malicious server" if active else "an honest but curious server"
    name = f"shard of {clients:,}, l = 1,254, 5 % lost, against {server}, 2 processes"
    holds = None if active else seconds <= LIMIT
    return line(name, seconds, "s", "the time allowed", LIMIT, "" if active else "<= 120 s", holds)


def beside_flower(python: str, clients: int, sliced: int) -> list[Result]:
    """The sizes of the notes, n = l = 1,000, k = 58, t = 40, 5 % lost; Flower's extrapolated from a slice."""
    length, neighbours, threshold, dropped = 1_000, 58, 40, clients // 20
    theirs = in_process(python, "peers/flower.py", clients, length, neighbours, threshold, dropped, sliced)
    ours = play(parameters_of(clients, neighbours, threshold, length, dropped), dropped, 4)
    name = f"secure sum, n = {clients:,}, l = 1,000, k = 58, t = 40"
    peer = f"Flower's SecAgg+ primitives (from {sliced} clients)"
    total, their_total = clients * ours.client + ours.server, clients * theirs["client"] + theirs["server"]
    return [
        line(f"{name}: a client", 1e3 * ours.client, "ms", peer, 1e3 * theirs["client"]),
        line(f"{name}: the server", ours.server, "s", peer, theirs["server"]),
        line(f"{name}: all", total, "s", peer, their_total, ">= 60 x", their_total >= 60 * total),
    ]


def run(context: Context) -> list[Result]:
    """Measure the primitives, the phases, the shards and the peer."""
    exchange, byte = exchange_seconds(), keystream_seconds(Cipher.AES_256_CTR)
    small = context.quick
    private, public = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key().public_bytes_raw()
    named = info(Purpose.PAIR_MASK, b"benchmark", b"")
    agreed = min(cpu(lambda: [agree(private, public, named) for _ in range(500)]) for _ in range(5)) / 500
    other = keystream_seconds(Cipher.CHACHA20)
    rows = [
        line("key agreement, X25519 and HKDF-SHA256", 1e-3 / agreed, "k/s", "X25519 alone", 1e-3 / exchange),
        line("AES-256-CTR keystream", 1e-9 / byte, "GB/s", "ChaCha20 keystream", 1e-9 / other),
        *by_phase(200 if small else 2_000, exchange, byte),
        *long_vectors(100_000 if small else 1_000_000, 100, exchange, byte),
    ]
    if context.flower:
        rows += beside_flower(context.flower, 100 if small else 1_000, 2 if small else 12)
    rows += signed_by_a_committee(10_000, (134, 103), run=False)
    rows += signed_by_a_committee(1_000, (108, 84), run=not small)
    return [*rows, shard(300 if small else 10_000, active=False), shard(300 if small else 2_000, active=True)]
