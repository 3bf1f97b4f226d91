"""Where one process read everybody's locations, every text, picture and file says so: every row of the methods."""

from __future__ import annotations

import gzip
import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import mapveil as mv
from mapveil.maps.released import ReleasedMap
from mapveil.mechanisms.methods import METHODS, Method
from mapveil.mechanisms.release import release
from mapveil.pictures.page import page_html
from mapveil.pictures.picture import notebook_html, plot
from mapveil.privacy.account import OWN
from mapveil.privacy.file_hash import CSV_METADATA_SUFFIX

CITY = mv.synthetic.city(users=120, seed=1)
GRID = mv.Grid(CITY.region, rows=4, columns=4)
NEEDED = {"federated-kde": {"bandwidth_m": 400}, "planar-laplace": {"bandwidth_m": 400, "radius_m": 200}}
MARK = "SIMULATION: one process read the raw data"


def table_of(method: Method) -> mv.Points:
    if not method.labels:
        return CITY
    users, lon, lat = CITY.arrays()
    return mv.Points.from_arrays(users, lon, lat, label=users % 2, region=CITY.region)


def released_by(method: Method) -> ReleasedMap:
    options = NEEDED.get(method.name, {}) if method.trust == "random-features" else {}
    mechanism = method.make(2 if method.has_budget else None, options)
    return release(table_of(method), GRID, method=mechanism, trust=method.trust, rng=1)


def trips() -> mv.Trips:
    users, lon, lat = CITY.arrays()
    return mv.Trips(users[:-1], lon[:-1], lat[:-1], lon[1:], lat[1:])


MAPS = {
    **{f"{row.trust} {row.name}": lambda row=row: released_by(row) for row in METHODS},
    "flows by user": lambda: mv.flows(trips(), GRID, epsilon=2, rng=1),
    "flows by trip": lambda: mv.flows(trips(), GRID, epsilon=2, unit="trip", rng=1),
    "neighbours": lambda: mv.neighbours(CITY, GRID, epsilon=2, k=3, rng=1),
}


@pytest.mark.parametrize("name", MAPS)
def test_every_map_that_no_curator_made_is_marked_everywhere(name: str) -> None:
    made = MAPS[name]()
    axes = plot(made)
    picture = " ".join([axes.get_title(loc="left"), *(text.get_text() for text in axes.texts)])
    simulated = not name.startswith("central")
    assert made.guarantee.simulated == simulated
    assert made.metadata()["guarantee"]["simulated"] == simulated
    for text in (
        made.metadata_json(),
        made.guarantee.in_words(),
        re.sub("<[^>]*>", " ", page_html(made).partition("<script")[0]),
        notebook_html(made).partition("<figcaption>")[2],
        " ".join(picture.split()),
    ):
        assert (MARK in text) == simulated
    for text in (repr(made), axes.get_title(loc="left"), made.guarantee.promise.label):
        assert ("simulation" in text) == simulated
    bars = [bar.get_ylabel() for bar in axes.child_axes]  # none where nothing can be told from zero
    assert all(("SIMULATION" in label) == simulated for label in bars)
    assert (
        "SIMULATION" in {line for text in axes.texts for line in text.get_text().split("\n")}
    ) == simulated


@pytest.mark.parametrize("trust", ["distributed", "local", "random-features"])
def test_every_file_of_a_simulation_is_marked(tmp_path: Path, trust: str) -> None:
    heat = mv.release(CITY, GRID, epsilon=None if trust == "random-features" else 1, trust=trust)
    for suffix in heat.suffixes:
        path = tmp_path / f"map{suffix}"
        heat.save(path)
        beside = Path(f"{path}{CSV_METADATA_SUFFIX}")
        written = (beside if beside.exists() else path).read_bytes()
        if suffix == ".pmtiles":  # its metadata are compressed: offset and length stand in the header
            start, length = struct.unpack_from("<QQ", written, 24)
            written = gzip.decompress(written[start : start + length])
        assert MARK.encode() in written, suffix
    for suffix in (".tif", ".parquet"):
        assert mv.read_map(tmp_path / f"map{suffix}").guarantee.simulated
    rasterio = pytest.importorskip("rasterio")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert "simulation" in file.tags()["TIFFTAG_IMAGEDESCRIPTION"]
    assert MARK in heat.to_xarray().attrs["guarantee"]


def test_a_page_names_what_is_downloaded_from_it(tmp_path: Path) -> None:
    page = page_html(mv.neighbours(CITY, GRID, epsilon=2, k=3))
    data = re.search(r'<script type="application/json" id="scene">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["metadata"]["guarantee"]["promise"]["marks"] == ["simulation"]
    assert "...guarantee.promise.marks" in page


def test_what_was_charged_to_no_account_says_so_on_the_picture_and_beside_its_legend() -> None:
    for account, epsilon, stamps in (
        (None, 1, "NOT ACCOUNTED"),
        (None, 12, "LARGE EPSILON: LITTLE PROTECTION; NOT ACCOUNTED"),
        (OWN, 1, ""),
    ):
        axes = plot(mv.release(CITY, GRID, epsilon=epsilon, account=account))
        assert axes.child_axes[0].get_ylabel().partition("\n")[2] == stamps
        assert stamps.replace("; ", "\n") in [text.get_text() for text in axes.texts]


def test_a_curators_own_release_is_no_simulation() -> None:
    heat = mv.release(CITY, GRID, epsilon=1)
    assert heat.guarantee.promise.warnings == heat.guarantee.promise.stamps == ()
    assert np.isfinite(heat.values).all()
