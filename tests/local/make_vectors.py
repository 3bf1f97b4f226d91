"""Writes the vectors of tests/vectors/local: to be run after a change of the message's version only."""

from __future__ import annotations

import importlib
import json
import pkgutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil_client import canonical_cbor
from mapveil_client.local.domain import Domain
from mapveil_client.local.message import setting_fingerprint, write_reports
from mapveil_client.randomness.random import Randomness

FOLDER = Path(__file__).resolve().parent.parent / "vectors" / "local"
REGION = {"crs": "", "bounds": [0.0, 0.0, 5.0, 3.0], "bbox": [0.0, 0.0, 5.0, 3.0]}
TILING = {"kind": "grid", "region": REGION, "rows": 3, "columns": 5}
MECHANISMS = {
    "grr": ("GeneralizedRandomizedResponse", {}),
    "srr": ("StaircaseResponse", {"groups": 3}),
    "hr": ("HadamardResponse", {}),
    "unary": ("UnaryEncoding", {}),
    "subset": ("SubsetSelection", {}),
    "olh": ("LocalHashing", {}),
    "olh-h": ("HierarchicalHashing", {}),
}


def _mechanism(name: str) -> Any:
    """The mechanism of a class name, wherever in its room it stands."""
    room = importlib.import_module("mapveil.local.randomizers")
    for found in pkgutil.iter_modules(room.__path__):
        module = importlib.import_module(f"{room.__name__}.{found.name}")
        if hasattr(module, name) and getattr(module, name).__module__ == module.__name__:
            return getattr(module, name)
    raise LookupError(name)


def randomizer_of(vector: dict):
    name, options = vector["mechanism"], vector["options"]
    mechanism = _mechanism(name)(epsilon=Fraction(vector["epsilon"]), **options)
    return mechanism.on(Domain(tiling_from_dict(vector["tiling"])))


def reports_of(vector: dict) -> dict:
    randomizer = randomizer_of(vector)
    reports = randomizer.randomize(np.array(vector["cells"]), Randomness(vector["seed"]))
    return {
        "domain": randomizer.domain.fingerprint.hex(),
        "setting": setting_fingerprint(randomizer).hex(),
        "values": reports.values.tolist(),
        "messages": [message.hex() for message in write_reports(reports, randomizer)],
    }


def refused_of(vector: dict) -> list[dict]:
    """Messages that are none, each made from a good one."""
    good = bytes.fromhex(vector["messages"][0])
    fields = canonical_cbor.decode(good)
    is_set = isinstance(fields[4], bytes)

    def changed(at: int, value: int | bytes) -> str:
        return canonical_cbor.encode([*fields[:at], value, *fields[at + 1 :]]).hex()

    cases = {
        "empty": "",
        "truncated": good[:-1].hex(),
        "longer": (good + b"\0").hex(),
        "another version": changed(0, 2),
        "another kind": changed(1, 99),
        "another domain": changed(2, bytes(16)),
        "another setting": changed(3, bytes(16)),
        "a field too many": canonical_cbor.encode([*fields, 0]).hex(),
        "a field too few": canonical_cbor.encode(fields[:4]).hex(),
        "a version in two bytes": (b"\x85\x18\x01" + good[2:]).hex(),
        "text": b"not a report".hex(),
        "a value of the other type": changed(4, 0 if is_set else b"\0\0"),
    }
    if is_set:
        cases["a set that is too long"] = changed(4, fields[4] + b"\0")
        cases["a bit beyond the last site"] = changed(4, bytes([*fields[4][:-1], fields[4][-1] | 1]))
    else:
        cases["a symbol out of range"] = changed(4, 1 << 40)
    if vector["mechanism"] == "SubsetSelection":
        cases["a set of another size"] = changed(4, bytes([0, 0]))
    return [{"why": why, "message": message} for why, message in cases.items()]


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (mechanism, options) in MECHANISMS.items():
        vector = {
            "protocol": "mapveil local report",
            "version": 1,
            "mechanism": mechanism,
            "epsilon": "3/2",
            "options": options,
            "tiling": TILING,
            "cells": [0, 4, 7, 14, 7],
            "seed": 20,
        }
        vector |= reports_of(vector)
        vector["refused"] = refused_of(vector)
        (FOLDER / f"{name}.json").write_text(json.dumps(vector, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
