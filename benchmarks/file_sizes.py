"""Sizes of GeoTIFFs with their measurements over the same files without: rounded noisy sums, and every bit of them.

Run: ``python -m benchmarks.file_sizes``. A synthetic city of 20,000 users, a quadtree of depth 8, epsilon 1, seed 1.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import mapveil as mv
from mapveil.formats import content_hash, measurement_record
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.methods import METHODS
from mapveil_client.errors import InputError

USERS = 20_000
DEPTH = 8
TRUSTS = ("central", "local")


def size(heat: DensityMap) -> int:
    """Bytes of a map as GeoTIFF."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "map.tif")
        heat.save(path)
        return path.stat().st_size


def row(heat: DensityMap) -> tuple[int, float, float]:
    """Number of noisy sums, and the ratios with every bit and with rounded sums."""
    with patch.object(content_hash, "measurements_text", lambda released: ""):
        bare = size(heat)
    with patch.object(measurement_record, "rounding_step", lambda deviation: 0.0):
        whole = size(heat)
    return sum(each.noisy.size for each in heat.measurements), whole / bare, size(heat) / bare


def main() -> None:
    """Print a row for each method that has measurements."""
    region = mv.Region.from_bbox(-40.08, 40.0, -39.92, 40.12)
    city = mv.synthetic.city(users=USERS, seed=1, region=region)
    tiling = mv.Quadtree(region, depth=DEPTH)
    table = io.StringIO()
    table.write("| method | noisy sums | every bit kept | rounded |\n|---|---|---|---|\n")
    for method in (each for each in METHODS if each.trust in TRUSTS):
        try:
            heat = mv.release(
                city, tiling, epsilon=1, method=method.name, trust=method.trust, account=None, rng=1
            )
        except InputError as error:  # more is needed than epsilon, or so many cells are too many
            sys.stderr.write(f"{method.name}: {error}\n")
            continue
        if heat.measurements:
            sums, whole, rounded = row(heat)
            table.write(f"| {method.name} ({method.trust}) | {sums:,} | {whole:.2f} | {rounded:.2f} |\n")
    sys.stdout.write(table.getvalue())


if __name__ == "__main__":
    main()
