"""Times of the store: texts that sort as the moments do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.collector.clock import SystemClock, read_time, time_text
from mapveil_client.errors import InputError

MOMENTS = st.datetimes(
    min_value=datetime(1000, 1, 3),
    max_value=datetime(9999, 12, 29),
    timezones=st.integers(-23, 23).map(lambda hours: timezone(timedelta(hours=hours))),
)


@given(moment=MOMENTS)
def test_a_moment_survives_its_text(moment):
    assert read_time(time_text(moment)) == moment
    assert len(time_text(moment)) == 32


@given(one=MOMENTS, other=MOMENTS)
def test_texts_sort_as_moments(one, other):
    assert (time_text(one) < time_text(other)) == (one < other)


def test_a_moment_without_a_zone_is_refused():
    with pytest.raises(InputError, match="time zone"):
        time_text(datetime(2026, 3, 1))
    with pytest.raises(InputError, match="time zone"):
        read_time("2026-03-01T00:00:00")
    with pytest.raises(InputError, match="must be ISO"):
        read_time("yesterday")


def test_the_machines_clocks():
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    assert clock.monotonic() <= clock.monotonic()
