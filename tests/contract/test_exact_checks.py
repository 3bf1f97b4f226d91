"""Non-interference and exact accounting of every plan: only noisy sums read data, and they cost the claim at most."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mapveil as mv
from mapveil.geo.counts import Counts
from mapveil.local import local_mechanism
from mapveil.mechanisms.methods import METHODS, Method
from mapveil_client.arrays import IntArray

from .exact_checks import check_accounting, check_non_interference, check_region
from .watched_release import output_bytes
from .worlds import REGION, ROWS, Row

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*has no rows in the cells:mapveil_client.errors.CuratorWarning"
)  # a table elsewhere must change nothing
OF_ROW = pytest.mark.parametrize("row", ROWS, ids=str)


@OF_ROW
def test_queries_charges_and_output_depend_on_replies_alone(row: Row) -> None:
    check_non_interference(row)


@OF_ROW
def test_the_exact_losses_of_all_queries_are_within_the_claim(row: Row) -> None:
    check_accounting(row)


@pytest.mark.parametrize("trust", ["central", "distributed"])
def test_a_region_is_found_in_replies_alone(trust: str) -> None:
    check_region(trust)


@pytest.mark.parametrize(
    "method", [method for method in METHODS if method.trust == "local"], ids=lambda method: method.name
)
def test_a_local_map_depends_on_reports_alone(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    tiling = mv.Quadtree(REGION, depth=3)
    cells: Callable[..., IntArray] = local_mechanism.cells_of_users

    def decoy(*given: object) -> IntArray:
        return np.arange(cells(*given).size) ** 2 % tiling.size

    monkeypatch.setattr(local_mechanism, "cells_of_users", decoy)
    said = []
    for cell in (0, tiling.size // 2):
        users = np.zeros(tiling.size, dtype=np.int64)
        users[cell], users[-1] = 239, 1
        said.append(output_bytes(method.make(1).release(Counts(users, tiling), rng=5)))
    assert said[0] == said[1]
