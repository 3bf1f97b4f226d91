"""Writes the vectors of tests/vectors/device: to be run after a change of what leaves a device only.

They are what the Python client makes; the browser device must make the same bytes.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

import mapveil as mv
from mapveil.geo.tiling import Tiling
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil.random_features.map_points import map_points
from mapveil_client.device_account import Account
from mapveil_client.epsilon import odds, power
from mapveil_client.errors import BudgetExceeded
from mapveil_client.local.domain import Domain
from mapveil_client.local.message import setting_fingerprint, write_reports
from mapveil_client.local.randomizer import Reports
from mapveil_client.policy import DevicePolicy
from mapveil_client.public_windows import PublicWindows
from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.random_features.frequencies import KeptFrequencies, Pin, unit_frequencies
from mapveil_client.random_features.kernels import kernel_named
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Device, digest, write_query
from mapveil_client.random_features.report import write_reports as write_features
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import Identity, authorization, enrolment_statement, request_statement
from mapveil_client.terms import CollectionTerms
from tests.client.calendar_vectors import CALENDARS, calendars
from tests.client.window_sum_vectors import window_sums

FOLDER = Path(__file__).resolve().parent.parent / "vectors" / "device"
CITY = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
SOUTH = mv.Region.from_bbox(151.0, -34.1, 151.4, -33.7)


def tilings() -> dict[str, Tiling]:
    """One of every kind that a phone locates in."""
    drawn = np.random.default_rng(7)
    lon, lat = drawn.uniform(-74.02, -73.91, 60), drawn.uniform(40.70, 40.82, 60)
    lon[-1], lat[-1] = lon[-2] + 1e-7, lat[-2]  # two sites of one map tile
    names = tuple(f"café {number}" for number in range(60))
    return {
        "quadtree 8": mv.Quadtree(CITY, depth=8),
        "quadtree 5, southern": mv.Quadtree(SOUTH, depth=5),
        "grid 7x12": mv.Grid(CITY, rows=7, columns=12),
        "grid 3x200": mv.Grid(SOUTH, rows=3, columns=200),
        "grid of degrees": mv.Grid(
            mv.Region.from_bounds_in("EPSG:4326", -74.03, 40.69, -73.90, 40.83), rows=20, columns=10
        ),
        "tiles 15": WebMercatorTiles(CITY, zoom=15),
        "tiles 12, southern": WebMercatorTiles(SOUTH, zoom=12),
        "places": mv.Places(lon, lat, CITY, names),
        "places within 300 m": mv.Places(lon[:20], lat[:20], CITY, max_distance_m=300.0),
    }


METHODS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("grr", "3/2", {}),
    ("grr", "9", {}),
    ("unary", "1", {}),
    ("unary", "2", {"variant": "symmetric"}),
    ("subset", "1", {}),
    ("subset", "5/2", {"subset": 3}),
    ("subset", "4", {}),
    ("olh", "1", {}),
    ("olh", "1/2", {"buckets": 3}),
    ("olh-h", "1", {}),
    ("olh-h", "2", {"growth": 4, "site_weight": 1, "outside": "nearest"}),
    ("srr", "1", {}),
    ("srr", "3/2", {"groups": 3}),
    ("hr", "1", {}),
    ("hr", "5/2", {"blocks": 2}),
    ("planar-laplace", "1", {}),
    ("planar-laplace", "3", {}),
)
LARGEST_TABLE = 1024  # sites of a planar Laplace vector, for the tests' time
REPORTS = 4


def terms_of(trust: str, method: str, tiling: Tiling, **fields: Any) -> CollectionTerms:
    return CollectionTerms(
        identifier="00112233445566778899aabbccddeeff",
        title='Where people wait, "café" and all',
        trust=trust,
        method=method,
        tiling=tiling.to_dict(),
        devices=100,
        minimum=50,
        **fields,
    )


def places_in(tiling: Tiling, count: int) -> list[tuple[float, float]]:
    """Places around the region, some of them outside."""
    west, south, east, north = tiling.region.bbox
    drawn = np.random.default_rng(11)
    wide, high = (east - west) * 0.04, (north - south) * 0.04
    lon, lat = (
        drawn.uniform(west - wide, east + wide, count),
        drawn.uniform(south - high, north + high, count),
    )
    return list(zip(lon.tolist(), lat.tolist(), strict=True))


def locating() -> list[dict[str, Any]]:
    """Cells of places, and the nearest site of each."""
    made = []
    for name, tiling in tilings().items():
        domain = Domain(tiling)
        west, south, east, north = tiling.region.bbox
        places = [*places_in(tiling, 60), (west, south), (west, north), (east, south), (east, north)]
        lon, lat = (np.array(axis) for axis in zip(*places, strict=True))
        codes = domain.codes
        made.append(
            {
                "name": name,
                "tiling": json.dumps(tiling.to_dict()),
                "size": tiling.size,
                "spec": tiling.spec,
                "domain": domain.fingerprint.hex(),
                "bits": codes.bits,
                "codes": codes.code[:200].tolist(),
                "sites": codes.site[:200].tolist(),
                "places": [list(place) for place in places],
                "cells": tiling.locate(lon, lat).tolist(),
                "nearest": cKDTree(domain.plane.T)
                .query(np.column_stack(tiling.region.metric_projection.project(lon, lat)))[1]
                .tolist(),
            }
        )
    return made


def local() -> list[dict[str, Any]]:
    """Reports of single phones, each with a stream of its own."""
    made = []
    for name, tiling in tilings().items():
        domain = Domain(tiling)
        for method, epsilon, options in METHODS:
            if method == "planar-laplace" and tiling.size > LARGEST_TABLE:
                continue
            terms = terms_of("local", method, tiling, epsilon=Fraction(epsilon), options=options)
            randomizer = terms.parameters.on(domain)
            reports = []
            for seed, (lon, lat) in enumerate(places_in(tiling, 40)):
                cell = int(tiling.locate(np.array([lon]), np.array([lat]))[0])
                if cell < 0 or len(reports) == REPORTS:
                    continue
                values = randomizer.randomize([cell], Randomness(seed))
                message = write_reports(values, randomizer)[0]
                # One set of a whole quadtree is long enough.
                if len(message) < 2000 or not reports:
                    reports.append(
                        {"lon": lon, "lat": lat, "cell": cell, "seed": seed, "message": message.hex()}
                    )
            made.append(
                {
                    "name": f"{method} {epsilon} {options} on {name}",
                    "terms": terms.encode().decode(),
                    "digest": terms.digest.hex(),
                    "setting": setting_fingerprint(randomizer).hex(),
                    "reports": reports,
                }
            )
    return made


def query_of(tiling: Tiling, bandwidth: float, **fields: Any) -> Query:
    where = map_points(tiling)
    known = {"features": 1, "kernel": "gaussian", "grid": where.grid, "crs": where.crs} | fields
    return Query((bandwidth, bandwidth), where.low, where.high, **known)


def random_features() -> dict[str, Any]:
    """Draws, answers and refusals of projections."""
    law = kernel_named("gaussian")
    draws = []
    for seed in range(5):
        stream = Randomness(seed)
        units = unit_frequencies(1, 1, law, 2, stream)
        key = stream.words(32, np.uint8).tobytes()
        draws.append({"seed": seed, "units": units.ravel().tolist(), "key": key.hex()})
    answers = []
    for name, jitter in (("quadtree 8", 0.0), ("quadtree 8", 30.0), ("tiles 15", 0.0), ("grid 3x200", 10.0)):
        tiling = tilings()[name]
        query = query_of(tiling, 120.0)
        terms = terms_of(
            "random-features",
            "fourier-kde",
            tiling,
            epsilon=None,
            query=write_query(query),
            options={"bandwidth_m": 120.0, "jitter_m": jitter},
        )
        for draw, (lon, lat) in zip(draws, places_in(tiling, 5), strict=True):
            policy = Policy((120.0, 120.0), smallest_side=0.0)
            units = np.array(draw["units"]).reshape(2, 1, 1)
            kept = KeptFrequencies(units, bytes.fromhex(draw["key"]), Pin.of(policy, query, jitter))
            report = Device(policy, kept).answer(query, lon, lat)
            answers.append(
                {
                    "terms": terms.encode().decode(),
                    "digest": digest(query).hex(),
                    "units": draw["units"],
                    "key": draw["key"],
                    "lon": lon,
                    "lat": lat,
                    "message": None if report is None else write_features(report, query)[0].hex(),
                }
            )
    city = tilings()["quadtree 8"]
    stretched = "+proj=cea +lat_ts=75.0 +lon_0=-73.965 +datum=WGS84 +units=m +no_defs"
    asked = {
        "the base": query_of(city, 100.0),
        "twice": query_of(city, 200.0),
        "five times": query_of(city, 500.0),
        "smaller": query_of(city, 60.0),
        "another direction": replace(query_of(city, 100.0), bandwidth=(100.0, 60.0)),
        "another region": query_of(mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.84), 8), 100.0),
        "another place": query_of(mv.Quadtree(SOUTH, depth=8), 100.0),
        "a continent": query_of(mv.Quadtree(mv.Region.from_bbox(-94, 18, -54, 58), depth=8), 29_300.0),
        "another grid": query_of(city, 100.0, grid=None),
        "two features": query_of(city, 100.0, features=2),
        "another kernel": query_of(city, 100.0, kernel="cauchy"),
        "a stretched plane": query_of(city, 100.0, crs=stretched),
        "degrees": query_of(city, 100.0, crs="EPSG:4326"),
        "a small region": query_of(
            mv.Quadtree(mv.Region.from_bbox(-74.0, 40.7, -73.995, 40.705), depth=3), 100.0
        ),
    }
    policy = Policy((100.0, 100.0))
    first = KeptFrequencies.draw(policy, asked["the base"], 0.0, Randomness(0))
    refusals = [
        {
            "why": why,
            "query": write_query(query).hex(),
            "jitter": jitter,
            "refused": (policy.refusal(query) or first.refusal(policy, query, jitter)) is not None,
        }
        for why, query, jitter in [
            *((*each, 0.0) for each in asked.items()),
            ("jitter", asked["the base"], 5.0),
        ]
    ]
    pin = {name: getattr(first.pin, name) for name in ("bandwidth", "crs", "low", "high")}
    return {"draws": draws, "answers": answers, "pin": {**pin, "jitter": 0.0}, "refusals": refusals}


def signatures() -> dict[str, Any]:
    """Requests and an enrolment, signed with known keys."""
    identity = Identity(bytes(range(32)))
    requests = [
        ("PUT", "/v1/collections/00112233445566778899aabbccddeeff/report", b"\x85\x01 a report"),
        ("GET", "/v1/collections/00112233445566778899aabbccddeeff/rounds/1/mail", b""),
        ("POST", "/v1/path?with=query", b"{}"),
    ]
    token = "mve_" + "a" * 43
    statement = enrolment_statement(token, identity.public)
    return {
        "private": bytes(range(32)).hex(),
        "public": identity.public.hex(),
        "requests": [
            {
                "method": method,
                "path": path,
                "body": body.hex(),
                "statement": request_statement(method, path, body).hex(),
                "authorization": authorization(identity, 17, method, path, body),
            }
            for method, path, body in requests
        ],
        "enrolment": {
            "token": token,
            "statement": statement.hex(),
            "signature": identity.sign(statement).hex(),
        },
    }


def weights() -> list[dict[str, Any]]:
    """Powers and odds of many epsilons."""
    made = []
    for text in ("1/1048576", "1/100", "1/3", "1/2", "1", "3/2", "2", "4", "7", "33/10", "40", "90", "200"):
        epsilon = Fraction(text)
        made.append(
            {
                "epsilon": text,
                "power": str(power(epsilon)),
                "odds": [[bits, *map(str, odds(epsilon, bits, min(bits, 40)))] for bits in (60, 45, 21)],
            }
        )
    return made


def budgets() -> list[dict[str, Any]]:
    """Costs that a device with the default limits is asked for after others, and whether it agrees."""
    asked: tuple[tuple[str, ...], ...] = (
        ("2",),
        ("2001/1000",),
        ("1/2", "1/2", "2", "1", "1/1000000"),
        ("1.5", "1.5", "1.5", "1"),
        *((("1/3",) * count + ("1/3",)) for count in (10, 11, 12)),
        ("1/7", "2", "13/7", "1/1000000000000"),
        ("0.1",) * 40 + ("0.1",),
    )
    made = []
    for costs in asked:
        account, policy = Account(), DevicePolicy()
        agreed = []
        for number, cost in enumerate(map(Fraction, costs)):
            good = cost <= policy.most_per_collection
            with contextlib.suppress(BudgetExceeded):
                if good:
                    good = False
                    account.grant(f"{number:032x}", cost, budget=policy.budget)
                    account.charge(f"{number:032x}", 0, cost, budget=policy.budget)
                    account.end(f"{number:032x}")
                    good = True
            agreed.append(good)
        made.append({"costs": list(costs), "agreed": agreed, "spent": str(account.spent)})
    return made


def series() -> dict[str, Any]:
    """Calendars, reports about the window that was drawn, and those divided over all windows."""
    tiling = tilings()["quadtree 5, southern"]
    windows = PublicWindows(**CALENDARS[0])
    terms = terms_of("local", "olh-h", tiling, epsilon=Fraction(2), options={}, windows=windows.to_dict())
    randomizer = terms.randomizer
    reports = []
    for seed, (lon, lat) in enumerate(places_in(tiling, 6)):
        cell = int(tiling.locate(np.array([lon]), np.array([lat]))[0])
        if cell >= 0:
            window = seed % windows.count
            values = randomizer.randomize([cell], Randomness(seed)).values
            message = write_reports(Reports(values, np.array([window])), randomizer)[0]
            reports.append({"lon": lon, "lat": lat, "seed": seed, "window": window, "message": message.hex()})
    plain = randomizer.randomize([0], Randomness(0)).values
    refused = {
        "no window": write_reports(Reports(plain), randomizer)[0].hex(),
        "a window after the last": write_reports(Reports(plain, np.array([3])), randomizer)[0].hex(),
        "a window of bytes": reports[0]["message"][:-2] + "40",
    }
    return {
        **calendars(),
        "terms": terms.encode().decode(),
        "digest": terms.digest.hex(),
        "reports": reports,
        "refused_reports": refused,
        "sums": window_sums(mv.Quadtree(CITY, depth=1)),
    }


def vectors() -> dict[str, Any]:
    """All files, by name."""
    return {
        "locate": locating(),
        "local": local(),
        "projection": random_features(),
        "signatures": signatures(),
        "odds": weights(),
        "budget": budgets(),
        "series": series(),
    }


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in vectors().items():
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
