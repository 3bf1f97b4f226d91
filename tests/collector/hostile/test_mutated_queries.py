"""Altered queries of private retrieval: answered or refused, soon, and the map and the books stay as they were."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mapveil.retrieval.pir_client import Client
from mapveil_client.local.message import write_reports
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms

from .addresses import shaped, snapshot
from .mutants import KINDS, Mutants, Spoken

QUERIES: Final = 600
PEOPLE: Final = 10


def test_altered_queries_change_nothing(api: Any) -> None:
    id = api.opened(devices=PEOPLE, minimum=3)
    randomizer = CollectionTerms.decode(api.engine.devices.terms(id)).randomizer
    reports = write_reports(randomizer.randomize(np.arange(PEOPLE), Randomness(3)), randomizer)
    phones = api.phones(PEOPLE)
    for phone, report in zip(phones, reports, strict=True):
        phone.ask("PUT", f"/v1/collections/{id}/report", bytes(report))
    api.tick(3)
    at, phone = f"/v1/collections/{id}/retrieval", phones[0]
    offer = phone.ask("GET", f"{at}/offer")
    client = Client(offer.content)
    for part in range(int(offer.headers["mapveil-parts"])):
        client.receive_hint(phone.ask("GET", f"{at}/hint/{part}").content)
    query = client.query(1)
    right = phone.ask("POST", f"{at}/query", query.message).content
    mutants = Mutants(
        4, [Spoken(1, 1, "", query.message), Spoken(1, 1, "", offer.content), Spoken(1, 1, "", right)]
    )
    before, seen, answered = snapshot(api.store), set(), 0
    for _ in range(QUERIES):
        kind, body = mutants.alter(query.message)
        seen.add(kind)
        if not body:
            continue
        answer = phone.ask("POST", f"{at}/query", body)
        if answer.status_code == 200:
            assert len(answer.content) <= 2 * len(right) + 1000
            answered += 1
        else:
            assert shaped(answer) in ("invalid", "too-large")
    assert seen == set(KINDS)
    assert 0 < answered < QUERIES
    assert snapshot(api.store) == before
    assert client.open(query.opening, phone.ask("POST", f"{at}/query", query.message).content) is not None
