"""The maps that the tests of this room draw from those of ``maps``."""

from __future__ import annotations

from ..maps.conftest import make_map

__all__ = ["make_map"]
