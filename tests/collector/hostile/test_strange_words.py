"""A server that answers anything at all: a device's own loop goes on, spends nothing, and asks again."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pytest

from mapveil_client.connection import Answer, Connection, Progress, ServerRefusal, Unreachable
from mapveil_client.device_client import DeviceClient
from mapveil_client.device_locations import Whereabouts
from mapveil_client.memory import DeviceMemory
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from tests.authority import NAMED, certified

from .test_mutated_documents import STRANGE, announced_of, terms_of

ID: Final = "ab" * 16
AT: Final = f"/v1/collections/{ID}"
NOT_JSON: Final = (
    b"",
    b"{",
    b"\xff\xfe",
    b"null",
    b"[" * 100_000,
    b"9" * 5000,
    b"<html>",
    bytes(1000),
    b'"\\ud800"',
)
STATUSES: Final = (
    201,
    204,
    301,
    302,
    307,
    400,
    401,
    403,
    404,
    409,
    410,
    413,
    418,
    422,
    431,
    451,
    499,
    600,
    999,
)


class Canned(Connection):
    """Answers by heart: an honest round's first steps, but for what a test changes. What is never sent is counted."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9", patience_s=0.0, transport=lambda endpoint: self)
        terms = terms_of("distributed")
        progress = {"state": "running", "round": 1, "phase": "keys", "open": True, "closes_in_s": 9.5}
        self.answers: dict[str, Any] = {
            "/v1/open": [{"id": ID, "trust": terms.trust, "title": terms.title, "terms": terms.digest.hex()}],
            f"{AT}/terms": terms.to_record(),
            f"{AT}/progress": {**progress, "wanted": 24, "present": 24},
            f"{AT}/rounds/1": announced_of(terms).to_record(),
            f"{AT}/rounds/1/assignment": {"shard": 0, "client": 3},
            f"{AT}/rounds/1/server-message": b"",
            "/v1/devices": {"device": 7},
        }
        self.status = dict.fromkeys(self.answers, 200)
        self.sent: list[tuple[str, bytes]] = []

    async def exchange(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        if method == "PUT":
            self.sent.append((path, body))
            return Answer(204, "", {}, b"")
        if path not in self.answers:
            return Answer(404, "Not Found", {}, b"{}")
        made = self.answers[path]
        content = made if isinstance(made, bytes) else json.dumps(made).encode()
        return Answer(self.status[path], "so", {"mapveil-phase": "keys"}, content)

    async def aclose(self) -> None:
        pass


async def _looks(connection: Canned, times: int = 3) -> DeviceClient:
    """A device's own loop, for a few looks."""
    place = Whereabouts(np.array([-73.97]), np.array([40.77]))

    async def at_once(job: Callable[[], Any]) -> Any:
        return job()

    client = DeviceClient(
        connection,
        DeviceMemory.open(rng=Randomness(1)),
        DevicePolicy(authority=NAMED),
        place,
        work=at_once,
        rng=Randomness(1),
    )
    client.memory.device = 7
    certified(client.memory)
    poll, seen = client.poll, 0

    async def counted() -> bool:
        nonlocal seen
        if seen == times:
            raise asyncio.CancelledError
        seen += 1
        return await poll()

    client.poll = counted  # type: ignore[method-assign]
    with contextlib.suppress(asyncio.CancelledError):
        await client.run(pause_s=0)
    assert seen == times
    return client


def looks(change: Callable[[Canned], None]) -> tuple[Canned, DeviceClient]:
    connection = Canned()
    change(connection)
    client = asyncio.run(_looks(connection))
    assert client.memory.account.spent == 0
    assert not [path for path, _ in connection.sent if path.endswith(("shares", "inputs", "report"))]
    for line in client.memory.log.lines:
        assert line.text.isprintable()
    return connection, client


def test_the_answers_known_by_heart_are_those_of_an_honest_server() -> None:
    connection, _ = looks(lambda canned: None)
    assert [path for path, _ in connection.sent] == [f"{AT}/members/me", f"{AT}/rounds/1/messages/keys"]


PATHS: Final = tuple(Canned().answers)[:-1]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.rsplit("/", 1)[1])
def test_anything_in_place_of_an_answer_is_survived(path: str) -> None:
    for content in NOT_JSON:
        looks(lambda canned, content=content: canned.answers.update({path: content}))
    for value in STRANGE:
        looks(lambda canned, value=value: canned.answers.update({path: value}))


@pytest.mark.parametrize("path", PATHS[:-1], ids=lambda path: path.rsplit("/", 1)[1])
def test_anything_in_place_of_a_value_is_survived(path: str) -> None:
    def put(canned: Canned, name: str, value: Any, missing: bool) -> None:
        record = canned.answers[path]
        record = record[0] if isinstance(record, list) else record
        if missing:
            del record[name]
        else:
            record[name] = value

    record = Canned().answers[path]
    names = list(record[0] if isinstance(record, list) else record)
    chance = np.random.default_rng(5)
    for name in names:
        looks(lambda canned, name=name: put(canned, name, None, True))
        few = chance.choice(len(STRANGE), 8, replace=False) if len(names) > 5 else range(len(STRANGE))
        for at in few:
            looks(lambda canned, name=name, at=at: put(canned, name, STRANGE[at], False))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.rsplit("/", 1)[1])
def test_any_status_is_survived(path: str) -> None:
    for status in STATUSES:
        _, client = looks(lambda canned, status=status: canned.status.update({path: status}))
        if not 200 <= status < 300:
            assert client.memory.log.lines


@pytest.mark.parametrize("listed", [0, 1, 200_000])
def test_a_list_of_collections_without_end_is_read_to_its_hundredth(listed: int) -> None:
    def change(canned: Canned) -> None:
        canned.answers["/v1/open"] = [{"id": f"{number:032x}"} for number in range(listed)]

    _, client = looks(change)
    assert len(client.memory.refused) <= 100
    assert not client.memory.parts


def test_an_enrolment_that_names_no_device_is_none() -> None:
    async def enrol(answer: Any) -> int:
        connection = Canned()
        connection.answers["/v1/devices"] = answer
        place = Whereabouts(np.array([-73.97]), np.array([40.77]))
        memory = DeviceMemory.open(rng=Randomness(1))
        client = DeviceClient(connection, memory, DevicePolicy(authority=NAMED), place)
        try:
            return await client.enrol("mve_" + "a" * 43)
        finally:
            assert memory.device is None or memory.device >= 0

    for value in STRANGE:
        for answer in (value, {"device": value}):
            if isinstance(answer, dict) and type(value) is int and value >= 0:
                assert asyncio.run(enrol(answer)) == value
            else:
                with pytest.raises((Unreachable, ServerRefusal)):
                    asyncio.run(enrol(answer))


def test_progress_is_numbers_and_words_or_nothing() -> None:
    async def read(record: Any) -> Progress:
        connection = Canned()
        connection.answers[f"{AT}/progress"] = record
        return await connection.progress(ID)

    right = Canned().answers[f"{AT}/progress"]
    for name in right:
        for value in STRANGE:
            try:
                made = asyncio.run(read({**right, name: value}))
            except Unreachable:
                continue
            assert isinstance(made.round, int)
            assert isinstance(made.present, int)
            assert isinstance(made.open, bool)
