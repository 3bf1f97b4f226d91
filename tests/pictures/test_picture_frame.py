"""The frame of a picture: what stands beside the map."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil.maps.signal_map import SignalMap
from mapveil.obfuscation.privatizers.average_case import average_case
from mapveil.pictures.picture_frame import wrapped
from mapveil.privacy.claim import Reveals


def test_the_label_of_the_colour_bar_is_as_high_as_a_low_map_at_most() -> None:
    pytest.importorskip("matplotlib")
    tiling = Grid(Region.from_bbox(24.0, 35.5, 24.4, 35.55), rows=2, columns=8)
    unknown = average_case(Reveals.UNDOCUMENTED())
    full = np.ones(16)
    axes = SignalMap(-90 * full, full, full.astype(np.int64), tiling, unknown, "by hand").plot()
    axes.figure.canvas.draw()
    label = axes.child_axes[0].yaxis.label
    assert "PRIVATE" in label.get_text()
    assert label.get_window_extent().height <= 1.1 * axes.get_window_extent().height


@pytest.mark.parametrize("number", ["95 %", "240 m", "1.5 km", "3 km²"])
def test_a_number_stays_with_its_unit(number: str) -> None:
    words = f"aaaa {number} aaaa"
    for characters in range(len(number), len(words) + 1):
        lines = wrapped(words, characters)
        assert " ".join(lines) == words
        assert any(number in line for line in lines)
