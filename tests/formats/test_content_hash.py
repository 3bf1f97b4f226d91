"""The hash of a file's content: no damaged file is read as another map."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mapveil.analysis.verify_release import verify_release
from mapveil.formats.content_hash import CONTENT_KEY, ChangedContent
from mapveil.formats.measurement_record import measurements_text
from mapveil.formats.read_map import read_map
from mapveil.maps.density_map import DensityMap
from mapveil.privacy.file_hash import CSV_METADATA_SUFFIX
from mapveil_client.errors import InputError

MakeMap = Callable[..., DensityMap]


def said(heat: DensityMap) -> tuple[str, bytes, str]:
    """All that a map that was read back says."""
    return heat.metadata_json(), heat.values.tobytes(), measurements_text(heat)


@pytest.mark.parametrize("suffix", [".tif", ".parquet", ".geojson", ".gpkg", ".csv", "beside .csv"])
def test_no_damaged_file_is_read_as_another_map(suffix: str, make_map: MakeMap, tmp_path: Path) -> None:
    path = tmp_path / f"map.{suffix.rpartition('.')[2]}"
    make_map("grid", seeded=True).save(path)
    damaged = Path(f"{path}{CSV_METADATA_SUFFIX}") if suffix.startswith("beside") else path
    whole, draw, refused = damaged.read_bytes(), np.random.default_rng(6), 0
    written = said(read_map(path))
    for _ in range(60):
        data = bytearray(whole)
        data[draw.integers(len(data))] ^= 1 << int(draw.integers(8))
        damaged.write_bytes(data)
        try:
            assert said(read_map(path)) == written
        except InputError:
            refused += 1
    assert refused > 0


def test_one_changed_digit_is_refused_and_named(make_map: MakeMap, tmp_path: Path) -> None:
    path = tmp_path / "map.geojson"
    make_map("grid", seeded=True).save(path)
    record = json.loads(path.read_text())
    record["features"][0]["properties"]["users"] += 1
    text = json.dumps(record, separators=(",", ":"))
    path.write_text(text)
    with pytest.raises(ChangedContent, match=r"map\.geojson: its content is not the one that was written"):
        read_map(path)
    found = {each.what: each.state for each in verify_release(path).findings}
    assert found["content"] == "failed"
    # A file of before there was a hash.
    del record["mapveil"][CONTENT_KEY]
    path.write_text(json.dumps(record, separators=(",", ":")))
    assert read_map(path).values[0] == record["features"][0]["properties"]["users"]
    assert {each.what: each.state for each in verify_release(path).findings}["content"] == "unknown"
    # What no map has is refused without a hash too.
    for row, name, value in ((0, "cell", -1), (0, "cell", 1), (0, "users", float("nan"))):
        edited = json.loads(path.read_text())
        edited["features"][row]["properties"][name] = value
        (tmp_path / "odd.geojson").write_text(json.dumps(edited, separators=(",", ":")))
        with pytest.raises(InputError, match="its metadata is not a map's"):
            read_map(tmp_path / "odd.geojson")
    box = json.loads(path.read_text())
    box["mapveil"]["tiling"]["region"]["bbox"] = [0, 0, 0, 0]
    (tmp_path / "odd.geojson").write_text(json.dumps(box, separators=(",", ":")))
    with pytest.raises(InputError):
        read_map(tmp_path / "odd.geojson")
    assert {each.what: each.state for each in verify_release(tmp_path / "odd.geojson").findings}[
        "content"
    ] == "failed"
