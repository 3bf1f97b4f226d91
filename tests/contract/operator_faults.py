"""Faults that a test plants into the noise of two operators; the table of them is :mod:`.planted_faults`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from mapveil.trust.queries import Query
from mapveil.trust.two_operators import OperatorsAnswerer

Patch = pytest.MonkeyPatch


def operators_noise(factor: Fraction) -> Callable[[Patch], None]:
    """Both operators' noise as for ``factor`` times the epsilon."""

    def plant(patch: Patch) -> None:
        noisy = OperatorsAnswerer._noisy

        def weak(self: OperatorsAnswerer, query: Query, moves: int) -> Any:
            return noisy(self, dataclasses.replace(query, epsilon=query.epsilon * factor), moves)

        patch.setattr(OperatorsAnswerer, "_noisy", weak)

    return plant


def one_operators_noise(patch: Patch) -> None:
    """Noise of one operator alone, so that the sums are exact for the other."""
    noisy = OperatorsAnswerer._noisy

    def alone(self: OperatorsAnswerer, *given: Any) -> Any:
        self._least_noise = True
        return noisy(self, *given)

    patch.setattr(OperatorsAnswerer, "_noisy", alone)
