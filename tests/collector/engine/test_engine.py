"""Whole collections through the engine: the right answer, from whoever is left, charged once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from mapveil.collector.rounds.engine import Engine
from mapveil.collector.rounds.offer import Offer
from mapveil.collector.rounds.results import guarantee_of
from mapveil.maps.density_map import DensityMap
from mapveil.maps.provenance import Provenance
from mapveil.privacy.claim import AccountReference


def send_reports(engine, id, bodies, first=1):
    async def send():
        await asyncio.gather(*(engine.devices.report(id, first + d, body) for d, body in enumerate(bodies)))

    asyncio.run(send())


def test_a_local_collection_ends_with_the_map_of_its_reports(
    engine, store, clock, crowd_of, opened, make_spec
):
    crowd = crowd_of(store, 24)
    id, terms = opened(engine, make_spec("local"))
    bodies = crowd.local_reports(terms)
    send_reports(engine, id, bodies[:23])
    engine.tick()
    assert engine.collection(id)["state"] == "open"
    progress = engine.devices.progress(id)
    assert (progress.wanted, progress.present) == (24, 23)
    promised = engine.collection(id)["guarantee"]  # nothing is charged yet; it will be
    assert promised["account"]["entries"] == [id]
    assert "NOT ACCOUNTED" not in promised["promise"]["stamps"]
    send_reports(engine, id, bodies[23:], first=24)
    engine.tick()
    record = engine.collection(id)
    assert record["state"] == "done"
    assert (record["reports"], record["spent"], record["result"]) == (24, "2", True)
    assert record["guarantee"]["account"]["entries"] == [id]
    heat = engine.map(id)
    from mapveil_client.local.message import read_reports

    randomizer = Offer(terms).randomizer
    plain = Offer(terms).local.estimate(randomizer.tally(read_reports(bodies, randomizer)), randomizer)
    assert np.array_equal(heat.values, plain.values)
    assert heat.guarantee == replace(plain.guarantee, account=AccountReference((id,)))
    assert (heat.provenance.function, heat.provenance.options) == ("collection", {"id": id})
    assert heat.provenance.date == Provenance().date
    assert heat.title == terms.title
    assert (
        "account",
        f"2 on each client, charged to its own account, as {id}",
    ) in heat.guarantee.promise.rows
    assert guarantee_of(terms) == replace(heat.guarantee, shares=())
    assert np.array_equal(heat.error().upper, plain.error().upper)


def test_a_projection_collection_ends_with_the_map_of_its_reports(engine, store, crowd_of, opened, make_spec):
    crowd = crowd_of(store, 24)
    id, terms = opened(engine, make_spec("random-features"))
    send_reports(engine, id, crowd.feature_reports(terms))
    engine.tick()
    record = engine.collection(id)
    assert (record["state"], record["spent"], record["epsilon"]) == ("done", "0", None)
    heat = engine.map(id)
    assert isinstance(heat, DensityMap)
    assert heat.guarantee.epsilon is None
    assert heat.parameters["bandwidth_m"] == pytest.approx(terms.features_query.bandwidth[0])


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("method", ["uniform", "adaptive"])
def test_a_distributed_collection_sums_exactly_whoever_is_included(
    engine: Engine, store, clock, crowd_of, opened, make_spec, totals_of, active, method
):
    crowd = crowd_of(store, 24)
    id, _ = opened(
        engine,
        make_spec("distributed", method=method, active=active, epsilon="500", accept_large_epsilon=True),
    )
    crowd.leaves = {3: (1, "shares"), 9: (1, "inputs"), 17: (1, "answers")}
    assert crowd.play(engine, id, clock) == "done", engine.collection(id)["reason"]
    record = engine.collection(id)
    totals = totals_of(store, id)
    asked = set(range(1, 25))
    for number, (total, included) in totals.items():
        there = {d for d in asked if (d, number, "inputs") in crowd.acknowledged}
        assert included == len(there)
        assert np.array_equal(total, sum(crowd.vectors[d, number] for d in there))
        asked = there
    assert record["rounds"][0]["included"] == 22
    heat = engine.map(id)
    assert heat.values.sum() == pytest.approx(min(each[1] for each in totals.values()), abs=1)
    assert sum(float(share.epsilon) for share in heat.guarantee.shares) <= 500
    assert len(engine.ledger()) == len(totals)
