"""Tests run with NumPy alone, unless they ask for the compiled kernels, which take seconds to compile."""

from __future__ import annotations

import math

import pytest

from mapveil_client.two_operators import field_arithmetic, turbo_shake


@pytest.fixture(autouse=True)
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (field_arithmetic, turbo_shake):
        monkeypatch.setattr(module, "COMPILE_AFTER_S", math.inf)
