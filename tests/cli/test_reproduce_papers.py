"""The table of papers says of each what its own modules say."""

from __future__ import annotations

import importlib
import inspect

import pytest

from reproductions.command import PAPERS, Paper


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_the_command_line_names_every_section(paper: Paper) -> None:
    module = importlib.import_module(f"mapveil.evaluation.{paper.name}")
    function = getattr(module, paper.name)
    assert inspect.signature(function).parameters["seed"].default == paper.seed
    assert paper.tables == getattr(module, "TABLES", ())
    assert paper.figures == getattr(module, "FIGURES", ())
    for name in paper.own_tables.replace("'", "").replace(" and", ",").split(", "):
        assert not name or name in paper.tables
