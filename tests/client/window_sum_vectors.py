"""Vectors of a series by two operators: records of places, their units by window, and the reports of them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil_client.contribution import encode_places
from mapveil_client.device_locations import Whereabouts
from mapveil_client.method_parameters import OperatorParameters
from mapveil_client.public_windows import PublicWindows
from mapveil_client.randomness.random import Randomness
from mapveil_client.reports import sealed_reports
from mapveil_client.terms import CollectionTerms
from tests.two_operators.opened_reports import CONFIGS

HOUR = 495_432
START = 1_782_000_000.0
"""A moment of June 2026, of which the records hold the days after."""

WINDOWS = (
    PublicWindows(by="weekday", zone="Europe/Paris"),
    PublicWindows(every="2d", start="2026-06-20", until="2026-06-26"),
    PublicWindows(by="purpose", values=("work", "leisure")),
)


def terms_of(tiling: Tiling, windows: PublicWindows, scale: int) -> CollectionTerms:
    """Terms of a series with one of these windows."""
    return CollectionTerms(
        identifier="e" * 32,
        title="Where people are, over time",
        trust="operators",
        method="multiscale",
        epsilon=Fraction(2),
        options={"scale": scale, "minimum_batch": 20},
        tiling=tiling.to_dict(),
        devices=200,
        minimum=20,
        active=False,
        operators=tuple(each.encode().hex() for each in CONFIGS),
        windows=windows.to_dict(),
    )


def records(tiling: Tiling) -> Iterator[list[dict[str, Any]]]:
    """Records of places, most of them on the map and in a window; the last one is empty."""
    drawn = np.random.default_rng(23)
    west, south, east, north = tiling.region.bbox
    for visits in (2, 7, 30, 0):
        lon, lat = drawn.uniform(west - 0.01, east + 0.01, visits), drawn.uniform(south, north, visits)
        days = drawn.integers(0, 8, visits)
        purposes = drawn.choice(["work", "leisure", "other"], visits)
        yield [
            {"lon": x, "lat": y, "at": START + 86400.0 * day, "category": str(what)}
            for x, y, day, what in zip(lon.tolist(), lat.tolist(), days.tolist(), purposes, strict=True)
        ]


def whereabouts(record: list[dict[str, Any]]) -> Whereabouts:
    """A record as a device holds it."""
    lon, lat, times = (
        np.array([each[name] for each in record], dtype=np.float64) for name in ("lon", "lat", "at")
    )
    return Whereabouts(lon, lat, times=times, categories=tuple(each["category"] for each in record))


def reported(terms: CollectionTerms, places: Whereabouts, seed: int) -> dict[str, Any]:
    """The units of a record, and its report."""
    sums = terms.parameters
    assert isinstance(sums, OperatorParameters)
    rng = Randomness(seed)
    vector = encode_places(places.devices(terms), terms.shared_sites, sums.units, "largest-remainder", rng)
    (report,) = sealed_reports(terms, sums, [places], HOUR * 3600.0, Randomness(seed))
    units = {str(site): int(value) for site, value in enumerate(vector.dense(0)) if value}
    return {"seed": seed, "units": units, "report": report.hex()}


def window_sums(tiling: Tiling) -> dict[str, Any]:
    """Records of places, and collections of paths and of vectors with a report of each record."""
    kept = list(records(tiling))
    collections = []
    for windows in WINDOWS:
        for scale in (1, 16):
            terms = terms_of(tiling, windows, scale)
            reports = [reported(terms, whereabouts(each), seed) for seed, each in enumerate(kept)]
            made = {"terms": terms.encode().decode(), "digest": terms.digest.hex(), "hour": HOUR}
            collections.append(made | {"reports": reports})
    return {"records": kept, "collections": collections}
