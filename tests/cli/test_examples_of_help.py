"""The examples of every command's help are valid, and those that take seconds run as they are written."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import click
import networkx
import numpy as np
import pandas as pd
import pytest

import mapveil as mv
from mapveil.analysis.trips import read_trips
from mapveil.cli.app import app
from mapveil.geo.read_measurements import read_measurements
from mapveil.geo.zone_cells import ZoneCells
from mapveil.geo.zones import Zones
from mapveil.obfuscation.export.privatizer_file import write_privatizer
from mapveil.obfuscation.privatize import write_privatized
from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian
from mapveil_client.secure_sum.keys import Identity

pytestmark = pytest.mark.xdist_group("examples of help")  # the folder of files takes five seconds to make

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
BLOCKS = re.findall(r"(?:Examples|Start here):\n(.*?)\n\n", PAGE.read_text("utf-8"), flags=re.DOTALL)
LINES = [
    re.split(r"\s{3,}| > ", line.strip())[0]  # without a remark, or the file that a shell writes
    for block in BLOCKS
    for line in re.sub(r" \\\n\s+", " ", block).splitlines()
    if line.strip().startswith("mapveil ")
]
KEY = Identity(bytes(32)).public.hex()  # an example writes its beginning
EXAMPLES = [shlex.split(line.replace("8a88...", KEY))[1:] for line in dict.fromkeys(LINES)]
NEW_YORK = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
# Not run here but in the tests of their commands: servers and fleets, training, runs of minutes, and signatures of
# files that a ledger was charged for.
LONG = re.compile(
    r"serve|enrol-authority .*--serve|ledger sign|verify|"
    r"device|audit|attack|compare|plan|signal (fit|tradeoff|choose|certify|drift)|routes city.osm"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that an example names."""
    folder = tmp_path_factory.mktemp("examples")
    draw = np.random.default_rng(1)
    venue = draw.integers(40, size=1500)
    lon, lat = (draw.uniform(low, high, 40)[venue] for low, high in ((-74.02, -73.91), (40.70, 40.82)))
    user = np.arange(1500) // 5
    visits = pd.DataFrame({"user_id": user, "lon": lon, "lat": lat, "venue_id": venue})
    for name in ("checkins", "in", "out"):
        visits.to_parquet(folder / f"{name}.parquet", index=False)
    to = np.roll(np.arange(1500), 1)
    trips = visits.rename(columns={"user_id": "rider"}).assign(dest_lon=lon[to], dest_lat=lat[to])
    trips.assign(user_id=user, time="2025-01-01T10:00:00").to_csv(folder / "trips.csv", index=False)
    trips.assign(time="2025-01-01T10:00:00").to_csv(folder / "visits.csv", index=False)
    abroad = {name: trips[name] + shift for name, shift in (("lon", 65.36), ("lat", 0.41))}
    abroad |= {
        f"dest_{name}": trips[f"dest_{name}"] + shift for name, shift in (("lon", 65.36), ("lat", 0.41))
    }
    day = (np.datetime64("2026-01-12") + np.arange(1500) % 14).astype(str)
    pd.DataFrame({"user_id": user, "day": day, **abroad}).to_parquet(folder / "trips.parquet", index=False)
    ring = [[-74.03, 40.69], [-73.90, 40.69], [-73.90, 40.83], [-74.03, 40.83], [-74.03, 40.69]]
    (folder / "city.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    town = [[24.0, 35.5], [24.08, 35.5], [24.08, 35.54], [24.0, 35.54], [24.0, 35.5]]
    (folder / "town.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [town]}))
    points = mv.read_points(folder / "checkins.parquet")
    tiling = mv.Quadtree(NEW_YORK, depth=5)
    mv.release(points, tiling, epsilon=1, account=None).save(folder / "released.parquet")
    features = {"trust": "random-features", "options": {"bandwidth_m": 150.0}}
    mv.release(points, tiling, account=None, **features).save(folder / "released.tif")
    for name in ("grid", "population"):
        edges = dict(zip(("west", "south", "east", "north"), NEW_YORK.bbox, strict=True))
        np.savez(folder / f"{name}.npz", values=draw.poisson(3.0, (16, 16)), **edges)
    run = "input: checkins.parquet\nregion: -74.03,40.69,-73.90,40.83\nepsilon: 1\noutput: map.html\n"
    (folder / "release.yaml").write_text(run)
    series(folder, visits)
    zones(folder, points, tiling)
    roads(folder)
    measurements(folder, draw)
    return folder


def series(folder: Path, visits: pd.DataFrame) -> None:
    """Visits of January, a released series, and a live one with its first window."""
    day = np.datetime64("2026-01-05") + np.arange(len(visits)) % 28
    visits.assign(day=day.astype(str)).to_parquet(folder / "visits.parquet", index=False)
    points, cells = mv.read_points(folder / "visits.parquet"), mv.Quadtree(NEW_YORK, depth=4)
    weeks = mv.Windows(every="1w", start="2026-08-10", until="2026-09-07")
    august = visits.assign(day=(day + np.timedelta64(217, "D")).astype(str))
    mv.release_series(mv.read_points(august), weeks, cells, epsilon=1, account=None).save(
        folder / "year.parquet"
    )
    year = mv.Windows(every="1w", start="2026-01-05", until="2027-01-04")
    mv.LiveSeries.start(folder / "city.series", "city", year, cells, epsilon=2).add(points, "2026-W02")


def zones(folder: Path, points: mv.Points, tiling: mv.Quadtree) -> None:
    """Districts, released maps and flows to ask about them, and a raster of residents."""
    import geopandas
    import rasterio
    import shapely

    west, south, east, north = NEW_YORK.bbox
    parts = [shapely.box(x, south, x + 0.01, north) for x in np.linspace(west, east - 0.01, 11)]
    names = [f"district {number}" for number in range(11)]
    frame = geopandas.GeoDataFrame({"name": names, "geometry": parts}, crs="EPSG:4326")
    frame.to_file(folder / "districts.geojson")
    frame.to_file(folder / "districts.gpkg")
    for name in ("map.parquet", "map.png", "map.tif", "week1.parquet", "week2.parquet"):
        mv.release(points, tiling, epsilon=1, account=None).save(folder / name)
    named = ZoneCells(Zones(frame.geometry.to_numpy()[:3], ("Centre", "Harbour", "Airport")))
    for name in ("flows", "flows1", "flows2"):
        made = mv.flows(read_trips(folder / "trips.csv"), named, epsilon=1, trust="central", account=None)
        made.save(folder / f"{name}.parquet")
    weeks = mv.Windows(every="1w", start="2026-01-12", until="2026-01-26")
    given = {"trust": "central", "windows": weeks, "account": None}
    dated = pd.read_csv(folder / "trips.csv").assign(time="2026-01-13T10:00:00Z")
    mv.flows(read_trips(dated), named, epsilon=1, **given).save(folder / "weeks.parquet")
    transform = rasterio.Affine((east - west) / 20, 0, west, 0, (south - north) / 20, north)
    profile = {"driver": "GTiff", "width": 20, "height": 20, "count": 1, "dtype": "float64"}
    with rasterio.open(
        folder / "population.tif", "w", crs="EPSG:4326", transform=transform, **profile
    ) as file:
        file.write(np.full((20, 20), 40.0), 1)


def roads(folder: Path) -> None:
    """A street grid in Paris, and a map of the traffic."""
    graph = networkx.grid_2d_graph(9, 9, create_using=networkx.DiGraph)
    for row, column in graph:
        graph.nodes[row, column].update(x=2.32 + 0.009 * column, y=48.842 + 0.0045 * row)
    networkx.set_edge_attributes(graph, 510.0, "length")
    networkx.write_graphml(networkx.relabel_nodes(networkx.MultiDiGraph(graph), str), folder / "city.graphml")
    (folder / "city.osm.pbf").touch()
    region = mv.Region.from_bbox(2.31, 48.83, 2.41, 48.89)
    city = mv.synthetic.city(users=300, seed=1, region=region)
    traffic = mv.release(city, mv.Grid(region, rows=4, columns=4), trust="local", epsilon=4, account=None)
    traffic.save(folder / "now.parquet")


def measurements(folder: Path, draw: np.random.Generator) -> None:
    """Measurements of four phones, a fitted privatizer, and the measurements that it privatized."""
    user = np.arange(320) % 4
    lat, lon = ([35.51, 24.02] + 0.004 * user[:, None] + draw.normal(size=(320, 2)) * 0.002).T
    rows = {
        "user_id": user,
        "time": pd.date_range("2024-05-01", periods=320, freq="min"),
        "lat": lat,
        "lon": lon,
    }
    rows |= {"rss_dbm": -90 - user, "speed": draw.normal(size=320), "cell_id": 7}
    table = pd.DataFrame(rows)
    pilot = table.assign(rss_dbm=table.rss_dbm + 1)  # of other phones
    for name, rows_of in (("measurements", table), ("pilot", pilot)):
        rows_of.to_parquet(folder / f"{name}.parquet", index=False)
    for name, rows_of in (("day", table), ("pilot", pilot)):
        rows_of.to_csv(folder / f"{name}.csv", index=False)
    fitted = LocalGaussian(epsilon=30).fit(read_measurements(folder / "pilot.csv"), rng=1)
    for name in ("gap", "noise"):
        write_privatizer(fitted, folder / f"{name}.mapveil")
    write_privatized(mv.privatize(fitted, folder / "measurements.parquet", rng=1), folder / "private.parquet")
    (folder / "tradeoff").mkdir()


@pytest.fixture
def inside(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the folder, to work in."""
    shutil.copytree(files, tmp_path / "work")
    (tmp_path / "work" / "keys.txt").write_text(Identity(bytes(32)).public.hex())
    (tmp_path / "work" / "revoked.txt").touch()
    (tmp_path / "work" / "authority.key").touch(0o600)
    (tmp_path / "work" / "authority.key").write_text("5a" * 32)
    monkeypatch.chdir(tmp_path / "work")


def test_every_command_has_an_example() -> None:
    names = {name for name, *_ in EXAMPLES}
    assert names == set(app.list_commands(click.Context(app)))
    assert len(EXAMPLES) > 40


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_an_example_is_valid(mapveil: Callable, words: list[str]) -> None:
    if words[0] == "ledger" and len(words) > 1:
        mapveil(
            "release",
            "checkins.parquet",
            "--region",
            "-74.03,40.69,-73.90,40.83",
            "--epsilon",
            "1",
            "-o",
            "a.csv",
        )
        (account,) = json.loads(mapveil("ledger", "--json").out)["accounts"]
        words = [account["datasets"][0] if word == "3f9a1c" else word for word in words]
        Path("head.json").write_text(mapveil("ledger", "head").out)
    if words[:2] == ["series", "start"]:
        Path(words[2]).unlink()  # of the examples that follow
    if not LONG.match(" ".join(words)):
        done = mapveil(*words)
        assert done.code == 0, done.err
        return
    command: click.Command | None = app
    context, rest = click.Context(app, **app.context_settings), words
    while isinstance(command, click.Group):
        command, rest = command.get_command(context, rest[0]), rest[1:]
        assert command is not None, words
    command.make_context(words[0], list(rest), parent=context)
