"""Devices in this process that talk to an engine, without HTTP: the real clients of every wing."""

from __future__ import annotations

import asyncio
import contextlib

import numpy as np
import pytest
from sqlalchemy import insert, select

from mapveil.collector.refusals import TooLate
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.rounds.offer import Offer
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import devices, enrolments, operators, rounds
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.contribution import Devices, client_report
from mapveil_client.local.message import write_reports
from mapveil_client.morton import interleave
from mapveil_client.random_features import report as projection_message
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.report import Visits, client_reports
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.secure_sum.states import ProtocolError
from mapveil_client.terms import CollectionTerms
from tests.authority import AUTHORITY, credentials_of

REGION = [-74.03, 40.69, -73.90, 40.83]
ACTOR = "operator 1"
TIME = "2026-01-01T00:00:00.000000+00:00"


class Killed(BaseException):
    """The process was killed here."""


class MortalStore(Store):
    """A store whose process dies at the commit of a given number, before or after it."""

    def __init__(self, url, *, clock, dies_at=None, after=False):
        super().__init__(url, clock=clock)
        self.dies_at, self.after, self.commits = dies_at, after, 0

    @contextlib.contextmanager
    def write(self):
        self.commits += 1
        dies = self.commits == self.dies_at
        if dies and not self.after:
            raise Killed
        with super().write() as connection:
            yield connection
        if dies and self.after:
            raise Killed


class Crowd:
    """Enrolled devices, each with one cell of the tiling; ``leaves[d]`` is the phase device d no longer answers in."""

    def __init__(self, store, count, *, seed=1):
        self.rng = Randomness(seed)
        self.identities = [Identity.draw(self.rng.child(f"identity {d}")) for d in range(count)]
        with store.write() as connection:
            if connection.execute(select(operators.c.id)).first() is None:
                connection.execute(
                    insert(operators).values(
                        id=1, name="o", role="admin", token_hash=bytes(32), created_at=TIME, expires_at=TIME
                    )
                )
                connection.execute(
                    insert(enrolments).values(
                        id=1,
                        name="e",
                        token_hash=bytes(32),
                        uses_left=0,
                        created_by=1,
                        created_at=TIME,
                        expires_at=TIME,
                    )
                )
            rows = [
                {"id": d + 1, "public_key": each.public, "enrolment": 1, "enrolled_at": TIME}
                for d, each in enumerate(self.identities)
            ]
            connection.execute(insert(devices), rows)
        self.count = count
        self.seed = seed
        self.leaves: dict[int, tuple[int, str]] = {}
        self.clients: dict[tuple[int, int], Client] = {}
        self.answers: dict[tuple[int, int, str], bytes] = {}  # kept until they are acknowledged, and after
        self.acknowledged: set[tuple[int, int, str]] = set()
        self.vectors: dict[int, np.ndarray] = {}
        self.gone: set[int] = set()
        self.joined: set[int] = set()

    def forget(self):
        """Begin again with another collection."""
        self.clients, self.answers, self.vectors, self.leaves = {}, {}, {}, {}
        self.acknowledged, self.gone, self.joined = set(), set(), set()

    def cells_on(self, tiling):
        """Where everybody is: crowded in few cells."""
        generator = np.random.default_rng(self.seed)
        return (generator.beta(1, 6, self.count) * tiling.size).astype(np.int64)

    async def join(self, engine, id):
        for device in range(1, self.count + 1):
            if device not in self.joined:
                try:
                    await engine.devices.join(id, device)
                except TooLate:
                    return
                self.joined.add(device)

    def local_reports(self, terms, rng=None):
        randomizer = terms.randomizer
        return write_reports(
            randomizer.randomize(self.cells_on(terms.cells), rng or self.rng.child("local")), randomizer
        )

    def feature_reports(self, terms):
        tiling, query = Offer(terms).tiling, terms.features_query
        places = np.stack(tiling.region.metric_projection.project(*tiling.centres(self.cells_on(tiling))))
        units = unit_frequencies(self.count, query.features, query.law, 2, self.rng.child("waves"))
        return projection_message.write_reports(client_reports(units, Visits(places), query), query)

    async def turn(self, engine, id, *, most=None):
        """Every device that has something to say in this phase says it; returns how many said something."""
        progress = engine.devices.progress(id)
        if progress.state == "open":
            await self.join(engine, id)
            return self.count
        if progress.state != "running" or progress.phase is None:
            return 0
        number, phase, said = progress.round, progress.phase, 0
        terms = CollectionTerms.decode(engine.devices.terms(id))
        announced = RoundAnnouncement.decode(engine.devices.announcement(id, number))
        for device in range(1, self.count + 1):
            if device in self.gone or (device, number, phase) in self.acknowledged:
                continue
            if self.leaves.get(device) == (number, phase):
                self.gone.add(device)
                continue
            if most is not None and said >= most:
                break
            body = self._answer(engine, id, terms, announced, number, phase, device)
            if body is None:
                continue
            await engine.devices.message(id, number, phase, device, body)
            self.acknowledged.add((device, number, phase))
            said += 1
        return said

    def _answer(self, engine, id, terms, announced, number, phase, device):
        key = (device, number, phase)
        if key in self.answers:
            return self.answers[key]
        if phase == "keys":
            from mapveil.collector.refusals import NotFound

            try:
                assigned = engine.devices.assignment(id, number, device)
            except NotFound:
                return None
            vector = self.vector(terms, announced, device)
            parameters = announced.parameters(assigned.shard)
            client = Client(
                parameters,
                assigned.client,
                vector,
                self.rng.child(f"client {device} {number}"),
                credentials=credentials_of(self.identities[device - 1]) if parameters.signed else None,
            )
            self.clients[device, number] = client
            self.answers[key] = client.advertise()
            return self.answers[key]
        client = self.clients.get((device, number))
        if client is None:
            return None
        try:
            message = engine.devices.server_message(id, number, device)
        except TooLate:  # its shard was left out
            return None
        assert message.phase == phase
        if not message.body:
            return None
        try:
            self.answers[key] = client.receive(message.body)
        except ProtocolError:
            self.gone.add(device)
            raise
        return self.answers[key]

    def vector(self, terms, announced, device):
        """What a device adds to a round, noise and all: the same whenever it is asked."""
        lattice = terms.cells.lattice()
        cell = self.cells_on(terms.cells)[device - 1]
        site = interleave(lattice.row[cell : cell + 1], lattice.col[cell : cell + 1])
        made = client_report(
            Devices(site),
            announced.query,
            announced.alpha,
            announced.scale,
            announced.rounding,
            Randomness(1000 * self.seed + device).child(f"round {announced.number}"),
        )
        vector = np.zeros(announced.length, dtype=np.int64)
        np.add.at(vector, made.position, made.value)
        self.vectors[device, announced.number] = vector
        return vector

    def play_until(self, engine, id, phase):
        """Devices and conductor in turn, until a phase begins."""
        while engine.collection(id)["progress"]["phase"] != phase:
            asyncio.run(self.turn(engine, id))
            engine.tick()

    def play(self, engine, id, clock=None, *, turns=400):
        """Devices and conductor in turn, until the collection has ended."""
        for _ in range(turns):
            engine.tick()
            state = engine.collection(id)["state"]
            if state in ("done", "aborted"):
                return state
            said = asyncio.run(self.turn(engine, id))
            if not said and clock is not None:
                clock.advance(61)
        raise AssertionError("the collection does not end")


