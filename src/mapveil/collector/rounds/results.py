"""Finished maps in the store: one GeoParquet file each, with the noisy sums its bounds are made of."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection

from mapveil.collector.faults import NotFound
from mapveil.collector.rounds import round_memory
from mapveil.collector.rounds.collection import Collection, move
from mapveil.collector.rounds.life_cycle import Happening
from mapveil.collector.rounds.reports import map_of_reports
from mapveil.collector.rounds.server_half import mechanism_of
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import reports, results
from mapveil.distributed.query import Query
from mapveil.formats.read_map import read_map
from mapveil.local.estimators.measurement import EstimatedUsers
from mapveil.maps.density_map import DensityMap, Measurement
from mapveil_client.errors import PromiseError

_KEY: Final = "mapveil measurements"
_KINDS: Final[dict[str, type[Measurement]]] = {"sums": Measurement, "estimates": EstimatedUsers}


def make_map(store: Store, collection: Collection) -> DensityMap:
    """The map of a collection whose rounds or reports are all in. CPU-heavy: not within a transaction.

    Raises
    ------
    MapveilError
        No map can be made, and why.
    """
    terms = collection.terms
    if terms.trust != "distributed":
        return map_of_reports(store, terms)
    made = round_memory.next_step(store, terms, 0)
    if isinstance(made, Query):
        raise PromiseError(f"there are sums missing: {made.purpose}")
    with store.read() as connection:
        shares = round_memory.shares_of(connection, collection.id)
        costs = round_memory.costs_of(connection, collection.id)
    return mechanism_of(terms).map_of(made, terms.cells, shares, costs)


def store_map(connection: Connection, identifier: str, heat: DensityMap, data: bytes) -> bool:
    """Keep the map of a collection and end it; its reports are forgotten.

    Parameters
    ----------
    connection : Connection
        Of a transaction for writing.
    identifier : str
        The collection's.
    heat : DensityMap
        The map.
    data : bytes
        The same as :func:`map_bytes`.

    Returns
    -------
    bool
        Whether it was this that ended it.
    """
    if move(connection, identifier, Happening.MAPPED, "service", bytes=len(data)) is None:
        return False
    guarantee = json.dumps(heat.guarantee.to_dict(), sort_keys=True)
    connection.execute(insert(results).values(collection=identifier, geoparquet=data, guarantee=guarantee))
    connection.execute(update(reports).where(reports.c.collection == identifier).values(body=b""))
    return True


def map_bytes(heat: DensityMap) -> bytes:
    """A map as GeoParquet that also holds its measurements, which no export does."""
    from pyarrow import parquet

    with tempfile.TemporaryDirectory(prefix="mapveil-") as folder:
        path = Path(folder) / "map.parquet"
        heat.to_geoparquet(path)
        table = parquet.read_table(path)
    buffer = io.BytesIO()
    with parquet.ParquetWriter(buffer, table.schema, compression="zstd", version="2.6") as file:
        file.write_table(table)
        file.add_key_value_metadata({_KEY: json.dumps([_record(each) for each in heat.measurements])})
    return buffer.getvalue()


def read_map_bytes(data: bytes) -> DensityMap:
    """Read back what :func:`map_bytes` wrote.

    Raises
    ------
    InputError
        It is no such map.
    """
    from pyarrow import parquet

    with tempfile.TemporaryDirectory(prefix="mapveil-") as folder:
        path = Path(folder) / "map.parquet"
        path.write_bytes(data)
        heat = read_map(path)
        metadata = parquet.read_metadata(path).metadata or {}
    measured = json.loads(metadata.get(_KEY.encode(), b"[]"))
    return dataclasses.replace(heat, measurements=tuple(_measurement(each) for each in measured))


def stored_map(connection: Connection, identifier: str) -> bytes:
    """The file of a finished map.

    Raises
    ------
    NotFound
        There is none.
    """
    data = connection.execute(
        select(results.c.geoparquet).where(results.c.collection == identifier)
    ).scalar_one_or_none()
    if data is None:
        raise NotFound("this collection has no map")
    return bytes(data)


def stored_guarantee(connection: Connection, identifier: str) -> dict[str, Any]:
    """The guarantee of a finished map, as its record.

    Raises
    ------
    NotFound
        There is none.
    """
    text = connection.execute(
        select(results.c.guarantee).where(results.c.collection == identifier)
    ).scalar_one_or_none()
    if text is None:
        raise NotFound("this collection has no map")
    record: dict[str, Any] = json.loads(text)
    return record


def _record(measurement: Measurement) -> dict[str, Any]:
    kind = next(name for name, each in _KINDS.items() if type(measurement) is each)
    made: dict[str, Any] = {"kind": kind}
    for item in dataclasses.fields(measurement):
        value = getattr(measurement, item.name)
        if isinstance(value, np.ndarray):
            packed = io.BytesIO()
            np.savez_compressed(packed, value=value)
            made[item.name] = {"npz": base64.b85encode(packed.getvalue()).decode()}
        else:
            made[item.name] = {"fraction": str(value)} if isinstance(value, Fraction) else value
    return made


def _measurement(record: dict[str, Any]) -> Measurement:
    values = {name: _value(value) for name, value in record.items() if name != "kind"}
    return _KINDS[record["kind"]](**values)


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "fraction" in value:
        return Fraction(value["fraction"])
    with np.load(io.BytesIO(base64.b85decode(value["npz"])), allow_pickle=False) as file:
        return file["value"]
