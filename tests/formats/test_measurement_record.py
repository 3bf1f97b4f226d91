"""An archive of measurements whose directory lies is refused as what it is: no measurements."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mapveil.formats.measurement_record import read_measurements, write_measurements
from mapveil.maps.density_map import DensityMap

ENTRY = b"PK\x01\x02"  # of a zip archive's directory: flags at 8, compression at 10


@pytest.mark.parametrize(
    ("at", "bits"),
    [(8, 0x01), (8, 0x20), (8, 0x40), (10, 0x63)],
    ids=["encrypted", "patched", "strongly encrypted", "unknown compression"],
)
def test_entries_that_cannot_be_unpacked(make_map: Callable[..., DensityMap], at: int, bits: int) -> None:
    whole = write_measurements(make_map("quadtree").measurements)
    data = bytearray(whole)
    first = data.index(ENTRY)
    data[first + at] |= bits
    with pytest.raises(ValueError, match="no measurements"):
        read_measurements(bytes(data))