def spec_of(trust, **changes):
    made = {
        "title": "Where people are",
        "trust": trust,
        "region": REGION,
        "tiling": "quadtree:3",
        "devices": 24,
        "phase_seconds": 60,
        "epsilon": "2",
        "accept_custom_policy": True,
    }
    if trust == "random-features":
        made.update(epsilon=None, tiling="grid:16x16", options={"least_signal": 0})
    if trust == "distributed":
        made["options"] = {"shard_size": 12, "tolerated_dropout": 0.25, "corrupt": 0}
    return {**{key: value for key, value in made.items() if value is not None}, **changes}


@pytest.fixture(scope="session")
def make_spec():
    return spec_of


@pytest.fixture(scope="session")
def crowd_of():
    return Crowd


@pytest.fixture(scope="session")
def mortal_store():
    return MortalStore, Killed


@pytest.fixture
def engine(store, clock):
    return Engine(store, clock, Randomness(7), authority=AUTHORITY)


@pytest.fixture
def opened():
    """Draft and open a collection; returns its identifier and terms."""

    def made(engine, spec):
        id = engine.create(spec, ACTOR)["id"]
        engine.open(id, ACTOR)
        return id, CollectionTerms.decode(engine.devices.terms(id))

    return made


@pytest.fixture(scope="session")
def totals_of():
    """The stored sums of a collection's rounds, with how many devices are in each."""

    def read(store, id):
        query = select(rounds.c.number, rounds.c.total, rounds.c.included).where(rounds.c.collection == id)
        with store.read() as connection:
            return {
                row.number: (
                    None if row.total is None else np.frombuffer(row.total, dtype="<i8"),
                    row.included,
                )
                for row in connection.execute(query)
            }

    return read
