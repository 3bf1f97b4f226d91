"""The vectors on file: whole rounds byte for byte, and messages that must be refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import mapveil_client.secure_sum.states
from mapveil.secure_sum.server import Server
from mapveil_client.canonical_cbor import decode
from mapveil_client.secure_sum.certificate import Authority, Certificate, Credentials
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.graph import harary_graph, permutation
from mapveil_client.secure_sum.keys import Identity, draw_graph_seed
from mapveil_client.secure_sum.states import ClientState, Message, ServerState
from tests.secure_sum.make_vectors import FOLDER, files
from tests.secure_sum.vector_rounds import Tape, parameters_of

VECTORS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
REFUSED = VECTORS.pop("refused")["cases"]


def credentials_of(vector: dict, given: dict) -> Credentials | None:
    if not given["identity"]:
        return None
    identity, certificate = (bytes.fromhex(given[name]) for name in ("identity", "certificate"))
    authority = Authority.parse(vector["authority"])
    return Credentials(Identity(identity), Certificate.decode(certificate), authority, lambda: vector["time"])


class Playback:
    """The parties of a vector, run event by event."""

    def __init__(self, vector: dict) -> None:
        self.parameters = parameters_of(vector)
        authority = Authority.parse(vector["authority"]) if vector["authority"] else None
        self.inputs: dict[int, bytes] = {}
        seed = bytes.fromhex(vector["server_seed"])
        self.server = Server(self.parameters, seed, authority=authority, reread=self.inputs.__getitem__)
        self.clients = [
            Client(
                self.parameters,
                i,
                np.array(given["vector"], dtype=np.uint64),
                Tape(played=bytes.fromhex(given["tape"])),
                credentials=credentials_of(vector, given),
            )
            for i, given in enumerate(vector["clients"])
        ]
        self.written = {i: client.advertise() for i, client in enumerate(self.clients)}
        self.outbox: dict[int, bytes] = {}

    def step(self, event: dict) -> None:
        """One event: every byte that a party writes must be the vector's, save what it alters."""
        if "from" in event:
            data = bytes.fromhex(event["message"])
            assert (self.written.pop(event["from"]) == data) is ("altered" not in event)
            if self.server.state is ServerState.INPUTS:
                self.inputs[event["from"]] = data
            self.server.receive(event["from"], data)
        elif "to" in event:
            data = bytes.fromhex(event["message"])
            assert self.outbox[event["to"]] == data
            self.written[event["to"]] = self.clients[event["to"]].receive(data)
        else:
            assert self.server.state.name == event["close"]
            self.outbox = dict(self.server.close_phase())


def test_the_files_are_current():
    assert {path.name for path in FOLDER.glob("*.json")} == set(files())
    for name, text in files().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, (
            "run: python -m tests.secure_sum.make_vectors"
        )


@pytest.mark.parametrize("name", VECTORS)
def test_a_round_runs_byte_for_byte(name):
    vector = VECTORS[name]
    parties = Playback(vector)
    assert parties.parameters.digest.hex() == vector["digest"]
    for event in vector["events"]:
        parties.step(event)
    assert parties.server.state is ServerState.DONE
    assert np.flatnonzero(parties.server.included).tolist() == vector["included"]
    assert parties.server.total.tolist() == vector["total"]
    assert all(not client._steps.rng.tape for client in parties.clients if client.state is ClientState.DONE)


def test_who_makes_a_wrong_box_is_complained_of_and_left_out():
    vector = VECTORS["wrong_boxes"]
    parties = Playback(vector)
    complaints = 0
    for event in vector["events"]:
        parties.step(event)
        values = decode(bytes.fromhex(event["message"])) if "from" in event else [0, 0]
        complaints += values[1] == Message.MASKED_INPUT and len(values[6]) > 0
    wrong = sorted({event["from"] for event in vector["events"] if "altered" in event})
    assert complaints == len(wrong) == 2
    assert np.flatnonzero(~parties.server.included).tolist() == wrong
    assert [(fault.client, fault.proven) for fault in parties.server.faults] == [
        (each, True) for each in wrong
    ]


@pytest.mark.parametrize("name", VECTORS)
def test_the_total_is_the_sum_and_the_graph_that_of_the_seed(name):
    vector = VECTORS[name]
    settings = vector["parameters"]
    rows = [vector["clients"][i]["vector"] for i in vector["included"]]
    assert vector["total"] == [sum(column) % 2 ** settings["bits"] for column in zip(*rows, strict=True)]
    roster = next(event for event in vector["events"] if "to" in event)
    graph = decode(bytes.fromhex(roster["message"]))[4]
    assert graph[:32].hex() == vector["server_seed"]
    seed = draw_graph_seed(parameters_of(vector), graph)
    assert (graph == seed) is not settings["active"]
    assert vector["graph_seed"] == seed.hex()
    order = permutation(settings["clients"], seed)
    assert vector["order"] == order.tolist()
    assert vector["neighbours"] == harary_graph(settings["clients"], settings["neighbours"], order).tolist()


def test_the_rounds_cover_what_rounds_can_differ_in():
    settings = [vector["parameters"] for vector in VECTORS.values()]
    assert {s["cipher"] for s in settings} == {"AES_256_CTR", "CHACHA20"}
    assert {(s["signed"], s["active"]) for s in settings} == {(False, False), (True, False), (True, True)}
    assert {s["neighbours"] < s["clients"] - 1 for s in settings} == {True, False}
    assert any(len(v["included"]) < v["parameters"]["clients"] for v in VECTORS.values())


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case['name']}: {case['fault']}")
def test_a_message_is_refused(case):
    vector = VECTORS[case["round"]]
    fault = getattr(mapveil_client.secure_sum.states, case["fault"])
    parties = Playback(vector)
    for event in vector["events"][: case["after"]]:
        parties.step(event)
    data = bytes.fromhex(case["message"])
    if "then" in case:
        spoils_the_end(parties, vector["events"][case["after"] + 1 :], case, fault)
        return
    if "to" in case:
        party = parties.clients[case["to"]]
        state, receive = party.to_state, lambda: party.receive(data)
    else:
        party = parties.server
        sender = case.get("as", case["from"])
        state, receive = party.fingerprint, lambda: party.receive(sender, data)
    before = state()
    with pytest.raises(fault, match=case["says"]):
        receive()
    if fault is mapveil_client.secure_sum.states.PeerFault:
        assert state() == before
    else:
        assert party.state is ClientState.ABORTED


def spoils_the_end(parties, events, case, fault) -> None:
    """A message that looks right: the server takes it, and then cannot finish."""
    parties.server.receive(case["from"], bytes.fromhex(case["message"]))
    parties.written.pop(case["from"])
    last = max(i for i, event in enumerate(events) if "close" in event)
    for event in events[:last]:
        parties.step(event)
    with pytest.raises(fault, match=case["says"]):
        parties.step(events[last])
    assert parties.server.state is ServerState.ABORTED
