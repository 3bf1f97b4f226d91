"""A ledger with two datasets, and the fixtures of the samplers, for noise as well."""

from __future__ import annotations

import pytest

import mapveil as mv
from mapveil.privacy.ledger import Ledger

from ..client.randomness.conftest import prescribed, units_of

__all__ = ["prescribed", "units_of"]


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "folder" / "ledger.sqlite")


@pytest.fixture
def checkins(ledger):
    return ledger.recognise(mv.Points.from_arrays(["ann", "bob"], [-73.9, -74.0], [40.7, 40.8]))


@pytest.fixture
def others(ledger):
    return ledger.recognise(mv.Points.from_arrays(["cleo", "dan"], [-73.9, -74.0], [40.7, 40.8]))
