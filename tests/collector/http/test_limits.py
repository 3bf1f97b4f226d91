from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.collector.http import limits
from mapveil.collector.http.limits import Bodies, Buckets, declared_length
from mapveil.collector.http.pace import Pace
from mapveil.collector.refusals import StoreUnavailable, TooLarge, TooMany


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


steps = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, 0.25, 0.5, 1.0, 4.0])), max_size=60)


@given(steps, st.sampled_from([0.5, 1.0, 2.0]), st.integers(1, 5))
def test_no_key_gets_more_than_its_burst_and_rate_and_none_is_robbed(
    asked: list[tuple[str, float]], rate: float, burst: int
) -> None:
    time = Time()
    buckets = Buckets(rate, burst, "a test", time)
    tokens = dict.fromkeys("ab", float(burst))  # the oracle: filled up step by step
    for key, wait in asked:
        time.now += wait
        tokens = {name: min(burst, kept + wait * rate) for name, kept in tokens.items()}
        if tokens[key] >= 1 - 1e-9:
            buckets.take(key)
            tokens[key] -= 1
        else:
            with pytest.raises(TooMany) as refused:
                buckets.take(key)
            assert refused.value.retry_after == pytest.approx((1 - tokens[key]) / rate)
        assert buckets.wait(key) == pytest.approx(max(0.0, (1 - tokens[key]) / rate), abs=1e-9)


def test_a_rate_of_zero_sets_no_limit() -> None:
    buckets = Buckets(0, 1, "a test", Time())
    for _ in range(1000):
        buckets.take("a")
    assert buckets.wait("a") == 0


def test_memory_is_bounded_and_the_oldest_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_MOST_KEYS", 3)
    buckets = Buckets(1, 1, "a test", Time())
    for key in "abcd":
        buckets.take(key)
    assert len(buckets._kept) == 3
    buckets.take("a")  # forgotten
    with pytest.raises(TooMany):
        buckets.take("d")


def test_bodies_are_held_within_one_bound_and_released() -> None:
    bodies = Bodies(100)
    for address in range(5):
        bodies.hold(18, f"a{address}")
    with pytest.raises(StoreUnavailable):
        bodies.hold(11, "b")
    bodies.hold(10, "b")
    for address in range(5):
        bodies.release(18, f"a{address}")
    bodies.release(10, "b")
    assert bodies.held == 0
    assert not bodies._of


def test_one_address_leaves_the_others_room_for_their_bodies() -> None:
    bodies = Bodies(100)
    bodies.hold(50, "one")
    with pytest.raises(StoreUnavailable):
        bodies.hold(1, "one")
    bodies.hold(25, "another")
    bodies.hold(25, "a third")


@pytest.mark.parametrize(("value", "length"), [(b"0", 0), (b"10", 10), (b"010", 10), (None, None)])
def test_a_declared_length_is_read(value: bytes | None, length: int | None) -> None:
    headers = [] if value is None else [(b"content-length", value)]
    assert declared_length([(b"host", b"x"), *headers], 10) == length


@pytest.mark.parametrize("value", [b"11", b"9" * 17, b"9" * 5000, b"-1", b"1e1", b"", b"\xb2"])
def test_a_declared_length_beyond_what_is_accepted_is_refused(value: bytes) -> None:
    with pytest.raises(TooLarge):
        declared_length([(b"content-length", value)], 10)


@pytest.mark.parametrize(("devices", "left_s", "mean"), [(40_000, None, 40), (40_000, 60, 15), (3, None, 1)])
def test_devices_that_came_at_once_come_again_evenly(devices: int, left_s: float | None, mean: float) -> None:
    pace = Pace(1_000)
    told = np.array([pace.pause(devices, left_s) for _ in range(40_000)])
    assert 0.5 * mean <= told.min()
    assert told.max() <= 1.5 * mean
    # Uniform over one mean: each tenth of that time has a tenth of them, give or take 6 standard deviations.
    tenths = np.histogram(told, bins=10, range=(0.5 * mean, 1.5 * mean))[0]
    assert np.abs(tenths - 4_000).max() < 6 * 60


def test_devices_are_counted_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    time, counts = Time(), iter(range(5, 9))
    monkeypatch.setattr("mapveil.collector.http.pace.time.monotonic", time)
    pace = Pace(1)
    assert [pace.devices(lambda: next(counts)) for _ in range(3)] == [5, 5, 5]
    time.now = 61.0
    assert pace.devices(lambda: next(counts)) == 6
