"""Flows as data: their order, sums, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil.maps.flow_map import FlowMap
from mapveil.privacy.claim import Adversary, TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError, ParameterError
from tests.maps.matrix_flows import matrix_flows

GRID = Grid(Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=2, columns=3)
PROMISE = Guarantee(model=TrustModel.LOCAL, epsilon=None, adversary=Adversary.REPORTS)
MATRICES = st.lists(st.floats(0, 50), min_size=36, max_size=36).map(
    lambda trips: np.array(trips).reshape(6, 6)
)


def flow_map(origin, destination, trips, **about) -> FlowMap:
    return FlowMap(
        np.array(origin), np.array(destination), np.array(trips), GRID, PROMISE, "by hand", **about
    )


@given(matrix=MATRICES, least=st.floats(0, 60))
@settings(max_examples=40, deadline=None)
def test_flows_of_a_matrix(matrix: np.ndarray, least: float) -> None:
    flows = matrix_flows(matrix, GRID, PROMISE, least=least)
    kept = np.where((matrix > 0) & (matrix >= least), matrix, 0)
    np.testing.assert_array_equal(flows.matrix().toarray(), kept)
    assert flows.all_trips == pytest.approx(matrix.sum(), abs=1e-9)
    assert (np.diff(flows.trips) <= 0).all()
    assert flows.deviation is not None
    np.testing.assert_array_equal(flows.deviation, flows.trips + 1)


@given(matrix=MATRICES, count=st.integers(0, 40), minimum=st.floats(0, 60))
@settings(max_examples=30, deadline=None)
def test_what_is_left_out_is_counted_as_unlisted(matrix: np.ndarray, count: int, minimum: float) -> None:
    flows = matrix_flows(matrix, GRID, PROMISE, unlisted=2.0)
    largest, merged = flows.largest(count), flows.merge_below(minimum)
    assert largest.all_trips == pytest.approx(flows.all_trips)
    assert merged.all_trips == pytest.approx(flows.all_trips)
    np.testing.assert_array_equal(largest.trips, flows.trips[:count])
    assert (merged.trips >= minimum).all()
    assert "not listed" in merged.notes[-1]


def test_lengths_are_those_on_the_ellipsoid() -> None:
    flows = flow_map([0, 1], [2, 1], [3.0, 1.0])
    # Two thirds of 0.18 degrees of longitude at 41.19 or 41.13 degrees north, and nothing.
    assert flows.lengths_m()[0] == pytest.approx(
        0.12 * 111_320 * np.cos(np.radians(flows.ends.origin_lat[0])), rel=3e-3
    )
    assert flows.lengths_m()[1] == 0


def test_lengths_without_georeference_are_in_cells() -> None:
    plain = Grid(Region.without_georeference(4, 3), rows=3, columns=4)
    flows = FlowMap(np.array([0]), np.array([11]), np.array([1.0]), plain, PROMISE, "by hand")
    assert flows.lengths_m()[0] == pytest.approx(np.hypot(3, 2))


def test_metadata_tell_everything() -> None:
    flows = flow_map([0], [1], [2.0], unlisted=3.0, notes=("so",), parameters={"a": 1})
    record = json.loads(flows.metadata_json())
    assert (record["flows"], record["unlisted"], record["notes"]) == (1, 3.0, ["so"])
    assert record["parameters"] == {"a": 1}
    assert record["guarantee"]["model"] == "local"
    assert record["version"]
    assert "FlowMap(by hand" in repr(flows)


@pytest.mark.parametrize(
    ("origin", "destination", "trips", "said"),
    [
        ([0, 0], [1, 1], [1.0, 2.0], "twice"),
        ([6], [0], [1.0], "origin must be cells of"),
        ([0], [-1], [1.0], "destination must be cells of"),
        ([0], [1], [-1.0], "negative"),
        ([0], [1], [np.nan], "not finite"),
        ([0], [1], [np.inf], "not finite"),
        ([0, 1], [1], [1.0], "one length"),
    ],
)
def test_what_is_refused(origin: list, destination: list, trips: list, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        flow_map(origin, destination, trips)


def test_numbers_out_of_range_are_refused() -> None:
    flows = flow_map([0], [1], [2.0])
    for call in (lambda: flows.largest(-1), lambda: flows.merge_below(-1), lambda: flows.merge_below(np.nan)):
        with pytest.raises(ParameterError, match="must be at least"):
            call()
    with pytest.raises(ParameterError, match="one length"):
        flow_map([0], [1], [2.0], deviation=np.ones(2))


def test_every_suffix_is_written_and_no_other(tmp_path: Path) -> None:
    flows = flow_map([0, 1], [1, 1], [2.0, 5.0])
    for suffix in FlowMap.suffixes:
        flows.save(tmp_path / f"flows{suffix.upper()}")
        assert (tmp_path / f"flows{suffix.upper()}").stat().st_size > 80
    with pytest.raises(InputError, match=r"\.parquet"):
        flows.save(tmp_path / "flows.tif")
    with pytest.raises(InputError, match="nowhere"):
        flows.save(tmp_path / "nowhere" / "flows.csv")
    assert not (tmp_path / "flows.tif").exists()


@pytest.mark.parametrize(("model", "unit"), [(TrustModel.LOCAL, "trips"), (TrustModel.CURATOR, "users")])
def test_the_unit_is_that_of_the_promise(model: TrustModel, unit: str) -> None:
    promise = Guarantee(model=model, epsilon=None, adversary=Adversary.REPORTS)
    flows = FlowMap(np.array([0]), np.array([1]), np.array([3.0]), GRID, promise, "by hand")
    assert flows.rows().columns[unit].tolist() == [3.0]
    assert flows.metadata()["unit"] == f"{unit} per pair of cells"
    assert [layer.unit for layer in flows.scene().layers] == [unit]
