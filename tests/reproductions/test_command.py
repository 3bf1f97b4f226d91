"""``reproduce bagdasaryan``: a good run and bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from reproductions.bagdasaryan.data import IMAGES, MANHATTAN
from reproductions.bagdasaryan.sections import Plan


def test_one_figure_is_run(mapveil: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "quick", classmethod(lambda cls: Plan(2, 2, True)))
    np.savez(tmp_path / IMAGES[MANHATTAN], values=np.random.default_rng(1).integers(0, 999, (32, 32)))
    done = mapveil(
        "reproduce", "bagdasaryan", "--figure", "9", "--quick", "--workers", 1, "--shared", tmp_path,
        "-o", tmp_path / "out",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "Figure 9" in done.out
    assert "HOLD" in done.out
    assert f"wrote {tmp_path / 'out'}" in done.out
    assert (tmp_path / "out" / "figure_9.png").is_file()


def test_what_is_wrong_is_said(mapveil: Callable, tmp_path: Path) -> None:
    missing = mapveil("reproduce", "bagdasaryan", "--shared", tmp_path, "-o", tmp_path / "out")
    assert missing.code == 2
    assert "no such file" in missing.err
    assert not (tmp_path / "out").exists()
    wrong = mapveil("reproduce", "bagdasaryan", "--table", "7")
    assert wrong.code == 2
    assert "'7' is not one of '1', '2', '3'" in wrong.err
