"""A device has NumPy, cryptography and httpx, and no mapveil: each answer is made in an interpreter like that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from mapveil.geo.grid import Grid
from mapveil.geo.places import Places
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil.mechanisms.methods import METHODS
from mapveil_client.terms import CollectionTerms

REGION = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
SMALL = Quadtree(REGION, 3)
TILINGS = {
    "grid": Grid(REGION, 5, 7),
    "tiles": WebMercatorTiles(REGION, 13),
    "places": Places(np.array([-74.0, -73.95, -73.97]), np.array([40.7, 40.8, 40.77]), REGION),
}
PROGRAM = """
import importlib, json, pkgutil, sys
from fractions import Fraction

ALLOWED = {"mapveil_client", "numpy", "cryptography", "httpx", "httpcore", "h11", "anyio", "certifi", "idna",
           "sniffio", "typing_extensions", "_cffi_backend", "cffi"} | set(sys.stdlib_module_names)

class Phone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in ALLOWED:
            raise ImportError("not on a phone: " + name)

sys.meta_path.insert(0, Phone())

import numpy as np
import mapveil_client
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.memory import DeviceMemory
from mapveil_client.participation import Participation
from mapveil_client.device_locations import Whereabouts
from mapveil_client.policy import DevicePolicy
from mapveil_client.terms import CollectionTerms
from mapveil_client.random_features.feature_policy import Policy
from dataclasses import replace
from mapveil_client.secure_sum.certificate import Authority, Certificate, RevocationList
from mapveil_client.secure_sum.keys import Identity

for module in pkgutil.walk_packages(mapveil_client.__path__, "mapveil_client."):
    importlib.import_module(module.name)
    if module.name == "mapveil_client.connection":
        mapveil_client.connection.Connection("https://collector.example")

place = Whereabouts(np.array([-73.97]), np.array([40.77]))
known = Identity(bytes(range(32)))
policy = DevicePolicy(random_features=Policy((150.0, 150.0)), authority=Authority("tests", known.public))
done = []
for line in sys.stdin:
    terms, announcement = (None if text is None else bytes.fromhex(text) for text in json.loads(line))
    memory = DeviceMemory.open()
    blank = Certificate("tests", memory.identity.public, 1, 0, 1 << 40)
    memory.certificate = replace(blank, signature=known.sign(blank.statement))
    listed = RevocationList("tests", 0, 0, 1 << 40)
    memory.revoked = replace(listed, signature=known.sign(listed.statement))
    part = Participation(memory, policy, CollectionTerms.decode(terms), place)
    part.join()
    if announcement is None:
        done.append(len(part.report()))
    else:
        done.append(len(part.begin(RoundAnnouncement.decode(announcement), 0, 0)))
print(json.dumps(done))
"""


def on_a_phone(asked: list[tuple[str, str | None]]) -> list[int]:
    lines = "".join(json.dumps(each) + "\n" for each in asked)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_every_answer_is_made_with_what_a_phone_has(
    new_terms: Callable[..., CollectionTerms], new_announcement
) -> None:
    asked: list[tuple[str, str | None]] = []
    for method in METHODS:
        if method.trust == "local":
            terms = new_terms(trust="local", method=method.name, tiling=SMALL.to_dict())
            asked.append((terms.encode().hex(), None))
    for tiling in TILINGS.values():
        for outside in ("drop", "nearest"):
            terms = new_terms(
                trust="local", method="olh-h", tiling=tiling.to_dict(), options={"outside": outside}
            )
            asked.append((terms.encode().hex(), None))
    asked.append((new_terms(trust="random-features", method="fourier-kde").encode().hex(), None))
    sums = new_terms()
    asked.append((sums.encode().hex(), new_announcement(sums).encode().hex()))
    sizes = on_a_phone(asked)
    assert len(sizes) == len(asked) == 9 + 2 * len(TILINGS) + 2
    assert min(sizes) > 10


def test_the_phone_of_the_test_above_lacks_the_rest() -> None:
    program = PROGRAM.replace("import mapveil_client\n", "import mapveil_client\nimport scipy\n")
    done = subprocess.run(
        [sys.executable, "-c", program], input="", capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "not on a phone: scipy" in done.stderr


@pytest.mark.parametrize("module", ["terms", "policy", "participation", "device_client"])
def test_the_devices_modules_load_nothing_heavy(module: str) -> None:
    program = f"import sys, mapveil_client.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {each.split(".")[0] for each in done.stdout.split()}
    assert "mapveil_client" in loaded
    assert not loaded & {"mapveil", "scipy", "duckdb", "pyarrow", "shapely"}
