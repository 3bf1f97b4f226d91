"""Whole rounds of the secure sum, byte for byte, from fixed seeds: what the test vectors hold."""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil.secure_sum.server import Server
from mapveil_client.canonical_cbor import decode, encode
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.boxes import pair_digest, seal_box, sealing_key, tag_key
from mapveil_client.secure_sum.certificate import Certificate, Credentials
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.graph import Ring
from mapveil_client.secure_sum.keys import (
    Identity,
    pair_key,
    seed_commitment,
    self_mask_seed,
)
from mapveil_client.secure_sum.masks import PROTOCOL, VERSION, Cipher, Purpose
from mapveil_client.secure_sum.messages import BOX_BYTES, BOX_TAG, KEY_BYTES, SHARE_BYTES
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.states import ServerState
from tests.secure_sum.altered_messages import flip

AUTHORITY = EnrolmentAuthority("vectors", Identity(bytes(range(32))))
NOW = 1_780_000_000  # seconds since 1970: the time at which certificates are issued and judged

ROUNDS: dict[str, dict] = {
    "semi_honest": {
        "clients": 5, "neighbours": 4, "threshold": 3, "length": 3, "bits": 10, "minimum": 3,
        "cipher": "AES_256_CTR", "signed": False, "active": False, "arrive": [4, 4, 4, 4, 4],
    },
    "dropouts": {
        "clients": 7, "neighbours": 4, "threshold": 2, "length": 4, "bits": 33, "minimum": 4,
        "cipher": "CHACHA20", "signed": True, "active": False, "arrive": [4, 2, 4, 0, 4, 3, 4],
    },
    "active": {
        "clients": 5, "neighbours": 4, "threshold": 3, "length": 2, "bits": 64, "minimum": 3,
        "cipher": "AES_256_CTR", "signed": True, "active": True, "committee": 4, "quorum": 3, "arrive": [5, 5, 2, 5, 5],
    },
    "wrong_boxes": {
        "clients": 8, "neighbours": 6, "threshold": 4, "length": 2, "bits": 40, "minimum": 4,
        "cipher": "AES_256_CTR", "signed": True, "active": True, "committee": 6, "quorum": 4, "arrive": [5] * 8,
    },
}  # fmt: skip


WRONG = {"wrong_boxes": {2: "tag", 5: "shares"}}
"""By round and client: its first box carries another tag, or shares that are no shares."""


class Tape(Randomness):
    """Randomness that writes down what was drawn, or plays back what was written."""

    def __init__(self, seed: int = 0, played: bytes | None = None) -> None:
        super().__init__(seed)
        self.tape = b"" if played is None else played
        self.playing = played is not None

    def words(self, count: int, dtype: object) -> np.ndarray:
        size = count * np.dtype(dtype).itemsize
        if self.playing:
            drawn, self.tape = self.tape[:size], self.tape[size:]
            return np.frombuffer(drawn, dtype=dtype).copy()
        made = super().words(count, dtype)
        self.tape += made.tobytes()
        return made


def credentials_of(identity: bytes, certificate: bytes) -> Credentials | None:
    """The credentials of a private key and an encoded certificate; none without a key."""
    if not identity:
        return None
    return Credentials(Identity(identity), Certificate.decode(certificate), AUTHORITY.named, lambda: NOW)


def parameters_of(vector: dict) -> RoundParameters:
    """The parameters that a vector states."""
    given = dict(vector["parameters"])
    given |= {name: bytes.fromhex(given[name]) for name in ("round_id", "context")}
    return RoundParameters(**{**given, "cipher": Cipher[given["cipher"]]})


def spoil(client: Client, server: Server, data: bytes, wrong: str) -> bytes:
    """A SHARES of a client that makes its first box wrong, so that the holder complains of it."""
    values, memory = decode(data), client._memory
    box, rest = values[5][:BOX_BYTES], values[5][BOX_BYTES:]
    if wrong == "tag":
        box = flip(box, BOX_TAG.start)
    else:
        dealer, pair = client.client, memory.box_pairs[:KEY_BYTES]
        holder = int(server._ring.neighbours[dealer, 0])
        none = b"\xff" * (2 * SHARE_BYTES)
        box = seal_box(client.parameters, memory.graph_seed, pair, dealer, holder, none)
    return encode([*values[:5], box + rest])


