"""Totals of zones over time, and their pictures: those of each window by itself, and what is significant alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.analysis.zone_series import totals_over_time
from mapveil.analysis.zone_totals import totals
from mapveil.engines import UNIT, UserSums
from mapveil.formats.read_map import read_map
from mapveil.formats.read_record import read_record
from mapveil.geo.zones import Zones
from mapveil.inference import linear_totals
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil.inference.zone_results import WINDOW_COLUMNS, WindowTotals, placed_notes
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
    assert list(columns)[7:9] == ["certain_low 2026-W02", "certain_high 2026-W02"]
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
        plot_totals(WindowTotals(many, WEEKS, 0.05, *np.zeros((8, 26, 3))), series)


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


HUB = 37  # a cell


def hub_series(seed: int = 1) -> mv.SeriesMap:
    """Nine weeks in blocks of many cells, one of which holds most users of its block: 13 in each week."""
    tiling = mv.Quadtree(REGION, depth=4)
    windows = mv.Windows(every="1w", start="2026-01-05", until="2026-03-09")
    users = np.full((9, tiling.size), 0.15)
    users[:, HUB] = 13
    made = MultiscaleSeries(epsilon=1, windows=windows).release(
        UserSums((users * UNIT).astype(np.int64), tiling), rng=seed, account=None
    )
    assert isinstance(made, mv.SeriesMap)
    return made


def test_users_of_a_cut_block_are_placed_by_the_map_of_all_windows(tmp_path: Path) -> None:
    """By area the hub had a 64th of its block's users. The mean of 54 windows has a deviation of .4, and 3 % pooled."""
    hub = hub_series().tiling.polygons()[HUB]
    found = []
    for seed in range(6):
        series = hub_series(seed)
        made = totals_over_time(series, hub)
        assert made.modelled.all()
        assert ((made.certain_low <= 13) & (made.certain_high >= 13)).mean() >= 0.75
        low, high = made.bounds
        assert (low == made.certain_low).all()
        assert (high == made.certain_high).all()
        assert np.isnan(made.displayed()["low"]).all()
        found.append(made.estimate[0])
    assert np.mean(found) == pytest.approx(13, abs=1.5)
    window = series.window(0)
    total = window.total(hub)
    assert total.placed == 1
    assert total.inside.estimate == 0
    assert f"wherever in the cut cells they are: {total.certain()[0]:,.1f} to" in repr(total)
    for suffix in (".parquet", ".tif"):
        series.save(tmp_path / f"series{suffix}")
        window.save(tmp_path / f"window{suffix}")
        again = read_map(tmp_path / f"series{suffix}")
        assert isinstance(again, mv.SeriesMap)
        for each in (again.window(0), read_map(tmp_path / f"window{suffix}")):
            assert each.total(hub).estimate == pytest.approx(total.estimate, abs=total.deviation / 16)


def test_a_series_in_a_single_block_answers_with_a_bracket() -> None:
    tiling = mv.Quadtree(REGION, depth=4)
    sums = UserSums(np.full((3, tiling.size), UNIT // 100), tiling)
    made = MultiscaleSeries(epsilon=1, windows=WEEKS).release(sums, rng=1, account=None)
    assert isinstance(made, mv.SeriesMap)
    window = made.window(1)
    assert [each.noisy.size for each in window.measurements] == [1]
    zone = HALVES[0]
    total, everybody = window.total(zone), window.total()
    assert total.certain() == (0, pytest.approx(everybody.interval()[1]))
    assert "(95 %, wherever in the cut cells they are: 0.0 to" in repr(total)
    found = mv.changes(window, made.window(2), HALVES)
    assert not found.compared.any()
    assert found.counts == "0 of 2 zones changed, of 0 that can be compared"
    assert "a smaller --option window_signal allow it" in found.zones.notes[-1]


def test_windows_of_one_law_are_inverted_once(series: mv.SeriesMap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Totals over time are those of each window, with one overlay and as many quantiles as one window has."""
    zones = [*HALVES, shapely.box(-74.0, 40.7, -73.93, 40.8)]
    alone = [totals(series.window(at), zones, alpha=0.1) for at in range(len(series))]
    counts = {"half_width": 0, "of": 0}
    half_width, of = linear_totals.half_width, ZoneOverlay.of

    def counted_width(*given: object) -> float:
        counts["half_width"] += 1
        return half_width(*given)  # type: ignore[arg-type]

    def counted_of(*given: object) -> ZoneOverlay:
        counts["of"] += 1
        return of(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(linear_totals, "half_width", counted_width)
    monkeypatch.setattr(ZoneOverlay, "of", counted_of)
    found = totals_over_time(series, zones, alpha=0.1)
    assert counts["of"] == 1
    assert counts["half_width"] <= 3 * len(zones)
    for at, each in enumerate(alone):
        for name in WINDOW_COLUMNS:
            assert getattr(found, name)[:, at] == pytest.approx(getattr(each, name)), name


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
    for heat, whose in ((before, "before"), (after, "after")):
        lone = replace(heat, notes=("WARNING: few were left", *heat.notes))
        pair = (lone, after) if whose == "before" else (before, lone)
        words = " ".join(text.get_text() for text in plot_changes(found, *pair).texts).replace("\n", " ")
        assert f"Note: the map {whose}: WARNING: few were left." in words
        assert f"Note: both maps: {heat.notes[0]}." in words
    cut = replace(found.zones, notes=("half of them was left out",))
    words = " ".join(text.get_text() for text in plot_changes(found._replace(zones=cut), before, after).texts)
    assert "Note: half of them was left out." in words
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
