from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mapveil.collector.http.prometheus import Metrics


def numbers(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_happens_is_counted_by_route_and_never_by_name(api: Any) -> None:
    collection = api.opened()
    api.opened()
    api.draft()
    (phone,) = api.phones(1)
    phone.ask("PUT", f"/v1/collections/{collection}/report", b"x")
    for path in ("/v1/x", "/v1/y", "/nothing", f"/v1/collections/{collection}/z"):
        api.client.get(path)
    api.client.request("BREW", "/v1/open")
    told = api.client.get("/metrics")
    assert told.headers["content-type"].startswith("text/plain")
    found = numbers(told.text)

    def requests(route: str, method: str, status: int) -> float:
        labels = (("method", method), ("route", route), ("status", str(status)))
        return found.get(("mapveil_requests_total", labels), 0)

    assert requests("/v1/collections", "POST", 201) == 3
    assert requests("/v1/collections/{id}/open", "POST", 200) == 2
    assert requests("/v1/collections/{id}/report", "PUT", 422) == 1
    assert requests("page", "GET", 404) == 1
    assert requests("/v1/open", "other", 400) + requests("/v1/open", "other", 405) <= 1
    assert sum(value for (name, _), value in found.items() if name == "mapveil_requests_total") >= 10
    assert found["mapveil_collections", (("state", "open"),)] == 2
    assert found["mapveil_collections", (("state", "pending"),)] == 1
    assert found["mapveil_reports_total", ()] == 0
    assert found["mapveil_store_commit_seconds_count", ()] >= 1
    assert collection not in told.text
    assert "/v1/x" not in told.text


@pytest.mark.parametrize("mode", ["viewer", "off"])
def test_numbers_can_be_kept_from_others(api_with: Any, mode: str) -> None:
    api = api_with(metrics=mode)
    assert api.client.get("/metrics").status_code == (401 if mode == "viewer" else 404)
    assert api.ask("GET", "/metrics", "viewer").status_code == (200 if mode == "viewer" else 404)
    described = "/metrics" in api.client.get("/v1/openapi.json").json()["paths"]
    assert described is (mode == "viewer")


def test_two_services_of_one_process_count_apart() -> None:
    one, other = Metrics(dict), Metrics(dict)
    one.request("/a", "GET", 200, 0.1)
    assert b'route="/a"' in one.text()
    assert b'route="/a"' not in other.text()


SCRAPED = """
import subprocess, sys
from mapveil.collector.http.prometheus import Metrics
metrics = Metrics(dict)
sibling = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
sibling.stdout.readline()
print(metrics.text().decode(), flush=True)
metrics.set_conducted(False)
print("----", metrics.text().decode(), flush=True)
sibling.kill()
sibling.wait()
print("----", metrics.text().decode(), flush=True)
"""
SIBLING = """
import sys
from mapveil.collector.http.prometheus import Metrics
metrics = Metrics(dict)
metrics.stuck.set(1)
metrics.set_conducted(True)
print(flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_scraped_shows_what_its_siblings_set_while_they_live(tmp_path: Path) -> None:
    variables = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRAPED, SIBLING]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=300)
    shown = [numbers(text) for text in done.stdout.split("----")]
    assert [each.get(("mapveil_stuck_loops", ())) for each in shown] == [1, 1, 0]
    # The newest word counts, and a process that has said nothing says nothing.
    assert [each.get(("mapveil_conducted", ())) for each in shown] == [1, 0, 0]


def test_an_enrolment_authority_serves_no_number_of_a_conductor() -> None:
    metrics = Metrics(dict)
    metrics.set_conducted(None)
    assert b"mapveil_conducted" not in metrics.text()
    metrics.set_conducted(True)
    assert b"\nmapveil_conducted 1.0\n" in metrics.text()
