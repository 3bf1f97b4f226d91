"""A forecast: the bytes that a device really sends, an error that grows as epsilon shrinks, and reasons of refusals."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from mapveil.collector.rounds import forecast as forecasts
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.rounds.offer import Offer
from mapveil.collector.rounds.specification import CollectionSpec, read_specification
from mapveil.secure_sum.drivers import IdealSum
from mapveil_client.local.planar_laplace import TableRandomizer
from mapveil_client.randomness.random import Randomness
from tests.collector.operators.pair import Pair, spec


@pytest.fixture
def pair(tmp_path: Any, clock: Any) -> Any:
    made = Pair(tmp_path, clock)
    yield made
    made.close()


def of(engine: Engine, **changed: Any) -> Any:
    return engine.forecast(CollectionSpec.model_validate(spec(**{"devices": 400, **changed})))


def test_two_operators_come_first_where_there_is_a_helper(pair: Pair) -> None:
    assert pair.engine.trusts[0] == "operators"
    assert "operators" not in pair.other.trusts


def test_the_bytes_are_those_that_a_device_sends(pair: Pair) -> None:
    found = of(pair.engine)
    pair.open()
    (body,) = pair.reports([1])
    assert (found.bytes_up, found.messages) == (len(body), 1)
    assert pair.engine.trusts  # nothing was created but the open one
    assert len(pair.engine.collections()) == 1


@pytest.mark.parametrize("trust", ["operators", "distributed", "local"])
def test_the_error_grows_as_epsilon_shrinks(pair: Pair, trust: str) -> None:
    method = {"method": None} if trust == "local" else {}
    errors = [of(pair.engine, trust=trust, active=False, epsilon=each, **method) for each in ("4", "0.25")]
    assert not any(each.refused for each in errors), errors
    assert 0 < errors[0].error < errors[1].error / 2
    assert errors[0].mean == 25
    assert all(each.bytes_up > 0 for each in errors)


def test_sums_against_a_malicious_server_are_forecast_with_what_they_send_more(engine: Any) -> None:
    curious, malicious = (of(engine, trust="distributed", active=active) for active in (False, True))
    assert malicious.error == curious.error
    assert malicious.bytes_up > 1.5 * curious.bytes_up
    assert malicious.bytes_down > 3 * curious.bytes_down


@pytest.fixture
def small_cities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few people for a forecast, so that each counts as many devices."""
    monkeypatch.setattr(forecasts, "_MOST_DRAWN", 2_000)


@pytest.mark.parametrize(
    ("trust", "depth", "messages"), [("operators", 5, 1), ("distributed", 7, 2), ("local", 5, 1)]
)
def test_a_million_devices_have_an_error_and_bytes(
    pair: Pair, small_cities: None, trust: str, depth: int, messages: int
) -> None:
    asked = {"trust": trust, "method": None, "tiling": f"quadtree:{depth}", "active": False}
    found = of(pair.engine, devices=1_000_000, **asked)
    assert not found.refused, found.note
    assert found.error > 0
    assert found.mean == pytest.approx(1_000_000 / 4**depth)
    assert found.bytes_up > 0
    assert found.messages == messages
    assert (found.bytes_down > 0) == (trust == "distributed")
    assert "Each of its 2,000 people counts as 500 devices, so the error differs from" in found.note


def test_what_takes_too_long_has_a_reason(pair: Pair, small_cities: None) -> None:
    found = of(pair.engine, trust="local", devices=2_000_000, method=None)
    assert (found.error, found.messages) == (None, 1)
    assert found.bytes_up > 0
    assert "a forecast of randomized reports draws each of them, which would take too long" in found.note


def test_a_million_local_reports_on_a_fine_map_have_a_reason(pair: Pair, small_cities: None) -> None:
    found = of(pair.engine, trust="local", method="unary", tiling="quadtree:8", devices=32_769)
    assert (found.error, found.messages, found.refused) == (None, 1, False)
    assert "not predicted for more than 32,768 devices on a map of 65,536 cells" in found.note


def test_a_table_that_takes_too_much_memory_has_a_reason(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "_MOST_TABLE", 16)
    for depth, method, options, predicted in (
        (2, "planar-laplace", {}, True),
        (3, "planar-laplace", {}, False),
        (3, "grr", {}, True),
        (3, "grr", {"estimator": "candidate-sets"}, False),
    ):
        found = of(pair.engine, trust="local", method=method, options=options, tiling=f"quadtree:{depth}")
        assert (found.error is not None) is predicted
        assert ("more than 16 cells: this forecast inverts" in found.note) is not predicted
        assert (found.bytes_up or 0) > 0