def make_round(name: str) -> dict:
    """A whole round as a vector."""
    settings = dict(ROUNDS[name])
    arrive = settings.pop("arrive")
    settings = {"round_id": f"round {name}".encode().hex(), "context": b"vectors".hex(), **settings}
    vector: dict = {"protocol": PROTOCOL.decode(), "version": VERSION, "parameters": settings}
    parameters = parameters_of(vector)
    rng = Randomness(len(name))
    seed = rng.words(32, np.uint8).tobytes()
    tapes = [Tape(1000 + i) for i in range(parameters.clients)]
    identities = [rng.words(32, np.uint8).tobytes() if parameters.signed else b"" for _ in tapes]
    certificates = [
        AUTHORITY.certify(Identity(each).public, NOW, serial=100 + i).encode() if each else b""
        for i, each in enumerate(identities)
    ]
    numbers = rng.words(parameters.clients * parameters.length, np.uint64) >> np.uint64(64 - parameters.bits)
    rows = numbers.reshape(parameters.clients, -1)
    clients = [
        Client(parameters, i, rows[i], tape, credentials=credentials_of(identities[i], certificates[i]))
        for i, tape in enumerate(tapes)
    ]
    events: list[dict] = []

    def reread(client: int) -> bytes:
        return bytes.fromhex([event["message"] for event in events if event.get("from") == client][2])

    authority = AUTHORITY.named if parameters.signed else None
    server = Server(parameters, seed, authority=authority, reread=reread)
    written = {i: client.advertise() for i, client in enumerate(clients)}
    for phase in range(1, 9):
        for i, data in written.items():
            if arrive[i] >= phase:
                wrong = WRONG.get(name, {}).get(i) if phase == 2 else None
                if wrong:
                    data = spoil(clients[i], server, data, wrong)
                server.receive(i, data)
                events.append({"from": i, "message": data.hex()} | ({"altered": wrong} if wrong else {}))
        events.append({"close": server.state.name})
        outbox = server.close_phase()
        if server.state is ServerState.DONE:
            break
        written = {}
        for i, data in outbox.items():
            if arrive[i] > phase:
                written[i] = clients[i].receive(data)
                events.append({"to": i, "message": data.hex()})
    ring = server._ring
    return {
        **vector,
        "digest": parameters.digest.hex(),
        "server_seed": seed.hex(),
        "graph_seed": ring.seed.hex(),
        "order": ring.order.tolist(),
        "neighbours": ring.neighbours.tolist(),
        "authority": str(AUTHORITY.named) if parameters.signed else "",
        "time": NOW,
        "clients": [
            {
                "vector": rows[i].tolist(),
                "identity": identities[i].hex(),
                "certificate": certificates[i].hex(),
                "tape": tape.tape.hex(),
            }
            for i, tape in enumerate(tapes)
        ],
        "derived": derived(parameters, [tape.tape for tape in tapes], ring),
        "events": events,
        "included": np.flatnonzero(server.included).tolist(),
        "total": server.total.tolist(),
    }


def derived(parameters: RoundParameters, tapes: list[bytes], ring: Ring) -> dict:
    """Every seed, key and hash that the first client derives."""
    keys = [
        [X25519PrivateKey.from_private_bytes(t[at : at + KEY_BYTES]) for at in (0, KEY_BYTES)] for t in tapes
    ]
    seed = tapes[0][2 * KEY_BYTES : 3 * KEY_BYTES]
    pairs = []
    for other in ring.neighbours[0].tolist():
        mask, sealing = (key.public_key().public_bytes_raw() for key in keys[other])
        pair = pair_key(parameters, Purpose.SEALING, ring.seed, keys[0][1], sealing, 0, other)
        mask_seed = pair_key(parameters, Purpose.PAIR_MASK, ring.seed, keys[0][0], mask, 0, other)
        out, back = sealing_key(pair, 0, other), sealing_key(pair, other, 0)
        tags = [tag_key(parameters, key) for key in (out, back)]
        hashes = [hashlib.sha256(key).digest() for key in tags]
        pairs.append(
            {
                "other": other,
                "mask_seed": mask_seed.hex(),
                "sealing_key_out": out.hex(),
                "sealing_key_in": back.hex(),
                "tag_key_out": tags[0].hex(),
                "tag_key_in": tags[1].hex(),
                "pair_digest": pair_digest(parameters, 0, other, *hashes).hex(),
            }
        )
    return {
        "client": 0,
        "self_mask_seed": self_mask_seed(parameters, ring.seed, 0, seed).hex(),
        "commitment": seed_commitment(parameters, ring.seed, 0, seed).hex(),
        "pairs": pairs,
    }
