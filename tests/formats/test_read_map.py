"""Reading back: a release says the same after it was written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from mapveil.formats.measurement_record import write_measurements
from mapveil.formats.read_map import _GEOJSON_HEAD, NotAMap, read_map
from mapveil.maps.density_map import DensityMap
from mapveil_client.errors import InputError

MakeMap = Callable[..., DensityMap]

RASTERS = ("grid", "quadtree", "polygon", "utm", "degrees", "tiles", "no georeference")


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [(kind, ".tif") for kind in RASTERS]
    + [(kind, suffix) for kind in (*RASTERS, "hexagons", "places") for suffix in (".parquet", ".csv")]
    + [(kind, suffix) for kind in (*RASTERS[:-1], "hexagons", "places") for suffix in (".geojson", ".gpkg")],
)
def test_it_says_the_same(kind: str, suffix: str, make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map(kind, seeded=True)
    heat.save(tmp_path / f"map{suffix}")
    again = read_map(tmp_path / f"map{suffix}")
    np.testing.assert_array_equal(again.values, heat.values)
    assert again.guarantee == heat.guarantee
    assert again.tiling.to_dict() == heat.tiling.to_dict()
    for name in ("method", "parameters", "notes", "outside", "version"):
        assert getattr(again, name) == getattr(heat, name)


def test_an_unknown_suffix_a_missing_file_and_rubbish_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_map(tmp_path / "map.tif")
    with pytest.raises(InputError, match=r"\.parquet"):
        read_map(tmp_path / "map.png")
    with pytest.raises(NotAMap, match=r"\.parquet.*; a page answers in a browser"):
        read_map(tmp_path / "map.html")
    for suffix in (".tif", ".parquet", ".geojson", ".gpkg", ".csv"):
        path = tmp_path / f"map{suffix}"
        path.write_bytes(_GEOJSON_HEAD if suffix == ".geojson" else b"rubbish")
        (tmp_path / "map.csv-metadata.json").write_bytes(b"\xff")
        with pytest.raises(InputError, match="not readable") as caught:
            read_map(path)
        assert "\n" not in str(caught.value)


def test_metadata_that_are_no_text_are_refused(make_map: MakeMap, tmp_path: Path) -> None:
    geopackage, table = tmp_path / "map.gpkg", tmp_path / "map.parquet"
    make_map("grid").save(geopackage)
    whole = geopackage.read_bytes()
    assert b"neighbours" in whole
    geopackage.write_bytes(whole.replace(b"neighbours", b"neighbour\xe5"))
    make_map("grid").save(table)
    read = pyarrow.parquet.read_table(table)
    broken = {key: value.replace(b"neighbours", b"\xe5") for key, value in read.schema.metadata.items()}
    pyarrow.parquet.write_table(read.replace_schema_metadata(broken), table)
    for path in (geopackage, table):
        with pytest.raises(InputError, match=r"not readable.*not UTF-8"):
            read_map(path)


def test_somebody_elses_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"cell": [0], "users": [1.0]}), path)
    with pytest.raises(InputError, match="not a map that Mapveil wrote"):
        read_map(path)


@pytest.mark.parametrize("suffix", [".geojson", ".json", ".csv"])
def test_somebody_elses_text_is_no_map(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"map{suffix}"
    path.write_text("cell,users\n0,1\n" if suffix == ".csv" else '{"type":"FeatureCollection","features":[]}')
    with pytest.raises(NotAMap, match="not a map that Mapveil wrote"):
        read_map(path)


def test_empty_cells_that_a_geojson_leaves_out_are_zero(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map("grid", seeded=True)
    heat = replace(heat, values=np.where(np.arange(heat.values.size) % 2, heat.values, 0.0))
    heat.to_geojson(tmp_path / "map.geojson", skip_empty=True)
    np.testing.assert_array_equal(read_map(tmp_path / "map.geojson").values, heat.values)


def test_a_file_with_too_few_cells_is_refused(make_map: MakeMap, tmp_path: Path) -> None:
    path = tmp_path / "map.csv"
    make_map().save(path)
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(InputError, match="cells where its tiling has"):
        read_map(path)


def test_metadata_that_is_no_maps_is_refused(make_map: MakeMap, tmp_path: Path) -> None:
    path = tmp_path / "map.parquet"
    make_map().save(path)
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.replace_schema_metadata({b"mapveil": b'{"method": "laplace"}'}), path)
    with pytest.raises(InputError, match="its metadata is not a map's"):
        read_map(path)


@pytest.mark.parametrize("suffix", [".tif", ".parquet", ".geojson", ".csv"])
def test_measurements_come_back_but_for_a_fraction_of_their_noise(
    suffix: str, make_map: MakeMap, tmp_path: Path
) -> None:
    heat = make_map("polygon", partial=True)
    first = heat.measurements[0]
    everybody = replace(
        first, groups=np.zeros(heat.tiling.size, dtype=np.int64), noisy=np.array([12.5]), terms=2.5
    )
    heat = replace(heat, measurements=(everybody, first))
    heat.save(tmp_path / f"map{suffix}")
    again = read_map(tmp_path / f"map{suffix}")
    for one, two in zip(again.measurements, heat.measurements, strict=True):
        np.testing.assert_array_equal(one.groups, two.groups)
        # A step is at most a 16th of the deviation, and a sum moves by half of it.
        assert np.abs(one.noisy - two.noisy).max() <= two.deviation() / 32
        assert one.groups.dtype == np.int64
        assert (one.epsilon, one.unit, one.terms, one.sensitivity) == (
            two.epsilon,
            two.unit,
            two.terms,
            two.sensitivity,
        )
    assert write_measurements(again.measurements) == write_measurements(heat.measurements), "rounded once"


def test_a_map_of_proportions_is_one_again(tmp_path: Path) -> None:
    from mapveil import Points, Quadtree, Region, mechanisms
    from mapveil.maps.proportion_map import ProportionMap

    rng = np.random.default_rng(3)
    lon, lat, ill = rng.random(400), rng.random(400), rng.random(400) < 0.3
    points = Points.from_arrays(np.arange(400), lon, lat, label=ill)
    tiling = Quadtree(Region.from_bbox(0, 0, 1, 1), depth=2)
    made = mechanisms.ProportionHistogram(epsilon=4).release(points, tiling, account=None, rng=5)
    made.save(tmp_path / "map.parquet")
    again = read_map(tmp_path / "map.parquet")
    assert isinstance(again, ProportionMap)
    np.testing.assert_array_equal(again.proportion(1), made.proportion(1))


def test_estimates_from_reports_come_back(tmp_path: Path) -> None:
    from mapveil import Quadtree, mechanisms, synthetic

    city = synthetic.city(users=3000, seed=1)
    heat = mechanisms.SubsetSelection(epsilon=4).release(
        city, Quadtree(city.region, depth=2), account=None, rng=1
    )
    heat.save(tmp_path / "map.csv")
    again = read_map(tmp_path / "map.csv")
    for one, two in zip(again.measurements, heat.measurements, strict=True):
        assert np.abs(one.noisy - two.noisy).max() <= two.deviation() / 32  # none of the number of reports
        assert one.law() == two.law()


@pytest.mark.parametrize("text", ["no base64!", "AAAA", "UEsFBgAAAAAAAAAAAAAAAAAAAAAAAA=="])
def test_measurements_that_are_none_are_refused(text: str, make_map: MakeMap, tmp_path: Path) -> None:
    path = tmp_path / "map.parquet"
    make_map().save(path)
    table = pyarrow.parquet.read_table(path)
    metadata = {**table.schema.metadata, b"mapveil_measurements": text.encode()}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(InputError, match="its metadata is not a map's"):
        read_map(path)


def test_measurements_of_other_cells_are_refused(make_map: MakeMap, tmp_path: Path) -> None:
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    make_map("grid").save(small)
    make_map("polygon").save(large)
    measured = pyarrow.parquet.read_schema(large).metadata[b"mapveil_measurements"]
    table = pyarrow.parquet.read_table(small)
    metadata = {**table.schema.metadata, b"mapveil_measurements": measured}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), small)
    with pytest.raises(InputError, match="do not fit its cells"):
        read_map(small)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("provenance.options", "1/0"),
        ("provenance.columns", None),
        ("provenance.function", 10**30),
        ("provenance.where", 5),
        ("guarantee.disclosure", []),
        ("guarantee.account", -0.0),
        ("tiling.region.crs", float("nan")),
        ("tiling.depth", 15),
        ("parameters", float("nan")),
        ("title", 5),
        ("method", 7),
        ("notes", "\ud800"),
    ],
)
def test_a_record_of_other_types_is_refused(
    place: str, value: object, make_map: MakeMap, tmp_path: Path
) -> None:
    """A file without the hash of its content may hold anything, which every reader of the map would tell."""
    path = tmp_path / "map.geojson"
    make_map("quadtree").save(path)
    whole = json.loads(path.read_text())
    record = whole["mapveil"]
    del record["content_sha256"]
    record["empty_cells_left_out"] = True
    *folders, last = place.split(".")
    inner = record
    for name in folders:
        inner = inner[name]
    inner[last] = value
    path.write_text(json.dumps(whole, separators=(",", ":")))
    with pytest.raises(InputError, match="metadata"):
        read_map(path)


def test_rows_of_geojson_that_are_no_mappings_are_refused(make_map: MakeMap, tmp_path: Path) -> None:
    path = tmp_path / "map.geojson"
    make_map("quadtree").save(path)
    whole = json.loads(path.read_text())
    whole["features"][0]["properties"] = [1]
    path.write_text(json.dumps(whole, separators=(",", ":")))
    with pytest.raises(InputError, match="not readable as GeoJSON"):
        read_map(path)
