"""Pictures of series show what the picture of one map shows: the ground, its names, and doubt that is hatched."""

from __future__ import annotations

import numpy as np
import pytest
import shapely

import mapveil as mv

pytest.importorskip("matplotlib")

from mapveil.analysis.zone_changes import changes
from mapveil.geo.zones import Zones
from mapveil.pictures.window_pictures import plot_windows
from mapveil.pictures.zone_pictures import _ticks, plot_changes

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


@pytest.fixture(scope="module")
def series() -> mv.SeriesMap:
    """Two weeks: everybody is in one corner of the second, and nobody in the first."""
    west, south, _, _ = REGION.bbox
    users, day = np.arange(900), np.full(900, np.datetime64("2026-01-13"))
    points = mv.Points.from_arrays(users, np.full(900, west + 0.02), np.full(900, south + 0.02), time=day)
    weeks = mv.Windows(every="1w", start="2026-01-05", until="2026-01-19")
    return mv.release_series(points, weeks, mv.Quadtree(REGION, depth=3), epsilon=2, account=None, rng=1)


def words_of(axes) -> set[str]:
    return {text.get_text() for text in axes.texts}


def test_every_window_has_the_ground_a_frame_and_hatching(series: mv.SeriesMap) -> None:
    panels = plot_windows(series).figure.axes[:2]
    for panel in panels:
        assert "Manhattan" in words_of(panel)
        assert panel.collections, "coast"
        assert any(patch.get_hatch() for patch in panel.patches)
        assert panel.axison
    empty, full = (panel.images[0].get_array() for panel in panels)
    assert np.ma.count(np.ma.masked_invalid(empty)) == 0 < np.ma.count(np.ma.masked_invalid(full))


def test_a_window_that_was_measured_in_one_block_has_one_tone() -> None:
    rng = np.random.default_rng(1)
    west, south, _, _ = REGION.bbox
    lon, lat = west + rng.uniform(0, 0.03, 60), south + rng.uniform(0, 0.03, 60)
    day = np.datetime64("2026-01-05") + rng.integers(0, 14, 60)
    points = mv.Points.from_arrays(np.arange(60), lon, lat, time=day)
    days = mv.Windows(every="1w", start="2026-01-05", until="2026-02-02")
    made = mv.release_series(points, days, mv.Quadtree(REGION, depth=3), epsilon=1, account=None, rng=1)
    assert "each window was measured in 1 block" in made.notes[-2]
    full, empty = (made.window(at).scene() for at in (0, 3))
    assert made.window(0).values.std() > 0, "the cells of a file lie as in all windows together"
    assert np.unique(full.layers[0].values).size == 1
    assert full.reading.startswith("Measured in one block, which has one tone")
    assert np.isnan(empty.layers[0].values).all()
    assert empty.doubt
    figure = plot_windows(made).figure
    assert "Each window was measured in 1 block" in figure.get_suptitle()
    assert "5 to 11 January 2026" in words_of(figure.axes[0])


def test_a_change_names_its_zones_once_and_says_its_null(series: mv.SeriesMap) -> None:
    west, south, _, north = REGION.bbox
    corners = np.array([shapely.box(west, south, -73.98, 40.76), shapely.box(-73.97, 40.76, -73.92, north)])
    zones = Zones(corners, ("Manhattan", "North"))
    before, after = (series.window(at) for at in (0, 1))
    for null, said in (("rate", "the noise and the chance of who was there"), ("people", "the noise alone")):
        axes = plot_changes(changes(before, after, zones, null=null), before, after)
        named = [text.get_text() for text in axes.texts]
        assert [named.count(each) for each in zones.names] == [1, 1]
        assert f"tested against {said}" in " ".join(" ".join(named).split())


def test_hours_of_several_days_have_ticks_at_the_starts_of_days() -> None:
    ticks, labels = _ticks(mv.Windows(by="hour-of-week"))
    assert dict(zip(ticks, labels, strict=True)) == dict(
        zip(range(0, 168, 24), ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], strict=True)
    )
    ticks, labels = _ticks(mv.Windows(every="6h", start="2026-01-05", until="2026-01-11"))
    assert (ticks, labels) == ([0, 8, 16], ["2026-01-05", "2026-01-07", "2026-01-09"])
    assert _ticks(mv.Windows(by="hour"))[1][:2] == ["00:00", "05:00"]


def test_a_change_of_nothing_has_no_colours(series: mv.SeriesMap) -> None:
    west, _, _, north = REGION.bbox
    zones = Zones(np.array([shapely.box(west, 40.77, -73.95, north)]), ("North",))
    before, after = (series.window(at) for at in (0, 1))
    axes = plot_changes(changes(before, after, zones), before, after)
    # Above the map, where it hides no name.
    assert axes.get_title(loc="left").replace("\n", " ").count("No zone changed significantly.") == 1
    assert "North" in words_of(axes)
    assert not axes.child_axes
