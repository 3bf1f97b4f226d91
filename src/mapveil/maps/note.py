"""Remarks that a map carries for its readers."""

from __future__ import annotations

from typing import Literal

Level = Literal["info", "warning"]


class Note(str):
    """A remark as readers see it, with its level: ``"warning"``, which pages and pictures mark, or ``"info"``."""

    level: Level
    text: str

    def __new__(cls, text: str, level: Level = "info") -> Note:
        """The remark, marked where it is a warning."""
        made = super().__new__(cls, f"WARNING: {text}" if level == "warning" else text)
        made.level, made.text = level, text
        return made
