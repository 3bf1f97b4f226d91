"""Finished maps in the store: a GeoParquet file each, and the measurements that its bounds are made of."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from sqlalchemy import Column, exists, insert, select
from sqlalchemy.engine import Connection, Row

from mapveil.collector.operators import plan_answers
from mapveil.collector.operators.task_records import answers_of, find_task
from mapveil.collector.refusals import NotFound
from mapveil.collector.rounds import plan_replay
from mapveil.collector.rounds.collection import Collection, counted, find, move
from mapveil.collector.rounds.life_cycle import Happening, State
from mapveil.collector.rounds.offer import Offer, windows_of
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import devices, members, reports, results
from mapveil.collector.store.work_queue import Task, Work, order
from mapveil.formats.measurement_record import read_measurements, write_measurements
from mapveil.formats.read_map import read_map
from mapveil.local.local_series import LocalSeries
from mapveil.local.randomizers.randomizer import Tally
from mapveil.maps.density_map import DensityMap
from mapveil.maps.provenance import Provenance
from mapveil.privacy.claim import AccountReference, Assumes
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.queries import Query
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.local.message import read_reports
from mapveil_client.random_features import report as feature_report
from mapveil_client.terms import CollectionTerms

_ROWS: Final = 1 << 14  # reports held at once


class StoredMap(NamedTuple):
    """A map as the store holds it."""

    geoparquet: bytes
    measurements: bytes  # of write_measurements: no file of a map holds them

    @classmethod
    def encode(cls, heat: DensityMap) -> StoredMap:
        """Encode a map."""
        with tempfile.TemporaryDirectory(prefix="mapveil-") as folder:
            path = Path(folder) / "map.parquet"
            heat.to_geoparquet(path)
            return cls(path.read_bytes(), write_measurements(heat.measurements))

    def decode(self) -> DensityMap:
        """Decode the map; raises InputError where there is none in the bytes."""
        with tempfile.TemporaryDirectory(prefix="mapveil-") as folder:
            path = Path(folder) / "map.parquet"
            path.write_bytes(self.geoparquet)
            heat = read_map(path)
        return dataclasses.replace(heat, measurements=read_measurements(self.measurements))


def make_map(store: Store, collection: Collection) -> DensityMap:
    """The map of a collection whose rounds or reports are all in. CPU-heavy: not within a transaction."""
    terms = collection.terms
    found = Offer(terms)
    if terms.trust == "distributed":
        made = plan_replay.next_step(store, terms, 0)
        if isinstance(made, Query):
            raise PromiseError(f"there are sums missing: {made.purpose}")
        with store.read() as connection:
            shares = plan_replay.shares_of(connection, collection.id)
            costs = plan_replay.costs_of(connection, collection.id)
        heat = found.sums.map_of(made, found.tiling, shares, costs)
    elif terms.trust == "operators":
        with store.read() as connection:
            accepted = find_task(connection, collection.id).accepted
            given = answers_of(connection, collection.id)
            shares = plan_replay.shares_of(connection, collection.id)
            reported = counted(connection, collection.id, reports)
        made, cost = (
            plan_answers.replay(terms, accepted, given),
            plan_answers.cost_of(terms, reported, accepted),
        )
        if isinstance(made, Query):
            raise PromiseError(f"there are sums missing: {made.purpose}")
        heat = found.sums.map_of(made, found.tiling, shares, (cost,))
    else:
        heat = _map_of_reports(store, terms)
    with store.read() as connection:
        simulated = simulated_devices(connection, terms)
    return dataclasses.replace(
        heat,
        guarantee=dataclasses.replace(_against(terms, heat.guarantee), simulated=simulated),
        provenance=Provenance(function="collection", options={"id": terms.identifier}),
        title=terms.title,
    )


def _map_of_reports(store: Store, terms: CollectionTerms) -> DensityMap:
    """The map of a collection of reports. Memory holds a page of them at a time."""
    found, query = Offer(terms), select(reports.c.device, reports.c.body)
    pages = store.pages(query.where(reports.c.collection == terms.identifier), _ROWS, reports.c.device)
    parts = ([row.body for row in page] for page in pages)
    if terms.trust == "random-features":
        read = (feature_report.read_reports(part, terms.features_query) for part in parts)
        made = found.features.of_reports(read, found.tiling, terms.devices)
        return found.features.map_of(made, found.tiling)
    randomizer, windows = found.randomizer, windows_of(terms)
    counts = np.zeros((windows or 1, randomizer.symbols), dtype=np.int64)
    number = 0
    for part in parts:
        read_part = read_reports(part, randomizer, windows)
        for window in range(windows or 1):
            of_window = read_part if read_part.windows is None else read_part.about(window)
            tally = randomizer.tally(of_window)
            counts[window] += tally.counts
            number += tally.reports
    if not number:
        raise InputError("no device reported, so there is no map")
    if isinstance(found.local, LocalSeries):
        return found.local.series(Tally(counts, number), randomizer)
    return found.local.estimate(Tally(counts[0], number), randomizer)


def guarantee_of(terms: CollectionTerms) -> Guarantee:
    """The promise of a collection's terms."""
    return _against(terms, Offer(terms).mechanism.guarantee())


def simulated_devices(connection: Connection, terms: CollectionTerms) -> bool:
    """Whether one process answered for several people: a device of a fleet takes part."""
    table = members if terms.trust == "distributed" else reports
    fleet = exists().where(table.c.collection == terms.identifier, table.c.device == devices.c.id)
    return bool(connection.execute(select(exists().where(devices.c.simulated, fleet))).scalar_one())


def _against(terms: CollectionTerms, made: Guarantee) -> Guarantee:
    """The guarantee against the server that the terms guard against; each device charges its own account."""
    account = None if made.epsilon is None else AccountReference((terms.identifier,))
    authority = Assumes.AUTHORITY_APART() if terms.authority_apart else Assumes.AUTHORITY_OF_OPERATOR()
    return dataclasses.replace(made.with_active_sums(authority) if terms.active else made, account=account)


def store_map(connection: Connection, identifier: str, heat: DensityMap, stored: StoredMap) -> bool:
    """Keep the map of a collection, end it, and order that its reports are erased; False where it has ended already."""
    if move(connection, identifier, Happening.MAPPED, "service", bytes=len(stored.geoparquet)) is None:
        return False
    guarantee = json.dumps(heat.guarantee.to_dict(), sort_keys=True)
    connection.execute(insert(results).values(collection=identifier, guarantee=guarantee, **stored._asdict()))
    order(connection, [Work(Task.ERASE, identifier)])
    return True


def stored_map(connection: Connection, identifier: str) -> StoredMap:
    """The finished map of a collection."""
    row = _result(connection, identifier, results.c.geoparquet, results.c.measurements)
    return StoredMap(*map(bytes, row))


def stored_guarantee(connection: Connection, identifier: str) -> Guarantee:
    """The guarantee of a finished map."""
    return Guarantee.from_dict(json.loads(_result(connection, identifier, results.c.guarantee).guarantee))


def _result(connection: Connection, identifier: str, *columns: Column[Any]) -> Row[Any]:
    row = connection.execute(select(*columns).where(results.c.collection == identifier)).one_or_none()
    if row is None:
        state = find(connection, identifier).state
        to_come = state not in (State.DONE, State.ABORTED)
        raise NotFound(f"this collection is {state.value} and has no map{' yet' if to_come else ''}")
    return row
