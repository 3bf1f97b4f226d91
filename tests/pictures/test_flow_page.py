"""The page of flows: one file, no loads, and its numbers come back."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mapveil.geo.grid import Grid
from mapveil.geo.places import Places
from mapveil.geo.region import Region
from mapveil.maps.flow_map import FlowMap
from mapveil.mechanisms.flow_series import FlowSeries
from mapveil.pictures.page import page_html, write_page
from mapveil.pictures.picture_plane import POINTS
from mapveil.privacy.claim import Adversary, Neighbouring, TrustModel
from mapveil.privacy.guarantee import Guarantee
from tests.mechanisms.test_flow_blocks import ZONES
from tests.mechanisms.test_flow_series import WEEKS, timed_trips

REGION = Region.from_bbox(-8.70, 41.10, -8.52, 41.22)
GRID = Grid(REGION, rows=3, columns=4)
PROMISE = Guarantee(
    model=TrustModel.LOCAL,
    neighbours=Neighbouring.REPLACE_ONE,
    epsilon=Fraction(2),
    adversary=Adversary.REPORTS,
)


def flows_of(count: int = 144, **about) -> FlowMap:
    pair = np.random.default_rng(0).permutation(144)[:count]
    trips = np.arange(1.0, count + 1)
    return FlowMap(pair // 12, pair % 12, trips, GRID, PROMISE, "by hand", **about)


def record_of(page: str) -> dict:
    found = re.search(r'<script[^>]*id="scene"[^>]*>(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def record(page: str) -> dict:
    return record_of(page)["scene"]


def unpack(packed: dict) -> np.ndarray:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8)
    return np.ascontiguousarray(planes.reshape(4, -1).T).view("<" + packed["type"])[:, 0]


def test_arcs_and_their_facts_come_back() -> None:
    flows = flows_of(60, deviation=np.arange(60.0), p_value=10.0 ** -np.arange(60))
    held = record(page_html(flows))
    between = flows.origin != flows.destination
    np.testing.assert_allclose(unpack(held["value"]), flows.trips[between], rtol=1e-3)
    np.testing.assert_allclose(unpack(held["facts"]["Length, m"]), flows.lengths_m()[between], rtol=1e-3)
    np.testing.assert_allclose(
        unpack(held["facts"]["Standard deviation"]), flows.deviation[between], rtol=1e-3
    )
    assert held["facts"]["From"][0].startswith(f"cell {flows.origin[between][0]} (")
    assert unpack(held["start"]).tolist() == list(range(0, POINTS * (between.sum() + 1), POINTS))
    within = np.zeros(12)
    told = flows.told_from_zero()
    within[flows.origin[~between & told]] = flows.trips[~between & told]
    assert unpack(held["faded"]).tolist() == (~told[between]).tolist()
    np.testing.assert_allclose(unpack(held["dots"]["size"]), within, rtol=1e-3)
    assert held["directed"]
    assert held["scale"]["top"] == max(flows.trips[between].max(), within.max())
    assert record_of(page_html(flows))["metadata"] == json.loads(flows.metadata_json())


def test_only_the_largest_are_drawn_and_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mapveil.maps.flow_scene._ON_PAGE", 10)
    page = page_html(flows_of())
    assert "The 10 largest of 144 flows are shown" in page
    assert unpack(record(page)["value"]).size <= 10


def test_a_window_says_how_users_count_and_how_many_flows_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    series = FlowSeries(epsilon=20, windows=WEEKS).release(timed_trips(), ZONES, rng=3)
    monkeypatch.setattr("mapveil.maps.flow_scene._ON_PAGE", 10)
    lines = series.scene(page=True).lines
    assert lines is not None
    assert lines.windows is not None
    for reading, faded in zip(lines.windows.readings, lines.windows.faded, strict=True):
        assert f"The 10 largest of {series.size} flows of all windows together are shown." in reading
        assert "Over all windows together each user counts 1" in reading
        assert ("the grey ones may be no flow at all" in reading) == faded.any()
    assert not lines.windows.faded.any(axis=1).all()


def test_it_loads_nothing_and_tells_the_promise(tmp_path: Path) -> None:
    write_page(replace(flows_of(), title="Porto <b>"), tmp_path / "flows.html")
    page = (tmp_path / "flows.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r'(src|href)\s*=\s*"(?!#|data:)', page)
    assert "<h1>Porto &lt;b&gt;" in page
    assert "at most 7.39 times as likely" in page


def test_names_of_places_cannot_end_the_script() -> None:
    places = Places([-8.65, -8.60], [41.12, 41.15], REGION, names=("</script><b>x", "y"))
    flows = FlowMap(np.array([0]), np.array([1]), np.array([3.0]), places, PROMISE, "by hand")
    page = page_html(flows)
    assert "</script><b>" not in page
    assert record(page)["facts"]["From"][0].startswith("</script><b>x (")


def test_no_flows_are_a_page_too() -> None:
    assert "0 trips in all" in page_html(flows_of(0))
