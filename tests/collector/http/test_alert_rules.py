"""Alert rules and dashboard ask for numbers that a running service serves, by labels that tell nothing of a person."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from mapveil.collector.http.settings import Settings

DEPLOY = Path(__file__).parents[3] / "deploy"
LABELS = {"route", "method", "status", "phase", "state", "task", "le"}
OF_PROMETHEUS = {"job", "instance", "role"}


def expressions() -> dict[str, str]:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    board = json.loads((DEPLOY / "grafana.json").read_text())
    asked = {rule["alert"]: rule["expr"] for rule in rules}
    return asked | {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    }


@pytest.fixture
def served(api: Any) -> dict[str, set[str]]:
    """Names of the samples of a service that answered something, with their labels."""
    collection = api.opened()
    (phone,) = api.phones(1)
    phone.ask("PUT", f"/v1/collections/{collection}/report", b"x")
    text = api.client.get("/metrics").text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        labels = {"mapveil_messages": {"phase"}, "mapveil_phase_seconds": {"phase"}}.get(family.name, set())
        kinds = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        for kind in kinds:
            own = {"le"} if kind == "_bucket" else set()
            found[family.name + kind] = {*labels, *own}
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_number_and_label_is_served(served: dict[str, set[str]]) -> None:
    asked = expressions()
    assert len(asked) >= 18
    for name, expression in asked.items():
        numbers = set(re.findall(r"\bmapveil_\w+", expression))
        assert numbers or "up{" in expression, name
        known = set().union(*(served[number] for number in numbers)) | OF_PROMETHEUS
        by = re.findall(r"\bby \(([^)]*)\)", expression)
        used = {label.strip() for group in by for label in group.split(",")}
        used |= set(re.findall(r"[{,]\s*(\w+)\s*=", expression))
        assert used <= known, (name, used - known)


def test_no_label_tells_of_a_person_or_a_collection(served: dict[str, set[str]]) -> None:
    mapveil = {name: labels for name, labels in served.items() if name.startswith("mapveil_")}
    assert set().union(*mapveil.values()) <= LABELS
    assert len(mapveil) > 10


def test_stuck_loops_and_waiting_work_are_served(served: dict[str, set[str]]) -> None:
    assert served["mapveil_work_waiting"] == {"task"}
    assert served["mapveil_stuck_loops"] == set()


def test_the_targets_are_the_ports_of_the_units_and_of_the_composition() -> None:
    text = (DEPLOY / "prometheus.yml").read_text()
    (job,) = yaml.safe_load(text)["scrape_configs"]
    composed = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    (names,) = job["dns_sd_configs"]
    assert set(names["names"]) == set(composed) - {"postgres", "proxy"}
    assert names["port"] == Settings().port
    lines = re.findall(r"^    # ( *(?:static_configs:|- .targets).*)$", text, re.MULTILINE)
    ports = {
        role: re.search(r"^MAPVEIL_PORT=(\d+)$", (DEPLOY / f"systemd/{role}.env").read_text(), re.MULTILINE)
        for role in ("intake", "conductor", "worker")
    }
    wanted = [
        {"targets": [f"localhost:{found[1] if found else Settings().port}"], "labels": {"role": role}}
        for role, found in ports.items()
    ]
    assert yaml.safe_load("\n".join(lines))["static_configs"] == wanted


def test_a_role_without_a_target_is_noticed() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    expression = expressions()["MapveilRoleMissing"]
    asked = set(re.findall(r'absent\(up{job="mapveil", role="(\w+)"}\)', expression))
    assert asked == set(job["dns_sd_configs"][0]["names"])
    (relabelled,) = job["relabel_configs"]
    assert (relabelled["source_labels"], relabelled["target_label"]) == (["__meta_dns_name"], "role")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "arguments", [("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml")]
)
def test_prometheus_reads_them(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=DEPLOY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
