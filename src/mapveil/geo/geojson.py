"""Points in GeoJSON: a FeatureCollection, or one Feature a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mapveil.errors import InputError
from mapveil.geo.tables import FrameTable

__all__ = ["geojson_table"]


def geojson_table(paths: list[Path], name: str) -> FrameTable:
    """A table of the features' properties with ``lon`` and ``lat`` of their points; held in memory.

    Raises
    ------
    InputError
        Not GeoJSON, or a geometry that is not a Point.
    """
    import pyarrow

    rows = [_row(feature, path, at) for path in paths for at, feature in enumerate(_features(path), 1)]
    if not rows:
        raise InputError(f"{name}: holds no features; at least one Point is accepted")
    try:
        return FrameTable(pyarrow.Table.from_pylist(_same_keys(rows)), name)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise InputError(f"{name}: a property holds values of several types ({error})") from error


def _same_keys(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return [{key: row.get(key) for key in keys} for row in rows]


def _features(path: Path) -> list[Any]:
    text = path.read_text(encoding="utf-8")
    try:
        content = json.loads(text)
    except ValueError as whole:
        lines = [line.strip("\x1e \t\r") for line in text.splitlines()]
        try:
            return [json.loads(line) for line in lines if line]
        except ValueError:
            raise InputError(f"{path}: not readable as GeoJSON ({whole})") from None
    features = content.get("features") if isinstance(content, dict) else None
    if isinstance(features, list):
        return features
    if isinstance(content, dict) and content.get("type") == "Feature":
        return [content]
    raise InputError(f"{path}: no features in it; a FeatureCollection of Points is accepted")


def _row(feature: Any, path: Path, at: int) -> dict[str, Any]:
    geometry = feature.get("geometry") if isinstance(feature, dict) else None
    coordinates = geometry.get("coordinates") if isinstance(geometry, dict) else None
    if not isinstance(geometry, dict) or geometry.get("type") != "Point" or not isinstance(coordinates, list):
        raise InputError(f"{path}: feature {at} is not a Point; a FeatureCollection of Points is accepted")
    try:
        lon, lat = float(coordinates[0]), float(coordinates[1])
    except (TypeError, ValueError, IndexError):
        raise InputError(
            f"{path}: feature {at} has coordinates {coordinates!r}; [lon, lat] is accepted"
        ) from None
    return {**(feature.get("properties") or {}), "lon": lon, "lat": lat}
