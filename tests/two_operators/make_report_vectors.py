"""Make tests/vectors/two_operators/reports.json: ``python -m tests.two_operators.make_report_vectors``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mapveil_client.randomness.random import Randomness
from mapveil_client.two_operators.hpke import Cipher, public_of
from mapveil_client.two_operators.sealed_report import HpkeConfig
from mapveil_client.two_operators.sharding import ReportRandomness, make_report, sharding_of

FOLDER = Path(__file__).resolve().parents[1] / "vectors" / "two_operators"
HOUR = 495_432

CASES: tuple[tuple[str, int, int, dict[int, int]], ...] = (
    ("a path of 16 sites", 2, 1, {9: 1}),
    ("a path of a million sites", 10, 1, {123_456: 1}),
    ("a path of one site", 0, 1, {0: 1}),
    ("nobody on a path", 2, 1, {}),
    ("a vector of 4 sites", 1, 3, {0: 1, 2: 2}),
    ("a vector of 16 sites, not all of it", 2, 10, {3: 4, 15: 1}),
    ("nobody in a vector", 1, 3, {}),
)


def case(number: int, name: str, depth: int, scale: int, units: dict[int, int]) -> dict[str, Any]:
    rng = Randomness(number)
    task, *private = (rng.words(32, np.uint8).tobytes() for _ in range(3))
    ciphers = list(Cipher) if number % 2 else list(Cipher)[::-1]
    leader, helper = (
        HpkeConfig(number + 100 * at, cipher, public_of(key))
        for at, (cipher, key) in enumerate(zip(ciphers, private, strict=True))
    )
    sharding = sharding_of(depth, scale, task)
    randomness = ReportRandomness.draw(sharding, rng)
    contribution = np.zeros(sharding.sites, dtype=np.int64)
    for site, value in units.items():
        contribution[site] = value
    report = make_report(sharding, contribution, (leader, helper), HOUR, randomness)
    return {
        "name": name,
        "depth": depth,
        "scale": scale,
        "task": task.hex(),
        "private_keys": [key.hex() for key in private],
        "configs": [each.encode().hex() for each in (leader, helper)],
        "hour": HOUR,
        "units": {str(site): value for site, value in units.items()},
        "report_id": randomness.report_id.hex(),
        "randomness": randomness.shares.hex(),
        "ephemerals": [each.hex() for each in randomness.ephemerals],
        "report": report.encode().hex(),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    made = [case(number, *each) for number, each in enumerate(CASES, start=1)]
    (FOLDER / "reports.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