def test_a_report_of_too_many_values_has_a_reason(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "_MOST_HASHES", 1000)  # of 64 cells: 240 at epsilon 1, thousands at 8
    for epsilon, method, predicted in (("1", "olh", True), ("8", "olh", False), ("8", "olh-h", True)):
        found = of(pair.engine, trust="local", method=method, tiling="quadtree:3", epsilon=epsilon)
        assert (found.error is not None) is predicted
        assert ("more than 1,000 values" in found.note) is not predicted


def test_neither_a_forecast_nor_a_collection_that_nobody_opened_keeps_tables(
    engine: Any, store: Any, crowd_of: Any
) -> None:
    crowd_of(store, 1)  # with the operator who creates it

    def tables() -> int:
        gc.collect()
        return sum(issubclass(type(each), TableRandomizer) for each in gc.get_objects())

    before = tables()
    asked = CollectionSpec.model_validate(spec(trust="local", method="planar-laplace"))
    assert engine.forecast(asked).error > 0
    engine.create(asked, "operator 1")
    assert tables() <= before


@pytest.mark.parametrize(
    "changed",
    [{"tiling": "quadtree:9"}, {"windows": {"every": "1d", "start": "2026-01-05", "until": "2026-01-08"}}],
)
def test_secure_sums_without_an_error_have_their_rounds_and_bytes(
    engine: Any, small_cities: None, changed: Any
) -> None:
    found = of(engine, **{"trust": "distributed", "method": "multiscale", "tiling": "quadtree:5", **changed})
    assert (found.error, found.refused) == (None, False)
    assert found.messages >= 2
    assert found.bytes_up > 0
    assert found.bytes_down > 0


def test_a_map_that_takes_too_much_memory_has_a_reason(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "_MOST_SITES", 64)
    # The narrow grid has 32 cells on a raster of 16 x 16.
    for tiling, predicted in (("quadtree:3", True), ("quadtree:4", False), ("grid:16x2", False)):
        found = of(engine, trust="distributed", tiling=tiling)
        given = [each is not None for each in (found.error, found.bytes_up, found.bytes_down, found.messages)]
        assert given == [predicted] * 4
        assert ("a raster of more than 64 sites" in found.note) is not predicted


def test_a_series_that_takes_too_much_memory_has_a_reason(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "_MOST_WINDOW_SITES", 3 * 64)
    for days, predicted in ((3, True), (4, False)):
        windows = {"every": "1d", "start": "2026-01-05", "until": f"2026-01-{5 + days:02}"}
        found = of(engine, trust="distributed", method="multiscale", tiling="quadtree:3", windows=windows)
        assert (found.bytes_up is not None) is (found.messages is not None) is predicted
        assert ("more than 192 sites in all windows" in found.note) is not predicted


def test_the_error_of_secure_sums_is_that_of_every_device_drawn(engine: Any) -> None:
    devices = 6_000
    asked = spec(
        trust="distributed", tiling="quadtree:5", devices=devices, minimum=devices // 2, active=False
    )
    asked["options"] = {"shard_size": 200, "scale": 1}  # of the counts that are released
    found = engine.forecast(CollectionSpec.model_validate(asked))
    terms = read_specification(asked, "5a" * 16).terms
    truth = forecasts._synthetic(devices, Offer(terms).tiling)
    made = Offer(terms).sums.release(
        truth, truth.tiling, account=None, rng=Randomness(1), secure_sum=IdealSum()
    )
    each = (made.values - truth.values) ** 2
    assert found.error == pytest.approx(each.mean() ** 0.5, rel=0.1)


def test_the_bytes_of_secure_sums_are_those_of_the_collections_rounds(
    engine: Any, store: Any, clock: Any, crowd_of: Any, opened: Any, make_spec: Any
) -> None:
    asked = make_spec("distributed", method="uniform")
    found = engine.forecast(CollectionSpec.model_validate(asked))
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, asked)
    assert crowd.play(engine, id, clock) == "done"
    rounds = engine.map(id).rounds
    up = sum(sum(each.bytes_up.values()) for each in rounds)
    down = sum(sum(each.bytes_down.values()) for each in rounds)
    assert (found.bytes_up, found.bytes_down, found.messages) == (up, down, len(rounds))


def test_a_forecast_says_why_a_collection_cannot_be(pair: Pair) -> None:
    found = of(pair.engine, tiling="quadtree:9")
    assert found.refused
    assert "sites" in found.note
    assert found.error is found.bytes_up is found.messages is None
    alone = of(pair.other)
    assert alone.refused
    assert "helper" in alone.note


def test_a_series_by_two_operators_has_its_report_and_no_error(pair: Pair) -> None:
    windows = {"every": "1d", "start": "2026-01-05", "until": "2026-01-08"}
    found = of(pair.engine, method="multiscale", windows=windows)
    assert (found.error, found.messages, found.refused) == (None, 1, False)
    assert "each device counts 1 over all 3 windows together" in found.note
    alone = of(pair.engine, method="multiscale", options={"scale": 1024})
    assert found.bytes_up > 3 * alone.bytes_up
