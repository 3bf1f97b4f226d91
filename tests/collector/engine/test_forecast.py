"""A forecast: the bytes that a device really sends, an error that grows as epsilon shrinks, and reasons of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from mapveil.collector.rounds.engine import Engine
from mapveil.collector.rounds.specification import CollectionSpec
from tests.collector.operators.pair import Pair, spec


@pytest.fixture
def pair(tmp_path: Any, clock: Any) -> Any:
    made = Pair(tmp_path, clock)
    yield made
    made.close()


def of(engine: Engine, **changed: Any) -> Any:
    return engine.forecast(CollectionSpec.model_validate(spec(devices=400, **changed)))


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


def test_a_forecast_says_why_a_collection_cannot_be(pair: Pair) -> None:
    found = of(pair.engine, tiling="quadtree:9")
    assert found.refused
    assert "sites" in found.note
    assert found.error is found.bytes_up is None
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
