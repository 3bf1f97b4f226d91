"""Speeds from what a map's tags say."""

from __future__ import annotations

import pytest

from mapveil.navigation.road_speeds import CLASS_SPEEDS, road_speed_kmh


@pytest.mark.parametrize(
    ("limit", "kind", "kmh"),
    [
        ("50", "motorway", 50),
        ("30 mph", None, 48.28032),
        ("10 knots", None, 18.52),
        ("['50', '30']", "residential", 50),
        ("none", "motorway", 110),
        ("signals", "primary", 60),
        ("0", "residential", 30),
        (None, "['residential', 'tertiary']", 30),
        (None, "bridleway", 40),
        (None, None, 40),
    ],
)
def test_limits_come_before_classes(limit: str | None, kind: str | None, kmh: float) -> None:
    assert road_speed_kmh(limit, kind) == pytest.approx(kmh)


def test_links_are_slower_than_their_roads() -> None:
    for kind in ("motorway", "trunk", "primary", "secondary", "tertiary"):
        assert CLASS_SPEEDS[f"{kind}_link"] < CLASS_SPEEDS[kind]
