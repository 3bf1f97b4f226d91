"""Measurements rewritten on the phone: a signal map without user traces."""

from __future__ import annotations

__all__: list[str] = []
