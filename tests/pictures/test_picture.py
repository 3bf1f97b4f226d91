"""Pictures: what they show in numbers, what they say, and what they carry."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from mapveil.pictures.colours import colormap, density_scale, ramp
from mapveil.pictures.picture import notebook_html, plot
from mapveil.pictures.picture_frame import number_text
from mapveil_client.errors import InputError, ParameterError

KINDS = ["grid", "quadtree", "polygon", "utm", "degrees", "tiles", "no georeference", "hexagons", "places"]


def texts(axes):
    return [axes.get_title(loc="left")] + [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("kind", KINDS)
def test_every_tiling_is_drawn_in_its_densities(make_map, kind):
    heat = make_map(kind)
    axes = plot(heat, detail="cells")
    axes.figure.canvas.draw()
    if axes.images:
        shown = np.ma.filled(axes.images[0].get_array(), np.nan)
        inside = heat.tiling.lattice().inside
        known = heat.per_km2() if inside is None else heat.per_km2()[inside]
        assert np.allclose(np.sort(shown[np.isfinite(shown)]), np.sort(known))
    else:
        cells = next(item for item in axes.collections if isinstance(item, PathCollection))
        assert np.array_equal(cells.get_array(), heat.per_km2())
        assert len(cells.get_paths()) == heat.tiling.size
    unit = "users per cell" if kind == "no georeference" else "users per km²"
    assert axes.child_axes[0].get_ylabel().startswith(unit)


def test_northern_row_is_on_top(make_map):
    image = plot(make_map("grid")).images[0]
    assert image.origin == "upper"
    west, east, south, north = image.get_extent()
    assert west < east
    assert south < north


def test_a_kilometre_is_as_long_both_ways(make_map):
    """Degrees of longitude are shorter than those of latitude: at 1.31 N by cos(1.31)."""
    aspect = plot(make_map("degrees")).get_aspect()
    assert aspect == pytest.approx(1 / np.cos(np.radians(1.31)), rel=0.01)
    assert plot(make_map("no georeference")).get_aspect() == 1.0


def test_says_method_epsilon_guarantee_and_notes(make_map):
    said = " ".join(" ".join(texts(plot(replace(make_map("grid"), title="A city")))).split())
    for part in ("A city", "laplace, epsilon 1/3", "one note", make_map("grid").guarantee.promise.line):
        assert part in said


def test_says_how_uncertain_the_median_cell_is(make_map):
    heat = make_map("grid")
    lower, upper = heat.error()
    middle = np.median((upper - lower) / 2 / (heat.tiling.area_m2() / 1e6))
    said = " ".join(" ".join(texts(plot(heat, detail="cells"))).split())
    assert f"Uncertainty of the median cell: ± {number_text(middle)} users per km²." in said


@pytest.mark.parametrize("title", ["cost $5 and $6", "cost $\\frac{$ x", "word " * 40])
def test_a_title_is_drawn_as_it_is_written_and_wrapped(make_map, title):
    axes = plot(replace(make_map("grid"), title=title))
    axes.figure.canvas.draw()
    shown = axes.get_title(loc="left")
    assert " ".join(shown.split()).startswith(" ".join(title.split()))
    assert max(map(len, shown.splitlines())) <= 72


@pytest.mark.parametrize("seeded", [False, True])
def test_seeded_maps_are_marked(make_map, seeded):
    assert ("SEEDED: NOT FOR RELEASE" in texts(plot(make_map("grid", seeded=seeded)))) == seeded


def test_draws_into_given_axes(make_map):
    axes = Figure().add_subplot()
    assert make_map("grid").plot(axes, scale="linear") is axes
    assert "linear" in axes.child_axes[0].get_ylabel()


def test_refuses_another_scale(make_map, tmp_path):
    with pytest.raises(ParameterError, match=r"scale must be one of linear, log, got 'square'"):
        make_map("grid").to_png(tmp_path / "a.png", scale="square")
    assert list(tmp_path.iterdir()) == []


def test_a_map_of_nobody_is_drawn(make_map):
    heat = make_map("grid")
    heat.values[:] = 0.0
    plot(heat).figure.canvas.draw()


def test_png_carries_the_metadata(make_map, tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    heat = make_map("places", notes=("café \u2264 5",))
    heat.save(tmp_path / "map.png")
    with image_module.open(tmp_path / "map.png") as image:
        image.load()
        assert json.loads(image.text["mapveil"]) == json.loads(heat.metadata_json())
        assert image.text["Description"] == heat.guarantee.in_words()
        assert image.text["Software"] == f"mapveil {heat.version}"


def test_png_says_where_it_cannot_be_written(make_map, tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        make_map("grid").to_png(tmp_path / "nowhere" / "map.png")


def test_notebook_escapes_and_names_the_promise(make_map):
    shown = notebook_html(make_map("grid", method="<b>&"))
    assert "&lt;b&gt;&amp;" in shown
    assert "<b>" not in shown
    assert "(1/3, 0)-DP" in shown
    assert shown == make_map("grid", method="<b>&")._repr_html_()


def test_pyplot_is_never_loaded():
    code = (
        "import sys; from mapveil.pictures.picture import plot; from mapveil.pictures.colours import colormap;"
        "import matplotlib.figure; colormap(); sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("kind", ["log", "linear"])
def test_scale_is_monotone_and_invertible(kind):
    scale = density_scale(np.array([0.0, 3.0, 41234.5, np.nan, np.inf]), kind)
    density = np.linspace(0, 41234.5, 500)
    part = scale.fraction(density)
    assert (np.diff(part) > 0).all()
    assert (part[0], part[-1]) == pytest.approx((0.0, 1.0))
    assert np.allclose(scale.density(part), density)
    assert scale.ticks()[0] == 0.0
    assert (scale.ticks() <= 41234.5).all()


def test_log_scale_copes_with_skew():
    """A thousandth of the densest cell still has a colour of its own; on the linear scale it has none."""
    density = np.array([0.0, 10.0, 10_000.0])
    steps = {kind: density_scale(density, kind).fraction(density[1]) * 255 for kind in ("log", "linear")}
    assert steps["log"] > 20
    assert steps["linear"] < 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.0, 5.0, 20_000.0], "scale nearly linear up to 10, logarithmic above"),
        ([0.0, 8.0, 8.0], "nearly linear scale"),
    ],
)
def test_a_scale_from_zero_is_not_called_logarithmic(make_map, values, words):
    heat = make_map("grid")
    density = np.resize(values, heat.tiling.size)
    axes = plot(replace(heat, values=density * heat.tiling.area_m2() / 1e6, measurements=()), detail="cells")
    label = " ".join(axes.child_axes[0].get_ylabel().split())
    assert f"users per km², {words}" in label


@pytest.mark.parametrize(("values", "alone"), [([0.0, 8.0], True), ([0.0, 6.0, 8.0], False)])
def test_one_value_alone_is_said_to_have_the_middle_tone(make_map, values, alone):
    heat = make_map("grid")
    density = np.resize(values, heat.tiling.size)
    axes = plot(replace(heat, values=density * heat.tiling.area_m2() / 1e6, measurements=()), detail="cells")
    said = " ".join(" ".join(text.get_text() for text in axes.texts).split())
    assert (
        "One value alone has the middle tone, since there is no other to compare it with." in said
    ) == alone
    dark = axes.images[0].norm(8.0)
    assert dark < 0.6 if alone else dark == pytest.approx(1)


def test_ramp_darkens_evenly():
    grey = colormap()(np.linspace(0, 1, 64))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(grey) < 0).all()
    assert ramp().shape == (256, 3)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (2.718, "2.72"),
        (1000, "1\u202f000"),
        (123456, "123\u202f456"),
        (0.05, "0.05"),
        (2e9, "2e+09"),
    ],
)
def test_numbers_are_short(value, text):
    assert number_text(value) == text
