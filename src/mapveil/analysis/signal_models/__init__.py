"""Models of signal strength over places: what the server makes of measurements, rewritten or not."""

from __future__ import annotations

__all__: list[str] = []
