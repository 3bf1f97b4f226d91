"""A part of a fleet in a process of its own: JSON in on stdin, JSON out on stdout."""

import asyncio
import json
import sys
import time

import numpy as np
import uvloop

from mapveil.collector.fleet.fleet import Fleet
from mapveil.collector.fleet.fleet_summary import FleetSummary
from mapveil.collector.fleet.lapses import Lapses
from mapveil_client.device_locations import Whereabouts
from mapveil_client.policy import DevicePolicy
from mapveil_client.secure_sum.certificate import Authority

given = json.load(sys.stdin)


def fleet(seed: int) -> Fleet:
    """A fleet of devices around one place."""
    generator = np.random.default_rng(seed)
    lon = np.clip(generator.normal(-73.965, 0.02, given["devices"]), -74.02, -73.91)
    lat = np.clip(generator.normal(40.76, 0.02, given["devices"]), 40.70, 40.82)
    return Fleet(
        given["server"],
        [Whereabouts(lon[i : i + 1], lat[i : i + 1]) for i in range(given["devices"])],
        DevicePolicy(
            active_only=given["active"],
            authority=Authority.parse(given["authority"]) if given["active"] else None,
            helper=given.get("helper"),
        ),
        lapses=Lapses(drop=given["drop"], seed=seed),
        connections=32,
        threads=1,
        patience_s=300,
    )


async def run() -> FleetSummary:
    """Answer each collection with a fleet of its own; the summary of the first."""
    running = (
        fleet(given["seed"] + at).run(given["token"], [collection])
        for at, collection in enumerate(given["collections"])
    )
    return (await asyncio.gather(*running))[0]


made = uvloop.run(run())
print(json.dumps({**made.to_record(), "cpu": time.process_time()}))
