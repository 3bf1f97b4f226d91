"""A part of a fleet in a process of its own: JSON in on stdin, JSON out on stdout."""

import json
import sys
import time

import numpy as np
import uvloop

from mapveil.collector.fleet.fleet import Fleet
from mapveil.collector.fleet.lapses import Lapses
from mapveil_client.device_locations import Whereabouts
from mapveil_client.policy import DevicePolicy
from mapveil_client.secure_sum.certificate import Authority

given = json.load(sys.stdin)
generator = np.random.default_rng(given["seed"])
lon = np.clip(generator.normal(-73.965, 0.02, given["devices"]), -74.02, -73.91)
lat = np.clip(generator.normal(40.76, 0.02, given["devices"]), 40.70, 40.82)
fleet = Fleet(
    given["server"],
    [Whereabouts(lon[i : i + 1], lat[i : i + 1]) for i in range(given["devices"])],
    DevicePolicy(
        active_only=given["active"],
        authority=Authority.parse(given["authority"]) if given["active"] else None,
        helper=given.get("helper"),
    ),
    lapses=Lapses(drop=given["drop"], seed=given["seed"]),
    connections=32,
    threads=1,
    patience_s=300,
)
made = uvloop.run(fleet.run(given["token"], [given["collection"]]))
print(json.dumps({**made.to_record(), "cpu": time.process_time()}))
