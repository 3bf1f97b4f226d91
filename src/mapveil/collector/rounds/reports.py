"""Local and projection collections: one report of each device, checked when it comes, tallied a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from sqlalchemy import select

from mapveil.collector.refusals import Invalid
from mapveil.collector.rounds.offer import offer
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import reports
from mapveil.maps.density_map import DensityMap
from mapveil.random_features.fourier_kde import FourierKde
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local.message import read_reports
from mapveil_client.random_features import report as projection_message
from mapveil_client.terms import CollectionTerms

_ROWS: Final = 1 << 14


def projection_of(terms: CollectionTerms) -> FourierKde:
    """The mechanism of a projection collection."""
    mechanism = offer(terms).mechanism
    if not isinstance(mechanism, FourierKde):
        raise ParameterError(f"method must be fourier-kde, got {terms.method}")
    return mechanism


def report_check(terms: CollectionTerms) -> Callable[[bytes], None]:
    """Make the check that refuses a body that is not a report of this collection.

    Returns
    -------
    callable
        Raises :class:`Invalid` and says what was wrong; never what the report says.
    """
    read: Callable[[list[bytes]], object] = (
        partial(read_reports, randomizer=offer(terms).randomizer)
        if terms.trust == "local"
        else partial(projection_message.read_reports, query=terms.waves)
    )

    def check(body: bytes) -> None:
        try:
            read([body])
        except InputError as error:
            raise Invalid(f"the report {str(error).removeprefix('report 0: ')}") from None

    return check


def _stored(store: Store, identifier: str) -> Iterator[list[bytes]]:
    """The reports of a collection, a part at a time."""
    last = -1
    while True:
        query = (
            select(reports.c.device, reports.c.body)
            .where(reports.c.collection == identifier, reports.c.device > last)
            .order_by(reports.c.device)
            .limit(_ROWS)
        )
        with store.read() as connection:
            found = connection.execute(query).all()
        if found:
            yield [row.body for row in found]
        if len(found) < _ROWS:
            return
        last = found[-1].device


def map_of_reports(store: Store, terms: CollectionTerms) -> DensityMap:
    """The map of a local or projection collection whose reports are all in. Memory holds a part of them at a time."""
    parts = _stored(store, terms.identifier)
    if terms.trust == "random-features":
        mechanism, query, tiling = projection_of(terms), terms.waves, offer(terms).tiling
        made = mechanism.of_reports(
            (projection_message.read_reports(part, query) for part in parts), tiling, terms.devices
        )
        return mechanism.map_of(made, tiling)
    randomizer = offer(terms).randomizer
    tally = randomizer.tally(read_reports([], randomizer))
    for part in parts:
        tally += randomizer.tally(read_reports(part, randomizer))
    if not tally.reports:
        raise InputError("no device reported, so there is no map")
    return offer(terms).local.estimate(tally, randomizer)
