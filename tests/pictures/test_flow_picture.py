"""The picture of flows: what is drawn, and what is written under it."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil.maps.flow_map import FlowMap
from mapveil.pictures.picture import notebook_html, plot, write_png
from mapveil.pictures.picture_plane import POINTS
from mapveil.privacy.claim import Adversary, Neighbouring, TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import ParameterError

GRID = Grid(Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=3, columns=4)
PROMISE = Guarantee(
    model=TrustModel.LOCAL,
    neighbours=Neighbouring.REPLACE_ONE,
    epsilon=Fraction(2),
    adversary=Adversary.REPORTS,
)


def flows_of(count: int = 144, seed: int = 0) -> FlowMap:
    pair = np.random.default_rng(seed).permutation(144)[:count]
    return FlowMap(
        pair // 12, pair % 12, np.arange(1.0, count + 1), GRID, PROMISE, "by hand", notes=("so it is",)
    )


def arcs_of(axes):
    """The lines over the ground's."""
    return next(each for each in axes.collections if hasattr(each, "get_segments") and each.get_zorder() == 2)


def words(axes) -> str:
    return " ".join(text.get_text() for text in axes.figure.findobj(lambda part: hasattr(part, "get_text")))


def test_the_largest_arcs_are_drawn_thicker_towards_their_end() -> None:
    axes = plot(flows_of(), arcs=20)
    lines = arcs_of(axes)
    dots = int(sum(a == b for a, b in zip(flows_of().origin[:20], flows_of().destination[:20], strict=True)))
    widths = np.asarray(lines.get_linewidths()).reshape(20 - dots, POINTS - 1)
    assert (np.diff(widths, axis=1) > 0).all()
    # The largest flow lies on top.
    assert widths[-1, -1] == widths.max()


def test_one_scale_holds_for_arcs_and_discs() -> None:
    flows = FlowMap(np.array([0, 1]), np.array([0, 2]), np.array([900.0, 40.0]), GRID, PROMISE, "by hand")
    axes = plot(flows)
    bar = next(each for each in axes.child_axes if each.get_ylim()[1] > 1)
    assert bar.get_ylim() == (0.0, pytest.approx(900.0))
    assert "One value alone" not in words(axes), "a disc is darker than the only arc"


def test_words_tell_the_promise_the_notes_and_what_is_left_out() -> None:
    said = words(plot(flows_of(), arcs=20))
    for part in (
        "epsilon 2",
        "so it is",
        "20 largest of 144 flows",
        "% of all",
        "a disc is the flow within one cell",
    ):
        assert part in said
    assert "largest of" not in words(plot(flows_of(10)))
    assert "My city" in words(plot(replace(flows_of(), title="My city")))


def test_arcs_at_the_border_are_not_cut() -> None:
    axes = plot(flows_of(), arcs=144)
    lines = arcs_of(axes)
    corners = np.concatenate(lines.get_segments())
    for part, limits in zip(corners.T, (axes.get_xlim(), axes.get_ylim()), strict=True):
        assert limits[0] <= part.min() + 1e-9
        assert part.max() <= limits[1] + 1e-9


@pytest.mark.parametrize("count", [0, 1])
def test_few_flows_are_a_picture_too(count: int, tmp_path: Path) -> None:
    write_png(flows_of(count), tmp_path / "few.png")
    assert (tmp_path / "few.png").stat().st_size > 5_000


def test_the_file_carries_the_metadata(tmp_path: Path) -> None:
    flows = replace(flows_of(), title="A city")
    write_png(flows, tmp_path / "flows.png")
    with Image.open(tmp_path / "flows.png") as picture:
        assert json.loads(picture.text["mapveil"]) == flows.metadata()
        assert picture.text["Title"] == "A city"


def test_a_notebook_shows_picture_and_promise() -> None:
    shown = notebook_html(flows_of())
    assert "data:image/png;base64," in shown
    assert "user-level, replace-one, (2, 0)-DP" in shown


def test_no_arcs_are_refused() -> None:
    with pytest.raises(ParameterError, match="arcs must be at least 1"):
        plot(flows_of(), arcs=0)
