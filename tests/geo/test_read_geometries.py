"""Points in GeoJSON and GeoParquet: reference systems, geometries, blocks of features, WKB."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.geo import read_geojson as geojson
from mapveil.geo.read_geojson import cut_features
from mapveil.geo.read_geoparquet import decode_wkb_points
from mapveil.geo.read_points import read_points
from mapveil_client.errors import InputError
from tests.geo.point_sources import (
    REFERENCE,
    collection,
    features,
    geo_frame,
    rows_of,
)


def test_an_unknown_reference_system_is_refused(tmp_path: Path) -> None:
    geo_frame().to_parquet(tmp_path / "g.parquet")
    table = pa.parquet.read_table(tmp_path / "g.parquet")
    record = json.loads(table.schema.metadata[b"geo"])
    record["columns"]["geometry"]["crs"] = {"type": "GeographicCRS", "name": "rubbish"}
    pa.parquet.write_table(
        table.replace_schema_metadata({b"geo": json.dumps(record)}), tmp_path / "h.parquet"
    )
    with pytest.raises(InputError, match=r"column .geometry.*is no known reference system"):
        read_points(tmp_path / "h.parquet")


def test_a_geometry_that_is_no_point_is_named(tmp_path: Path) -> None:
    shapely = pytest.importorskip("shapely")
    geopandas = pytest.importorskip("geopandas")
    shapes = [shapely.Point(1, 2), shapely.LineString([(0, 0), (1, 1)])]
    geopandas.GeoDataFrame({"user": [1, 2]}, geometry=shapes, crs=4326).to_parquet(tmp_path / "g.parquet")
    with pytest.raises(
        InputError, match=r"row 2, column 'geometry' is 'LINESTRING.*; expected a point with longitude"
    ):
        read_points(tmp_path / "g.parquet").check()


def test_named_columns_win_over_a_geometry(tmp_path: Path) -> None:
    frame = geo_frame().assign(lon=1.0, lat=2.0)
    frame.to_parquet(tmp_path / "g.parquet")
    assert read_points(tmp_path / "g.parquet").columns.lon == "lon"


def test_a_feature_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geojson, "_BLOCK", 97)
    monkeypatch.setattr(geojson, "_SAMPLE", 1)
    for name, text in (("a.geojson", collection(2)), ("b.geojsonl", "\n".join(map(json.dumps, features())))):
        head = '{"type": "FeatureCollection", "features": [' if name == "a.geojson" else ""
        body = text[text.index("[") + 1 :] if head else text
        (tmp_path / name).write_text(head + body)
        assert rows_of(read_points(tmp_path / name)) == REFERENCE


json_value = st.recursive(
    st.text(max_size=6) | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=4), json_value, max_size=3), max_size=4),
    st.sampled_from([", ", "\n", "\x1e", ""]),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.booleans(),
)
def test_features_are_cut_as_a_parser_would(
    objects: list[dict[str, Any]], between: str, indent: int | None, ascii_only: bool, closed: bool
) -> None:
    texts = [json.dumps(one, indent=indent, ensure_ascii=ascii_only) for one in objects]
    data = (between.join(texts) + ('], "more": {"a": [1]}}' if closed else "")).encode(
        "utf-8", "surrogatepass"
    )
    cut = cut_features(np.frombuffer(data, dtype=np.uint8))
    found = [
        json.loads(data[a:b].decode("utf-8", "surrogatepass"))
        for a, b in zip(cut.starts, cut.ends, strict=True)
    ]
    assert found == objects
    assert cut.closed == closed


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False),
            st.floats(allow_nan=False),
            st.sampled_from(["<", ">"]),
            st.sampled_from(["xy", "xyz", "srid", "line", "cut", "null"]),
        ),
        max_size=20,
    ),
    st.integers(0, 3),
)
def test_wkb_is_decoded_in_every_form(rows: list[tuple[float, float, str, str]], offset: int) -> None:
    encoded: list[bytes | None] = []
    expected = []
    for x, y, order, form in rows:
        mark = b"\x01" if order == "<" else b"\x00"
        body = struct.pack(order + "dd", x, y)
        code = {"xyz": 1001, "srid": 0x20000001, "line": 2}.get(form, 1)
        srid = struct.pack(order + "I", 4326) if form == "srid" else b""
        whole = mark + struct.pack(order + "I", code) + srid + body + (body[:8] if form == "xyz" else b"")
        encoded.append(None if form == "null" else whole[:-1] if form == "cut" else whole)
        expected.append((np.nan, np.nan) if form in ("line", "cut", "null") else (x, y))
    lon, lat = decode_wkb_points(pa.array(encoded, pa.binary())[offset:])
    np.testing.assert_array_equal(np.stack([lon, lat], 1), np.array(expected[offset:]).reshape(-1, 2))
