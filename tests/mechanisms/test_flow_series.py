"""Flows over time: one promise over all windows, windows that answer, and integer sums that no user moves by more."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from pyarrow import csv

import mapveil as mv
from mapveil.analysis.flow_totals import end_changes, end_totals
from mapveil.analysis.verify_release import verify_release
from mapveil.engines import UNIT, user_sums
from mapveil.formats.content_hash import ChangedContent
from mapveil.formats.read_map import read_flows
from mapveil.geo.zone_order import zone_order
from mapveil.maps.flow_series_map import FlowSeriesMap
from mapveil.mechanisms.flow_series import FlowSeries
from mapveil.mechanisms.methods import flow_blocks
from mapveil.secure_sum.protocol_sum import ProtocolSum
from mapveil.trust.curator import Curator
from mapveil.trust.secure_aggregation.clients import devices_of
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil.trust.two_operators import TwoOperators
from mapveil_client.contribution import encode_places
from mapveil_client.encodings import LabelEncoding, MarginsEncoding, NodeEncoding
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.morton import PrefixTree
from mapveil_client.randomness.random import Randomness
from tests.mechanisms.test_flow_blocks import REGION, ZONES, hub_trips

WEEKS = mv.Windows(every="1w", start="2026-01-05", until="2026-01-26", zone="UTC")


def timed_trips(users: int = 1500, seed: int = 1) -> mv.Points:
    """Two trips of each user in three weeks; those of the last week go the other way."""
    rng = np.random.default_rng(seed)
    trips = hub_trips(2 * users, seed)
    day = rng.integers(0, 21, 2 * users)
    back = day >= 14
    lon, lat, to_lon, to_lat = trips.ends
    ends = {"lon": np.where(back, to_lon, lon), "to_lon": np.where(back, lon, to_lon)}
    ends |= {"lat": np.where(back, to_lat, lat), "to_lat": np.where(back, lat, to_lat)}
    time = np.datetime64("2026-01-05") + day
    return mv.Points.from_arrays(np.arange(2 * users) // 2, time=time, **ends)


@pytest.fixture(scope="module")
def trips() -> mv.Points:
    return timed_trips()


@pytest.fixture(scope="module")
def series(trips: mv.Points) -> FlowSeriesMap:
    return FlowSeries(epsilon=2, windows=WEEKS).release(trips, ZONES, rng=3)


def test_one_epsilon_is_promised_for_all_windows(series: FlowSeriesMap) -> None:
    assert series.guarantee.epsilon == 2
    assert sum(share.epsilon for share in series.guarantee.shares) == 2
    assert [series.window(at).guarantee for at in range(3)] == [series.guarantee] * 3
    np.testing.assert_allclose(series.by_window.sum(axis=0), series.trips, rtol=1e-9)


def test_a_week_in_which_people_went_back_is_seen_and_called(series: FlowSeriesMap) -> None:
    usual, back = series.window(0), series.window("2026-W04")
    first = int(np.argmax(user_sums(hub_trips().as_points(), ZONES).sums))
    origin, destination = divmod(first, ZONES.size)
    flows = [each.matrix()[origin, destination] for each in (usual, back)]
    assert flows[0] > 10 * flows[1]
    found = end_changes(usual, back)
    assert found.outflow.changed[origin]
    assert found.outflow.difference[origin] < 0
    assert not end_changes(usual, series.window(1)).outflow.changed.any()


def test_totals_of_a_window_are_near_its_exact_sums(series: FlowSeriesMap, trips: mv.Points) -> None:
    exact = user_sums(FlowSeries(epsilon=2, windows=WEEKS).numbered(trips), ZONES).sums / UNIT
    exact = exact.reshape(3, ZONES.size, ZONES.size)
    held = [
        low <= true <= high
        for at in range(3)
        for zone in range(ZONES.size)
        for total, true in (
            (series.window(at).outflow(zone), exact[at, zone].sum()),
            (series.window(at).inflow(zone), exact[at, :, zone].sum()),
        )
        for low, high in [total.interval()]
    ]
    # 96 intervals of 95 %: fewer than 82 hold with probability below 1e-4.
    assert sum(held) >= 82
    assert abs(series.window(1).total(10, 5).estimate - exact[1, 10, 5]) < 40


def test_the_error_that_is_asked_for_is_that_of_a_block_in_a_window(
    series: FlowSeriesMap, trips: mv.Points
) -> None:
    sums = series.window(0).sums
    assert sums is not None
    width = sums.blocks[-1].half_width(0.05)
    table = replace(hub_trips(5), points=trips)
    given = {"epsilon": 2, "trust": "central", "windows": WEEKS, "account": None, "rng": 1}
    mv.flows(table, ZONES, window_error=1.01 * width, **given)
    with pytest.raises(ParameterError, match="window_error"):
        mv.flows(table, ZONES, window_error=0.99 * width, **given)


def test_all_windows_together_and_one_of_them_are_not_added_where_they_share_sums() -> None:
    shared = FlowSeries(epsilon=50, windows=WEEKS, accept_large_epsilon=True).release(
        timed_trips(), ZONES, rng=3
    )
    assert not shared.window_sums.margins
    with pytest.raises(InputError, match="same reports or noisy sums"):
        shared.total() + shared.window(0).total()
    assert (shared.window(0).total() + shared.window(1).total()).deviation > 0


def test_a_page_has_the_arcs_of_every_window(series: FlowSeriesMap) -> None:
    """Each with its own doubt: an arc is grey where the noise of that window may be all there is."""
    lines = series.scene(page=True).lines
    assert lines is not None
    assert lines.windows is not None
    between = series.origin != series.destination
    np.testing.assert_array_equal(lines.windows.values, series.by_window[:, between])
    for at in range(len(series)):
        alone = series.window(at)
        told = alone.told_from_zero()
        assert told is not None
        surely = set(zip(alone.origin[told].tolist(), alone.destination[told].tolist(), strict=True))
        pairs = zip(series.origin[between].tolist(), series.destination[between].tolist(), strict=True)
        kept = series.by_window[at, between] > 0  # a flow that a window does not show is none of its own
        drawn = ~lines.windows.faded[at]
        assert [pair in surely for pair, is_kept in zip(pairs, kept, strict=True) if is_kept] == drawn[
            kept
        ].tolist()
        assert lines.windows.readings[at].startswith(f"{alone.in_all()} in this window.")
        told_here = f"{drawn.sum()} of {drawn.size} arcs" if drawn.any() else "No arc"
        assert f" {told_here} can be told from zero in it" in lines.windows.readings[at]
    assert lines.windows.faded.any()
    assert not lines.windows.faded.all()
    assert series.scene().lines.windows is None


def test_a_file_with_another_number_is_refused(series: FlowSeriesMap, tmp_path: Path) -> None:
    path = tmp_path / "flows.csv"
    series.save(path)
    assert {each.what: each.state for each in verify_release(path).findings}["content"] == "ok"
    table = csv.read_csv(path)
    at = table.column_names.index(f"users {WEEKS.names[1]}")
    more = pc.add(table.column(at), 1)
    csv.write_csv(table.set_column(at, table.column_names[at], more), path)
    with pytest.raises(ChangedContent):
        read_flows(path)


def test_files_have_every_window_and_its_sums(series: FlowSeriesMap, tmp_path: Path) -> None:
    for suffix in (".parquet", ".csv", ".geojson"):
        series.save(tmp_path / f"weeks{suffix}")
        read = read_flows(tmp_path / f"weeks{suffix}")
        assert read.windows == WEEKS
        np.testing.assert_allclose(read.by_window, series.by_window)
        one, two = (each.window(2).outflow([5, 6]) for each in (read, series))
        assert one.interval() == pytest.approx(two.interval())
        assert read.window(1).all_trips == pytest.approx(series.window(1).all_trips)
    pooled, of_windows = series.window(0).notes
    assert pooled.startswith("all windows together: measured: ")
    assert of_windows.startswith("each window was measured in ")
    kept = series.largest(3)
    assert repr(kept).startswith(f"FlowSeriesMap({WEEKS}: 3 windows, {ZONES.spec}, 3 flows)")
    assert kept.window(0).all_trips == pytest.approx(series.window(0).all_trips)


@pytest.mark.parametrize("most", [None, 1, 2])
def test_no_user_moves_the_integer_sums_of_all_windows_by_more_than_the_bound(most: int | None) -> None:
    rng = np.random.default_rng(2)
    rows, users = 12_000, 2_000
    user = np.minimum(rng.zipf(1.3, rows), users)
    lon, to_lon = rng.uniform(-8.72, -8.50, (2, rows))
    lat, to_lat = rng.uniform(41.08, 41.24, (2, rows))
    time = np.datetime64("2026-01-04") + rng.integers(0, 25, rows)
    mechanism = FlowSeries(epsilon=1, windows=WEEKS, windows_per_user=most)

    def sums(kept: np.ndarray) -> np.ndarray:
        ends = {"to_lon": to_lon[kept], "to_lat": to_lat[kept], "time": time[kept]}
        points = mv.Points.from_arrays(user[kept], lon[kept], lat[kept], **ends)
        return user_sums(mechanism.numbered(points), ZONES, key="key").sums

    everybody = sums(np.ones(rows, dtype=np.bool_))
    busiest = np.argsort(-np.bincount(user))[:4]
    moved = [int(np.abs(everybody - sums(user != who)).sum()) for who in (*busiest, users)]
    assert max(moved) <= (most or 1) * UNIT
    assert max(moved) > ((most or 1) - 0.01) * UNIT
    # All users together: no more than the bound each, whoever they are.
    assert everybody.sum() <= np.unique(user).size * (most or 1) * UNIT
    bound = mechanism.guarantee().bound
    assert bound is not None
    assert bound.value == Fraction(most or 1)


def test_k_windows_of_a_user_take_k_times_the_noise(trips: mv.Points) -> None:
    one, three = (
        FlowSeries(epsilon=2, windows=WEEKS, windows_per_user=k).release(trips, ZONES, rng=3).window(0).sums
        for k in (1, 3)
    )
    for single, triple in zip(
        (*one.blocks[-1:], *one.margins), (*three.blocks[-1:], *three.margins), strict=True
    ):
        assert triple.deviation() == pytest.approx(3 * single.deviation(), rel=1e-6)
    # A margin counts both ends of a trip: sensitivity 2 k over its epsilon, 2 * 0.5 * 0.25.
    assert three.margins[0].deviation() == pytest.approx(2 * 3 * np.sqrt(2) / 0.25, rel=1e-6)


@pytest.mark.parametrize(("most", "bought"), [(None, False), (1, False), (2, True)])
def test_a_declared_number_of_users_is_not_taken_for_that_of_their_windows(
    trips: mv.Points, most: int | None, bought: bool
) -> None:
    mechanism = FlowSeries(epsilon=2, windows=WEEKS, windows_per_user=most, trust=Curator(users=1500))
    shares = mechanism.release(trips, ZONES, rng=3).guarantee.shares
    assert any(share.purpose == "number of users" for share in shares) == bought
    assert sum(share.epsilon for share in shares) == 2


@pytest.fixture(scope="module")
def few_zones() -> tuple[mv.Points, mv.Grid]:
    return timed_trips(6000, seed=4), mv.Grid(REGION, rows=2, columns=2)


@pytest.mark.parametrize(
    "trust", [Curator(), Curator(users=6000), SecureAggregation(), TwoOperators()], ids=lambda each: each.name
)
def test_of_few_zones_every_pair_is_measured_in_every_window(
    few_zones: tuple[mv.Points, mv.Grid], trust: Curator | SecureAggregation | TwoOperators
) -> None:
    points, zones = few_zones
    series = FlowSeries(epsilon=1, windows=WEEKS, trust=trust).release(points, zones, rng=5)
    assert isinstance(series, FlowSeriesMap)
    assert sum(share.epsilon for share in series.guarantee.shares) == 1
    assert not series.window_sums.margins
    assert (series.window_sums.pairs == 1).all()
    assert any("every pair of zones was measured" in note for note in series.notes)
    np.testing.assert_allclose(series.by_window.sum(axis=0), series.trips, rtol=1e-9)


def test_sums_of_pairs_tell_the_ends_of_few_zones_better_than_margins(
    few_zones: tuple[mv.Points, mv.Grid],
) -> None:
    points, zones = few_zones
    exact = user_sums(FlowSeries(epsilon=1, windows=WEEKS).numbered(points), zones).sums / UNIT
    exact = exact.reshape(3, zones.size, zones.size)
    held, widths = [], {}
    for signal, seeds in ((8.0, 40), (1e6, 8)):  # nobody's pairs reach the second: margins are measured
        mechanism = FlowSeries(epsilon=1, windows=WEEKS, window_signal=signal)
        wide = []
        for seed in range(seeds):
            series = mechanism.release(points, zones, rng=seed)
            assert isinstance(series, FlowSeriesMap)
            assert bool(series.window_sums.margins) == (signal == 1e6)
            for at, true in enumerate(exact):
                ends = end_totals(series.window(at))
                for end, axis in ((ends.outflow, 1), (ends.inflow, 0)):
                    of_zone = true.sum(axis=axis)
                    wide.append(end.high - end.low)
                    if signal == 8:
                        held.append((end.low <= of_zone) & (of_zone <= end.high))
        widths[signal] = np.mean(wide)
    assert widths[8.0] < widths[1e6] / 2
    # 960 intervals of 95 %, each of whose noises is in two: outside with probability below 1e-3.
    assert 0.915 <= np.mean(held) <= 0.98


@pytest.mark.parametrize("trust", ["distributed", "operators"])
def test_clients_answer_the_same_plan(trips: mv.Points, trust: str) -> None:
    mechanism = flow_blocks(2, trust, {"windows": WEEKS, "longest": 256})
    series = mechanism.release(trips, ZONES, rng=3)
    assert isinstance(series, FlowSeriesMap)
    assert (series.guarantee.model, series.guarantee.epsilon) == (trust, 2)
    assert sum(share.epsilon for share in series.guarantee.shares) == 2
    exact = user_sums(FlowSeries(epsilon=2, windows=WEEKS).numbered(trips), ZONES).sums / UNIT
    exact = exact.reshape(3, ZONES.size, ZONES.size)
    held = []
    for at in range(3):
        ends = end_totals(series.window(at))
        for end, axis in ((ends.outflow, 1), (ends.inflow, 0)):
            true = exact[at].sum(axis=axis)
            held += list((end.low <= true) & (true <= end.high))
    # 96 intervals of 95 %: fewer than 82 hold with probability below 1e-4.
    assert sum(held) >= 82
    back = np.abs(series.window(2).matrix().toarray() - exact[2]).sum() / exact[2].sum()
    assert back < 0.3 < np.abs(exact[0] - exact[2]).sum() / exact[2].sum()
    assert 3 * series.window_sums.leaves.size <= 256


@pytest.mark.parametrize("trust", ["distributed", "operators"])
def test_the_protocol_gives_the_series_too(trust: str) -> None:
    options = {"windows": WEEKS, "scale": 16} if trust == "operators" else {"windows": WEEKS}
    zones = mv.Quadtree(REGION, depth=1)
    series = flow_blocks(8, trust, options).release(timed_trips(120), zones, secure_sum=ProtocolSum(), rng=3)
    assert series.all_trips == pytest.approx(120, abs=10)


def test_no_client_counts_more_than_its_scale_in_all_windows_together() -> None:
    rng = np.random.default_rng(2)
    user = np.minimum(rng.zipf(1.3, 12_000), 2_000)
    ends = {
        name: rng.uniform(*span, 12_000)
        for name, span in (("to_lon", (-8.72, -8.50)), ("to_lat", (41.08, 41.24)))
    }
    lon, lat = rng.uniform(-8.72, -8.50, 12_000), rng.uniform(41.08, 41.24, 12_000)
    time = np.datetime64("2026-01-04") + rng.integers(0, 25, 12_000)
    mechanism = FlowSeries(epsilon=1, windows=WEEKS, trust=SecureAggregation())
    numbered = mechanism.numbered(mv.Points.from_arrays(user, lon, lat, time=time, **ends))
    raster = mechanism.raster(zone_order(ZONES))
    clients = devices_of(numbered, ZONES, sites=raster.site)
    for places in (MarginsEncoding(4), NodeEncoding(PrefixTree.uniform(4, 3))):
        vectors = encode_places(clients, LabelEncoding(places, 3), 1024, "largest-remainder", Randomness(1))
        each = np.bincount(vectors.client, vectors.value, clients.count)
        assert vectors.value.min() >= 0
        assert set(each.tolist()) <= {0, 1024 * places.copies}
        assert each.max() == 1024 * places.copies


def test_what_a_series_of_flows_cannot_be_is_refused(trips: mv.Points) -> None:
    with pytest.raises(ParameterError, match="trust must be central, distributed or operators"):
        mv.flows(hub_trips(5), ZONES, epsilon=1, trust="local", windows=WEEKS, account=None)
    for trust in (SecureAggregation(), TwoOperators()):
        with pytest.raises(ParameterError, match="needs trust central"):
            FlowSeries(epsilon=1, windows=WEEKS, windows_per_user=2, trust=trust)
        with pytest.raises(ParameterError, match="96 coordinates of each device, and longest allows 95"):
            FlowSeries(epsilon=1, windows=WEEKS, longest=95, trust=trust).release(trips, ZONES, account=None)
    with pytest.raises(ParameterError, match="windows_per_user must be a whole number from 1 to 3"):
        FlowSeries(epsilon=1, windows=WEEKS, windows_per_user=4)
    with pytest.raises(InputError, match="no column of times"):
        mv.flows(hub_trips(5), ZONES, epsilon=1, trust="central", windows=WEEKS, account=None)
    with pytest.raises(ParameterError, match="zones must be at most 512 for flows in each of 168"):
        FlowSeries(epsilon=1, windows=mv.Windows(by="hour-of-week", zone="UTC")).release(
            trips, mv.Quadtree(REGION, depth=5), account=None
        )
    with pytest.raises(ParameterError, match="window_error"):
        mv.flows(
            hub_trips(5), ZONES, epsilon=1, trust="central", windows=WEEKS, window_error=0.1, account=None
        )
