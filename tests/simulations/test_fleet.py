"""Who drives in a simulated rush hour, and when."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.analysis.trips import Trips
from mapveil_client.errors import InputError, ParameterError
from simulations.traffic.fleet import fleet_from_trips, synthetic_fleet
from simulations.traffic.synthetic_roads import synthetic_roads

GRAPH = synthetic_roads(spacing_m=1000)


def test_a_synthetic_fleet_repeats_goes_somewhere_and_prefers_centres() -> None:
    fleet, again = (synthetic_fleet(GRAPH, 5000, period_s=600, seed=3) for _ in range(2))
    assert np.array_equal(fleet.destination, again.destination)
    assert (fleet.origin != fleet.destination).all()
    assert (np.diff(fleet.departure) >= 0).all()
    assert 0 <= fleet.departure[0] < fleet.departure[-1] <= 600
    busiest = np.sort(np.bincount(fleet.destination, minlength=GRAPH.nodes))[-GRAPH.nodes // 10 :].sum()
    assert busiest > 0.3 * 5000, "a tenth of the junctions draws far more than a tenth"
    assert "places" not in repr(fleet)


def trips_at(nodes: list[tuple[int, int]], shift: float = 0.0) -> Trips:
    a, b = np.array(nodes).T
    return Trips(
        np.arange(len(nodes)), GRAPH.lon[a] + shift, GRAPH.lat[a], GRAPH.lon[b], GRAPH.lat[b], "t.csv"
    )


def test_a_fleet_goes_where_trips_went() -> None:
    fleet = fleet_from_trips(trips_at([(0, 5), (7, 7), (9, 100)]), GRAPH, 400, seed=2)
    assert set(zip(fleet.origin.tolist(), fleet.destination.tolist(), strict=True)) == {(0, 5), (9, 100)}
    assert abs(int((fleet.origin == 0).sum()) - 200) < 60


def test_trips_far_from_roads_are_no_fleet() -> None:
    with pytest.raises(InputError, match="no trip begins and ends within 500 m"):
        fleet_from_trips(trips_at([(0, 5)], shift=0.5), GRAPH, 10)


@pytest.mark.parametrize(("vehicles", "period"), [(0, 1.0), (-3, 1.0), (5, 0.0), (5, np.nan)])
def test_senseless_fleets_are_refused(vehicles: int, period: float) -> None:
    with pytest.raises(ParameterError, match="at least 1"):
        synthetic_fleet(GRAPH, vehicles, period_s=period)
    with pytest.raises(ParameterError, match="at least 1"):
        fleet_from_trips(trips_at([(0, 5)]), GRAPH, vehicles, period_s=period)
