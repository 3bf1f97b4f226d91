"""A device as its owner runs it, in an environment that holds mapveil-client only: enrols, joins, answers, prints.

Run as ``python device_program.py SERVER TOKEN DEVICES FOLDER AUTHORITY COLLECTION...``. It is no test and imports no
mapveil.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import numpy as np

from mapveil_client.connection import Connection
from mapveil_client.device_client import DeviceClient
from mapveil_client.device_locations import Whereabouts
from mapveil_client.memory import DeviceMemory
from mapveil_client.policy import DevicePolicy
from mapveil_client.secure_sum.certificate import Authority
from mapveil_client.vault import Vault


async def live(
    server: str, token: str, count: int, folder: Path, authority: str, wanted: list[str]
) -> dict[str, object]:
    async with Connection(server) as connection:
        devices = [
            DeviceClient(
                connection,
                DeviceMemory.open(Vault(folder / f"{index}.vault", bytes(range(32)))),
                DevicePolicy(authority=Authority.parse(authority)),
                Whereabouts(np.array([-74.025 if index % 4 else -73.905]), np.array([40.70])),
            )
            for index in range(count)
        ]
        for device in devices:
            await device.enrol(token)
        over: set[str] = set()
        while over != set(wanted):
            await asyncio.gather(*(device.poll() for device in devices))
            for collection in wanted:
                if (await connection.progress(collection)).state in ("done", "aborted"):
                    over.add(collection)
            await asyncio.sleep(0.05)
        states = {c: (await connection.progress(c)).state for c in wanted}
    return {
        "states": states,
        "modules": sorted(name for name in sys.modules if name.startswith("mapveil")),
        "spent": [str(device.memory.account.spent) for device in devices],
    }


if __name__ == "__main__":
    server, token, count, folder, authority, *wanted = sys.argv[1:]
    said = asyncio.run(live(server, token, int(count), Path(folder), authority, wanted))
    sys.stdout.write(json.dumps(said))
