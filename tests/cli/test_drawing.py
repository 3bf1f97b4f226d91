"""Words and layers that pictures and pages carry: subtitle, own zones, a basemap."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import geopandas
import shapely

import mapveil as mv
from mapveil.pictures.page import page_html

BOX = (-74.03, 40.69, -73.90, 40.83)


def test_a_page_carries_them(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    folder = tmp_path
    region = ",".join(map(str, BOX))
    west, south, east, north = BOX
    zone = shapely.box(west, south, (west + east) / 2, (south + north) / 2)
    feature = {
        "type": "Feature",
        "properties": {"name": "South-west"},
        "geometry": json.loads(shapely.to_geojson(zone)),
    }
    (folder / "zones.geojson").write_text(json.dumps(feature), encoding="utf-8")
    street = geopandas.GeoDataFrame(
        geometry=[shapely.LineString([(west, south), (east, north)])], crs="EPSG:4326"
    )
    street.to_file(folder / "base.pmtiles", layer="roads", driver="PMTiles", MINZOOM="8", MAXZOOM="12")
    done = mapveil(
        "release", table, "--region", region, "--tiling", "quadtree:4", "--epsilon", "1",
        "--no-ledger", "--title", "Check-ins", "--subtitle", "Spring 2026", "--context", folder / "zones.geojson",
        "--basemap", folder / "base.pmtiles", "-o", folder / "map.html", "-o", folder / "map.parquet",
    )  # fmt: skip
    assert done.code == 0, done.err
    page = (folder / "map.html").read_text(encoding="utf-8")
    record = json.loads(page.split('id="scene">')[1].split("</script>")[0])
    assert record["scene"]["questions"]["zones"]["name"] == ["South-west"]
    assert "Spring 2026<br>" in page
    again = mv.read_map(folder / "map.parquet")
    assert (again.title, again.subtitle) == ("Check-ins", "Spring 2026")
    bare = json.loads(page_html(again).split('id="scene">')[1].split("</script>")[0])["scene"]["ground"][
        "own"
    ]
    assert len(record["scene"]["ground"]["own"]["x"]["data"]) > len(bare["x"]["data"])
