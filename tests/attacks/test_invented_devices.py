"""A malicious server that makes up every device of a sum but one: without certificates it had that device's cell.

What is left of the noise is the device's own share, 1/21 of a discrete Laplace variable in a sum of 24.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil.secure_sum.server import Server, any_identity
from mapveil_client.memory import DeviceMemory
from mapveil_client.participation import DeviceRefusal, Participation
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.certificate import CLOCKS_S, Authority, Certificate, Credentials
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.secure_sum.states import ServerState, phase_name
from tests.authority import AUTHORITY, NAMED, certificate_of, certified

from ..client.conftest import make_announcement, make_terms, somewhere

NOW = 1_790_000_000.0


def play(devices: int, seed: int, certifies: EnrolmentAuthority, memory: DeviceMemory) -> tuple[int, int]:
    """The cell of the device with a memory, as the server finds it and as it is; the server makes up all others."""
    terms = make_terms(devices=devices, minimum=devices * 5 // 6)
    announced = make_announcement(terms)
    parameters = announced.parameters(0)
    certified(memory)
    place = somewhere(seed)
    victim = Participation(memory, DevicePolicy(authority=NAMED), terms, place, Randomness(seed), lambda: NOW)
    victim.join()
    zeros = np.zeros(parameters.length, dtype=np.int64)

    def invented(client: int) -> Client:
        rng = Randomness(seed).child(f"invented {client}")
        identity = Identity.draw(rng)
        certificate = certifies.certify(identity.public, NOW)
        own = Credentials(identity, certificate, certifies.named, lambda: NOW)
        return Client(parameters, client, zeros, rng, credentials=own)

    made = {client: invented(client) for client in range(1, devices)}
    server = Server(parameters, Randomness(seed).words(32, np.uint8).tobytes(), enrolled=any_identity)
    inbox = {0: victim.begin(announced, 0, 0), **{each: client.advertise() for each, client in made.items()}}
    while True:
        for client, message in inbox.items():
            server.receive(client, message)
        outbox = server.close_phase()
        if server.state is ServerState.DONE:
            break
        phase = phase_name(server.state)
        # The victim first: it decides whether the rest is worth while.
        inbox = {0: victim.answer(announced, phase, outbox[0])}
        inbox |= {client: made[client].receive(outbox[client]) for client in outbox if client}
    half = 1 << (parameters.bits - 1)
    vector = (server.total.astype(np.int64) + half) % (2 * half) - half
    site = announced.query.encoding.positions(place.devices(terms).sites)
    return int(np.argmin(np.abs(vector - announced.scale))), int(site.ravel()[0])


@pytest.mark.parametrize("devices", [24, 100, 1000])
@pytest.mark.parametrize("population", [NAMED.population, "another"])
def test_a_device_among_invented_ones_sends_nothing_of_where_it_is(devices: int, population: str) -> None:
    """The server's own authority is not the policy's, whatever population it names."""
    forger = EnrolmentAuthority(population, Identity(bytes([1] * 32)))
    memory = DeviceMemory.open(rng=Randomness(1001))
    with pytest.raises(DeviceRefusal, match="not by the enrolment authority of tests"):
        play(devices, 1, forger, memory)
    assert memory.account.spent == 0
    assert [part.state for part in memory.parts.values()] == ["left"]


def test_whoever_holds_the_authoritys_key_can_still_invent_devices() -> None:
    """The guarantee's assumption about the authority is needed: this is the attack as it was."""
    memories = [DeviceMemory.open(rng=Randomness(1000 + seed)) for seed in range(8)]
    found = [play(24, seed, AUTHORITY, memory) for seed, memory in enumerate(memories)]
    hits = sum(guess == truth for guess, truth in found)
    sys.stdout.write(f"the cell was found in {hits} of {len(found)} sums of 24 devices\n")
    assert hits >= 5
    assert all(memory.account.spent == 1 for memory in memories)


@pytest.mark.parametrize(
    ("authority", "says"),
    [
        (None, "names no enrolment authority"),
        (Authority("another", NAMED.key), "must be another:"),
        (Authority(NAMED.population, Identity(bytes([1] * 32)).public), "enrolment authority must be tests:"),
    ],
)
def test_a_device_joins_no_active_sum_of_another_authority(authority: Authority | None, says: str) -> None:
    memory = DeviceMemory.open(rng=Randomness(1))
    certified(memory)
    device = Participation(memory, DevicePolicy(authority=authority), make_terms(), somewhere(1))
    with pytest.raises(DeviceRefusal, match=says):
        device.join()
    assert not memory.account.entries


@pytest.mark.parametrize(
    ("certificate", "says"),
    [
        (lambda own: None, "has no certificate"),
        (lambda own: certificate_of(own, expires=int(NOW)), "must be valid at"),
        (lambda own: certificate_of(own, not_before=int(NOW) + CLOCKS_S + 1), "must be valid at"),
        (lambda own: certificate_of(Identity(bytes([2] * 32))), "of another key"),
        (lambda own: certificate_of(own, population="others"), "must be of population tests"),
        (
            lambda own: EnrolmentAuthority("tests", own).certify(own.public, NOW),
            "not by the enrolment authority",
        ),
    ],
)
def test_a_device_without_a_certificate_of_its_own_does_not_join(certificate, says: str) -> None:
    memory = DeviceMemory.open(rng=Randomness(1))
    made: Certificate | None = certificate(memory.identity)
    certified(memory).certificate = made
    policy = DevicePolicy(authority=NAMED)
    device = Participation(memory, policy, make_terms(), somewhere(1), now=lambda: NOW)
    with pytest.raises(DeviceRefusal, match=says):
        device.join()
