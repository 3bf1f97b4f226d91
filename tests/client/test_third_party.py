"""Devices of third parties, written from the specification alone: its vectors, and a real collector."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.node import run_file, run_in_node

from .live import live_collector

HERE = Path(__file__).resolve().parent / "third_party"
VECTORS = HERE.parents[1] / "vectors"
LOCAL = HERE / "local_device.mjs"
STEPS = HERE.parent / "third_party_steps.mjs"
MOST_LINES = 150
DEVICES = 20


def test_they_are_short_and_import_nothing_of_mapveil() -> None:
    lines = [each for each in LOCAL.read_text("utf-8").splitlines() if each.strip()]
    assert len(lines) < MOST_LINES
    assert {
        name for name in re.findall(r'from "([^"]+)"', LOCAL.read_text("utf-8")) if name[:5] != "node:"
    } == set()
    for path in HERE.glob("*.py"):
        source = path.read_text("utf-8")
        words = (ast.get_docstring(ast.parse(source)) or "").splitlines()
        assert len([each for each in source.splitlines() if each.strip()]) - len(words) < MOST_LINES
        imported = set(re.findall(r"(?m)^\s*(?:from|import) ([\w.]+)", source))
        assert not [name for name in imported if name.startswith(("mapveil", "tests", "."))]


def test_the_device_for_local_collections_makes_the_vectors() -> None:
    given = {name: json.loads((VECTORS / "device" / f"{name}.json").read_text()) for name in _STEPS}
    given["local"] = [each for each in given["local"] if re.match(r"grr .* on quadtree", each["name"])]
    given["locate"] = [each for each in given["locate"] if each["name"].startswith("quadtree")]
    found = run_file(STEPS, given)
    signed = given["signatures"]
    assert found["requests"] == [[each["statement"], each["authorization"]] for each in signed["requests"]]
    assert found["enrolment"] == [signed["enrolment"]["statement"], signed["enrolment"]["signature"]]
    assert found["cells"] == [each["cells"] for each in given["locate"]]
    assert found["weights"] == [[row[1:] for row in each["odds"]] for each in given["odds"]]
    assert found["messages"] == [[each["message"] for each in one["reports"]] for one in given["local"]]
    assert sum(map(len, found["messages"])) >= 8
    assert found["agreed"] == [each["agreed"] for each in given["budget"]]


_STEPS = ("signatures", "local", "locate", "odds", "budget")


def test_the_device_for_local_collections_answers_a_collector(tmp_path: Path) -> None:
    for number in range(DEVICES):
        (tmp_path / str(number)).mkdir()
    script = f"""
const {{ main }} = await import("file://{LOCAL}");
const said = [];
console.log = (line) => said.push(line);
for (let number = 0; number < given.devices; number += 1) {{
  const place = [number % 4 ? -74.025 : -73.905, 40.7];
  for (const _ of [1, 2]) await main(given.url, given.token, `${{given.folder}}/${{number}}`, ...place);
}}
process.stdout.write(JSON.stringify(said));
"""
    with live_collector(tmp_path) as live:
        given = {"devices": DEVICES, "minimum": DEVICES, "trust": "local"}
        collection = live.open(method="grr", epsilon="2", **given)
        live.open(method="hr", **given)
        record = {"url": live.url, "token": live.token, "folder": str(tmp_path), "devices": DEVICES}
        said = run_in_node(script, record)
        assert said.count(f"{collection} 204") >= DEVICES  # the last makes it close, and may find it closed
        assert not [line for line in said if not line.startswith(collection)]
        progress = f"{live.url}/v1/collections/{collection}/progress"
        while (state := httpx.get(progress).json()["state"]) not in ("done", "aborted"):
            time.sleep(0.02)
        assert state == "done"
        assert live.engine.map(collection).values.sum() > 0


def operators_device(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(HERE)
    spec = importlib.util.spec_from_file_location("operators_device", HERE / "operators_device.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    sys.modules.pop("turbo_shake_128")
    return made


REPORTS = VECTORS / "two_operators" / "reports.json"


def test_the_device_for_two_operators_makes_the_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    device, made = operators_device(monkeypatch), 0
    for vector in json.loads(REPORTS.read_text()):
        if vector["scale"] != 1:
            continue
        site = int(next(iter(vector["units"]), -1))
        random = bytes.fromhex(vector["report_id"] + vector["randomness"] + "".join(vector["ephemerals"]))
        operators = [bytes.fromhex(each) for each in vector["configs"]]
        task = bytes.fromhex(vector["task"])
        report = device.report_of(site, vector["depth"], task, operators, vector["hour"], random)
        assert report.hex() == vector["report"], vector["name"]
        made += 1
    assert made >= 3
