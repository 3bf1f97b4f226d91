"""The console's files: what they may not do, and that their arithmetic is Python's."""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mapveil.geo.grid import Grid
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.methods import METHODS
from mapveil.pictures.colours import density_scale
from mapveil.pictures.scene_record import scene_record
from mapveil.privacy.claim import Adversary, Neighbouring, TrustModel
from mapveil.privacy.guarantee import Guarantee
from tests.node import run_in_node

ROOT = Path(__file__).parents[2]
CONSOLE = ROOT / "src/mapveil/collector/console"
SHARED = ROOT / "src/mapveil/pictures/shared"
ASSETS = CONSOLE / "assets"
MODULES = sorted([*ASSETS.glob("*.js"), *SHARED.glob("assets/*.js")], key=lambda path: path.name)
REGION = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILINGS: dict[str, Tiling] = {
    "quadtree": Quadtree(REGION, 6),
    "grid": Grid(REGION, rows=11, columns=23),
    "far north": Grid(Region.from_bbox(170.0, -10.0, 179.9, 80.0), rows=9, columns=4),
    "tiles": WebMercatorTiles(REGION, 14),
}


@functools.cache
def served() -> Path:
    """The console's files as the server has them: beside what they share with exported pages."""
    folder = Path(tempfile.mkdtemp(prefix="mapveil-console-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for source in (CONSOLE, SHARED):
        shutil.copytree(source / "assets", folder / "assets", dirs_exist_ok=True)
    return folder / "assets"


def module(name: str) -> str:
    """The address of a module of the console."""
    return (served() / name).as_uri()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_nothing_over_the_wire_is_read_as_markup_or_script(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|setHTML", text
    )
    # A style attribute would be refused by the policy; styles are set through the object model.
    assert not re.search(r"setAttribute\(\s*[\"'`](style|on\w+)", text)
    assert "//" not in re.sub(r"(?m)(^|\s)//.*$", "", text), "an address of another host"
    assert len(text.splitlines()) <= 350


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_every_import_is_a_file_that_exports_the_name(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    found = re.findall(r"import (?:\{([^}]*)\} from )?[\"'](\./[^\"']+)[\"']", text)
    found += [("", name) for name in re.findall(r"import\([\"'](\./[^\"']+)[\"']\)", text)]
    for names, path in found:
        target = served() / path
        assert target.is_file(), path
        for name in filter(None, (part.split(" as ")[0].strip() for part in names.split(","))):
            exported = rf"export (async )?(const|function|class) {name}\b"
            assert re.search(exported, target.read_text("utf-8")), name


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (CONSOLE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [""]
    assert "<style" not in page
    assert not re.search(r"\s(style|on\w+)=", page)
    places = re.findall(r"(?:src|href)=\"(/[^\"]+)\"", page)
    assert len(places) == 4
    for place in places:
        assert (served().parent / place.lstrip("/")).is_file(), place
    for sheet in served().glob("*.css"):
        assert not re.search(r"url\(|@import", sheet.read_text(encoding="utf-8"))


def test_the_form_offers_the_methods_there_are() -> None:
    script = f"import {{ METHODS }} from '{module('methods.js')}'; console.log(JSON.stringify(METHODS));"
    offered = {trust: [name for name, _ in rows] for trust, rows in run_in_node(script, None).items()}
    there: dict[str, set[str]] = {trust: set() for trust in offered}
    for method in METHODS:
        if method.trust in there:
            there[method.trust].add(method.name)
    # Labels are not asked of phones, and other projections send what projections exist to hide.
    there["distributed"] -= {"proportions"}
    assert set(offered) == {"operators", "distributed", "local", "random-features"}
    there["random-features"] = {"fourier-kde"}
    assert {trust: set(names) for trust, names in offered.items()} == there
    from mapveil.mechanisms.methods import DEFAULT_METHODS

    assert all(names[0] == DEFAULT_METHODS[trust] for trust, names in offered.items())


def a_map(tiling: Tiling, values: np.ndarray) -> DensityMap:
    promise = Guarantee(
        model=TrustModel.LOCAL,
        neighbours=Neighbouring.REPLACE_ONE,
        epsilon=Fraction(1),
        adversary=Adversary.REPORTS,
    )
    return DensityMap(values, tiling, promise, "grr")


# A browser's canvas, as far as modules touch it when they are made.
NO_PAGE = """
const nothing = { createImageData: (w, h) => ({ data: { buffer: new ArrayBuffer(4 * w * h) } }), putImageData() {} };
globalThis.document = { documentElement: { dataset: {} }, createElement: () => ({ getContext: () => nothing }) };
globalThis.matchMedia = () => ({ matches: false });
globalThis.Path2D = class { moveTo() {} lineTo() {} closePath() {} rect() {} };
"""


@pytest.mark.parametrize("name", TILINGS)
def test_the_viewer_finds_the_cell_that_python_finds(name: str) -> None:
    tiling = TILINGS[name]
    heat = a_map(tiling, np.arange(tiling.size, dtype=float) + 1)
    scene = scene_record(heat)["scene"]
    west, south, east, north = tiling.region.bbox
    draw = np.random.default_rng(5)
    wide, high = (east - west) / 10, (north - south) / 20
    lon, lat = draw.uniform(west - wide, east + wide, 2000), draw.uniform(south - high, north + high, 2000)
    script = f"""
    {NO_PAGE}
    const {{ cellScene }} = await import('{module("cell_scene.js")}');
    const {{ unpackAll }} = await import('{module("packed.js")}');
    const cells = cellScene(await unpackAll(given.scene)), {{ degrees }} = cells;
    const found = given.places.map(([lon, lat]) => cells.find(degrees.x(lon), degrees.y(lat), {{}}));
    const back = given.places.map(([lon, lat]) => degrees.at(degrees.x(lon), degrees.y(lat)));
    console.log(JSON.stringify({{ found, back, rows: cells.rows(Math.max(...found)) }}));
    """
    told = run_in_node(script, {"scene": scene, "places": np.column_stack([lon, lat]).tolist()})
    wanted = tiling.locate(lon, lat)
    assert (wanted >= 0).sum() > 300
    assert (wanted < 0).sum() > 10
    # The record's seven decimals move an edge by a centimetre.
    assert (np.array(told["found"]) == wanted).mean() > 0.998
    np.testing.assert_allclose(told["back"], np.column_stack([lon, lat]), atol=1e-9)
    cell, rows = int(max(told["found"])), {row[0]: row[1] for row in told["rows"]}
    shown = {
        name: float(rows[name].split(" ")[0].replace("\u202f", "")) for name in ("Estimated users", "Density")
    }
    assert shown["Estimated users"] == pytest.approx(heat.values[cell], rel=6e-3)
    assert shown["Density"] == pytest.approx(heat.per_km2()[cell], rel=6e-3)


def test_maps_are_laid_over_each_other_by_degrees_where_their_planes_agree() -> None:
    script = f"""
    {NO_PAGE}
    const {{ cellScene }} = await import('{module("cell_scene.js")}');
    const {{ unpackAll }} = await import('{module("packed.js")}');
    const {{ layOver }} = await import('{module("compare.js")}');
    const [one, other, far] = await Promise.all(given.map(async (each) => cellScene(await unpackAll(each))));
    const laid = layOver(one, other), [x, y] = laid.place(other.degrees.x(-73.97), other.degrees.y(40.75));
    console.log(JSON.stringify([one.degrees.at(x, y), layOver(one, one).transform, layOver(far, one)]));
    """
    mercator = WebMercatorTiles(Region.from_bbox(170.0, -10.0, 179.9, 80.0), 4)
    tilings = [TILINGS["grid"], TILINGS["tiles"], mercator]
    scenes = [scene_record(a_map(each, np.ones(each.size)))["scene"] for each in tilings]
    place, same, refused = run_in_node(script, scenes)
    assert place == pytest.approx([-73.97, 40.75], abs=1e-4)  # 10 m
    assert same == pytest.approx([1, 0, 0, 1, 0, 0], abs=1e-6)
    assert refused is None


def test_the_legends_scale_is_the_pictures() -> None:
    tiling = TILINGS["grid"]
    heat = a_map(tiling, np.random.default_rng(2).exponential(9.0, tiling.size))
    legend = scene_record(heat)["scene"]["layers"][0]["scale"]
    scale = density_scale(heat.per_km2(), "log")
    densities = [0.0, scale.knee / 3, scale.knee, 20.0, scale.top]
    script = f"""
    {NO_PAGE}
    const {{ commonScale }} = await import('{module("compare.js")}');
    const {{ fractionOf, ticksOf }} = await import('{module("scale.js")}');
    const noisy = {{ ...given.other, top: 163, knee: 100, noise_floor: 50 }};
    const fractions = given.densities.map((density) => fractionOf(given.legend, density));
    const scales = [commonScale([given.legend, given.other]),
      commonScale([{{ ...given.legend, top: 1.5, knee: 0.001 }}, noisy])];
    console.log(JSON.stringify([fractions, ...scales.map((each) => ({{ ...each, ticks: ticksOf(each) }}))]));
    """
    other = {"kind": "log", "low": 0, "top": 5e6, "knee": 1000.0, "noise_floor": 0.0}
    found, common, noisy = run_in_node(script, {"legend": legend, "densities": densities, "other": other})
    np.testing.assert_allclose(found, scale.fraction(densities), rtol=1e-12)
    assert (common["top"], common["knee"]) == (5e6, scale.knee)
    assert common["ticks"][0] == 0
    assert common["ticks"][1] == scale.knee
    assert common["ticks"][-1] <= 5e6
    # What chance puts into one of them is no structure beside the other.
    assert (noisy["top"], noisy["knee"]) == (163, 100)
    assert noisy["ticks"] == [0, 20, 40, 60, 80, 100, 120, 140, 160]


@pytest.mark.parametrize(("values", "alone"), [([0.0, 8.0], True), ([6.0, 8.0], False)])
def test_one_value_alone_is_said_to_have_the_middle_tone(values: list[float], alone: bool) -> None:
    tiling = TILINGS["quadtree"]
    one, other, twice = (
        scene_record(a_map(tiling, np.resize(each, tiling.size) * tiling.area_m2() / 1e6))["scene"]["layers"][
            0
        ]
        for each in (values, [3.0, 8.0], [0.0, 16.0])
    )
    script = f"""
    {NO_PAGE}
    const {{ aloneWords }} = await import('{module("legend.js")}');
    const {{ commonScale }} = await import('{module("compare.js")}');
    const [one, other, twice] = given;
    console.log(JSON.stringify([one, commonScale([one, one]), commonScale([one, other]), commonScale([one, twice])]
      .map(aloneWords)));
    """
    said = run_in_node(script, [each["scale"] for each in (one, other, twice)])
    assert [text[:17] for text in said] == [" One value alone " * alone] * 2 + ["", ""]
    for page in ("viewer.js", "compare.js"):
        assert "${aloneWords(scale)}" in (served() / page).read_text(encoding="utf-8")


def test_numbers_and_times_read_well() -> None:
    script = f"""
    import {{ number, duration, fraction, epsilonWords }} from '{module("words.js")}';
    console.log(JSON.stringify([
      [0, 2.71828, 43061.9, 0.00042, NaN].map((v) => number(v)), [5, 65, 3700, 400000, null].map((v) => duration(v)),
      ["1/3", "0.5", null].map(fraction), epsilonWords("3/20"), epsilonWords(null)]));
    """
    numbers, times, fractions, words, none = run_in_node(script, None)
    assert numbers == ["0", "2.72", "43\u202f100", "0.00042", "unknown"]
    assert times == ["5 s", "1 min 05 s", "1 h 01 min", "5 days", ""]
    assert fractions == [pytest.approx(1 / 3), 0.5, None]
    assert (words, none) == ("ε = 0.15", "no ε")


def test_the_graticule_runs_at_round_degrees() -> None:
    script = f"""
    {NO_PAGE}
    const {{ graticule }} = await import('{module("graticule.js")}');
    console.log(JSON.stringify(given.map((view) => graticule(...view))));
    """
    views = [[-74.03, 40.69, -73.90, 40.83], [-180, -85, 180, 85], [10, 50, 10.001, 50.001]]
    for view, found in zip(views, run_in_node(script, views), strict=True):
        for lines in found.values():
            assert 1 <= len(lines) <= 12, view
            labels = [label for _, label in lines]
            assert len(set(labels)) == len(labels)
            for at, label in lines:
                number, letter = re.fullmatch(r"(\d+(?:\.\d+)?)°(?: ([NESW]))?", label).groups()
                assert float(number) * (-1 if letter in ("W", "S") else 1) == pytest.approx(at, abs=1e-9)


def test_the_last_line_of_the_log_is_found_in_few_questions() -> None:
    # The module's other half needs a page; this half does not.
    text = (ASSETS / "audit.js").read_text(encoding="utf-8")
    found = re.search(r"export (async function lastLine.*?\n}\n)", text, re.DOTALL)
    assert found is not None
    script = f"""
    const MOST = 1 << 30;
    {found[1]}
    const told = [];
    for (const length of given) {{
      let asked = 0;
      told.push([await lastLine(async (number) => {{ asked += 1; return number <= length; }}), asked]);
    }}
    console.log(JSON.stringify(told));
    """
    lengths = [0, 1, 2, 3, 100, 1023, 1024, 123456]
    told = run_in_node(script, lengths)
    assert [last for last, _ in told] == lengths
    assert max(asked for _, asked in told) <= 36


def test_the_form_says_what_cells_python_would_make() -> None:
    script = f"""
    import {{ cellsInWords }} from '{module("tiling_picker.js")}';
    console.log(JSON.stringify(given.map((each) => cellsInWords(...each))));
    """
    box = list(REGION.bbox)
    asked = [
        ["quadtree", 8, 0, box],
        ["grid", 10, 20, box],
        ["tiles", 15, 0, box],
        ["quadtree", 12, 0, box],
        ["grid", 5, 5, [1, 2, 0, 3]],
    ]
    told = run_in_node(script, asked)
    tilings = [Quadtree(REGION, 8), Grid(REGION, rows=10, columns=20), WebMercatorTiles(REGION, 15)]
    for text, tiling in zip(told, tilings, strict=False):
        numbers = re.findall(r"\d+(?:\u202f\d{3})*(?:\.\d+)?", text)
        wide, high, count, east, north = (float(number.replace("\u202f", "")) for number in numbers)
        assert wide * high == pytest.approx(REGION.area_m2 / 1e6, rel=0.05)
        assert east * north == pytest.approx(float(np.median(tiling.area_m2())), rel=0.06)
        # Tiles lie over the region's edge.
        assert count <= tiling.size <= (1.3 * count if tiling.spec.startswith("tiles") else count)
    assert "too many" in told[3]
    assert told[4] == ""
