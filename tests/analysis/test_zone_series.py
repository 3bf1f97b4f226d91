"""Totals of zones over time, and their pictures: those of each window by itself, and what is significant alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.analysis.zone_series import totals_over_time
from mapveil.engines import UNIT, UserSums
from mapveil.formats.read_record import read_record
from mapveil.geo.zones import Zones
from mapveil.inference.zone_results import WindowTotals, placed_notes
from mapveil.mechanisms.multiscale_series import MultiscaleSeries
from mapveil_client.errors import InputError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
WEEKS = mv.Windows(every="1w", start="2026-01-05", until="2026-01-26")
HALVES = [shapely.box(-74.03, 40.69, -73.965, 40.83), shapely.box(-73.965, 40.69, -73.90, 40.83)]


@pytest.fixture(scope="module")
def series() -> mv.SeriesMap:
    """Three weeks; in the last one the west has five times as many users."""
    tiling = mv.Quadtree(REGION, depth=4)
    sums = np.random.default_rng(1).integers(1, 5, (3, tiling.size))
    sums[2] *= np.where(tiling.centres().lon < -73.965, 5, 1)
    made = MultiscaleSeries(epsilon=2, windows=WEEKS).release(
        UserSums(sums * UNIT, tiling), rng=1, account=None
    )
    assert isinstance(made, mv.SeriesMap)
    return made


def test_totals_over_time_are_those_of_each_window(series: mv.SeriesMap) -> None:
    found = totals_over_time(series, HALVES, alpha=0.1)
    assert found.estimate.shape == (2, 3)
    for at in range(3):
        alone = series.window(at).totals(HALVES, alpha=0.1)
        np.testing.assert_array_equal(found.estimate[:, at], alone.estimate)
        np.testing.assert_array_equal(found.low[:, at], alone.low)
        np.testing.assert_array_equal(found.high[:, at], alone.high)
    columns = found.columns()
    kinds = ("estimate", "low", "high", "placed", "inside", "touched")
    assert list(columns)[:7] == ["zone", *(f"{kind} 2026-W02" for kind in kinds)]
    np.testing.assert_array_equal(columns["estimate 2026-W04"], found.estimate[:, 2])


def test_bands_are_drawn_for_each_zone(series: mv.SeriesMap, tmp_path: Path) -> None:
    patches = pytest.importorskip("matplotlib.patches")
    from mapveil.pictures.zone_pictures import plot_totals, write_totals_png

    found = totals_over_time(series, HALVES)
    figure = plot_totals(found, series).figure
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["1", "2"]
    for zone, axes in enumerate(panels):
        (line,) = (each for each in axes.patches if isinstance(each, patches.StepPatch))
        values, edges, _ = line.get_data()
        np.testing.assert_allclose(values, np.maximum(found.estimate[zone], 0))
        np.testing.assert_allclose(np.diff(edges), 1)
        assert axes.get_xlim() == (edges[0], edges[-1])
    head = figure.get_suptitle().replace("\n", " ")
    assert "95 % intervals of the noise" in head
    assert "NOT FOR RELEASE" in head
    write_totals_png(found, series, tmp_path / "totals.png")
    assert read_record(tmp_path / "totals.png")["method"] == "multiscale-series"
    many = Zones(np.array(HALVES * 13, dtype=object), tuple("abcdefghijklmnopqrstuvwxyz"))
    with pytest.raises(InputError, match="at most 24 zones, got 26"):
        plot_totals(WindowTotals(many, WEEKS, 0.05, *np.zeros((6, 26, 3))), series)


def test_a_zone_that_was_never_measured_alone_is_marked(series: mv.SeriesMap) -> None:
    pytest.importorskip("matplotlib")
    from mapveil.pictures.zone_pictures import plot_totals

    speck = shapely.box(-73.9655, 40.7599, -73.9645, 40.7601)  # smaller than every cell
    found = totals_over_time(series, [HALVES[0], speck])
    assert found.modelled.tolist() == [[False] * 3, [True] * 3]
    figure = plot_totals(found, series).figure
    hatched = {axes.get_title(): any(each.get_hatch() for each in axes.patches) for axes in figure.axes}
    assert hatched == {"1": False, "2 (100 % placed)": True}
    assert "Hatched: the model places most of these users" in figure.get_suptitle().replace("\n", " ")
    assert "such as 2: most of these were measured only together" in placed_notes(found)[0]
    assert placed_notes(totals_over_time(series, HALVES)) == []


@pytest.fixture(scope="module")
def change(series: mv.SeriesMap) -> tuple[mv.DensityMap, mv.DensityMap, object]:
    before, after = series.window(0), series.window(2)
    return before, after, mv.changes(before, after, HALVES)


def test_a_map_of_change_colours_what_is_significant_and_hatches_the_rest(change: tuple) -> None:
    patches = pytest.importorskip("matplotlib.patches")
    from mapveil.pictures.zone_pictures import plot_changes

    before, after, found = change
    assert found.changed.tolist() == [True, False]
    axes = plot_changes(found, before, after)
    drawn = [each for each in axes.patches if isinstance(each, patches.PathPatch)]
    assert [bool(each.get_hatch()) for each in drawn[-2:]] == [False, True]
    assert axes.get_title(loc="left").startswith("Change in 2026-W04: ")
    said = " ".join(text.get_text() for text in axes.texts).replace("\n", " ")
    assert (
        "1 of 2 zones changed, tested against the noise and the chance of who was there; about 5 % of" in said
    )
    quiet = plot_changes(found._replace(changed=np.zeros(2, dtype=bool)), before, after)
    assert quiet.get_legend() is not None


def test_a_page_of_change_has_picture_promise_and_every_zone(change: tuple, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from mapveil.pictures.zone_pictures import write_changes_page

    before, after, found = change
    named = found._replace(zones=replace(found.zones, names=("<b>west</b>", "east")))
    write_changes_page(named, before, after, tmp_path / "change.html")
    text = (tmp_path / "change.html").read_text()
    assert "data:image/png;base64," in text
    assert "&lt;b&gt;west&lt;/b&gt;" in text
    assert "<b>west" not in text
    assert "no call" in text
    assert "SEEDED: NOT FOR RELEASE" in text
    assert "http" not in text.replace("http-equiv", "")
