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


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


@needs_promtool
@pytest.mark.parametrize(
    "arguments", [("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml")]
)
def test_prometheus_reads_them(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=DEPLOY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_promtool
def test_prometheus_reads_the_targets_of_systemd_and_an_alertmanager(tmp_path: Path) -> None:
    text = (DEPLOY / "prometheus.yml").read_text()
    containers, alerting = text.index("    # In containers:"), text.index("# alerting:")
    (tmp_path / "alerts.yml").write_text((DEPLOY / "alerts.yml").read_text())
    (tmp_path / "prometheus.yml").write_text(
        text[:alerting]
        + re.sub(r"^# ?", "", text[alerting:containers], flags=re.MULTILINE)
        + re.sub(
            r"^    # ( *(?:static_configs:|- .targets))",
            r"    \1",
            text[text.index("    # Under systemd") :],
            flags=re.M,
        )
    )
    done = subprocess.run(
        ["promtool", "check", "config", "prometheus.yml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    read = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
    assert read["alerting"]["alertmanagers"]
    assert [set(job) for job in read["scrape_configs"]] == [{"job_name", "static_configs"}]


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    """Samples of one target, 15 s apart, in the notation of ``promtool test rules``."""
    labels = {"job": "mapveil", "instance": "a", **labels}
    inner = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return {"series": f"{name}{{{inner}}}", "values": values}


def slower_than(bound: str, share: int) -> list[dict[str, str]]:
    """Samples of requests, or of commits, of which `share` percent take longer than `bound` seconds."""
    name = "mapveil_request_seconds_bucket" if bound == "1.0" else "mapveil_store_commit_seconds_bucket"
    return [
        series(name, f"0+{100 - share}x200", le=bound),
        series(name, "0+100x200", le="2.5"),
        series(name, "0+100x200", le="+Inf"),
    ]


REQUESTS, ERRORS = "mapveil_requests_total", "mapveil_errors_total"
WAITING, ABORTED = "mapveil_work_waiting", "mapveil_collections"
ALL_ROLES = [series("up", "1x200", role=role) for role in ("intake", "worker", "conductor")]

# Alert, samples, minute, whether the alert fires then.
CASES = {
    "a target is gone": ("MapveilDown", [series("up", "1x20 0x100")], 8, True),
    "a target is there": ("MapveilDown", [series("up", "1x200")], 8, False),
    "no role is missing": ("MapveilRoleMissing", ALL_ROLES, 8, False),
    "the worker is missing": ("MapveilRoleMissing", [ALL_ROLES[0], ALL_ROLES[2]], 8, True),
    "one process has every role": ("MapveilRoleMissing", [series("up", "1x200", role="all")], 8, False),
    "a loop is stuck": ("MapveilStuck", [series("mapveil_stuck_loops", "0x4 1x100")], 8, True),
    "no loop is stuck": ("MapveilStuck", [series("mapveil_stuck_loops", "0x100")], 8, False),
    "nobody conducts": ("MapveilNoConductor", [series("mapveil_conducted", "1x4 0x100")], 8, True),
    "somebody conducts": ("MapveilNoConductor", [series("mapveil_conducted", "1x100")], 8, False),
    "work waits for an hour": ("MapveilWorkWaits", [series(WAITING, "1x240", task="map")], 45, True),
    "work of a target that is new": (
        "MapveilWorkWaits",
        [series(WAITING, "1x4 0x200", task="map")],
        1,
        False,
    ),
    "work is done now and then": (
        "MapveilWorkWaits",
        [series(WAITING, "1 1 1 0 " * 60, task="map")],
        45,
        False,
    ),
    "work waits while a target is replaced": (
        "MapveilWorkWaits",
        [series(WAITING, "1x80 _x160", task="map"), series(WAITING, "_x76 1x160", task="map", instance="b")],
        45,
        True,
    ),
    "the first error": ("MapveilErrors", [series(ERRORS, "0x40 1x100")], 12, True),
    "one more error": ("MapveilErrors", [series(ERRORS, "1x60 2x100")], 18, True),
    "an error of an hour ago": ("MapveilErrors", [series(ERRORS, "0x40 1x400")], 70, False),
    "old errors where Prometheus begins": ("MapveilErrors", [series(ERRORS, "_x40 7x100")], 12, False),
    "no error": ("MapveilErrors", [series(ERRORS, "0x100")], 12, False),
    "one request in 21 gets 503": (
        "MapveilRefusesForTheStore",
        [series(REQUESTS, "0+5x200", status="503"), series(REQUESTS, "0+100x200", status="200")],
        20,
        True,
    ),
    "one request in 1,001 gets 503": (
        "MapveilRefusesForTheStore",
        [series(REQUESTS, "0+1x200", status="503"), series(REQUESTS, "0+1000x200", status="200")],
        20,
        False,
    ),
    "one request in 20 is slow": ("MapveilSlow", slower_than("1.0", 5), 30, True),
    "no request is slow": ("MapveilSlow", slower_than("1.0", 0), 30, False),
    "one commit in 20 is slow": ("MapveilCommitsSlowly", slower_than("0.5", 5), 30, True),
    "no commit is slow": ("MapveilCommitsSlowly", slower_than("0.5", 0), 30, False),
    "a collection is aborted": (
        "MapveilCollectionAborted",
        [series(ABORTED, "0x100 1x100", state="aborted")],
        30,
        True,
    ),
    "a collection was aborted earlier": (
        "MapveilCollectionAborted",
        [series(ABORTED, "1x200", state="aborted")],
        30,
        False,
    ),
}


@needs_promtool
@pytest.mark.parametrize("case", CASES)
def test_alerts_fire_when_they_should(case: str, tmp_path: Path) -> None:
    alert, samples, minute, fires = CASES[case]
    # Prometheus writes what fires as a series; the `alert_rule_test` of promtool would compare the texts too.
    firing = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    asked = {
        "expr": f"count({firing}) > bool 0 or vector(0)",
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": "{}", "value": int(fires)}],
    }
    test = {"interval": "15s", "input_series": samples, "promql_expr_test": [asked]}
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(DEPLOY / "alerts.yml")], "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_in_a_case_and_is_quiet_in_another() -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    tried = {(alert, fires) for alert, _, _, fires in CASES.values()}
    assert tried == {(rule["alert"], fires) for rule in rules for fires in (True, False)}
