"""What mechanisms over windows have in common: tables whose users count otherwise than is promised are refused."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines import UserSums, user_sums
from mapveil.geo.windowed_points import Parts, windowed
from mapveil.mechanisms.flow_blocks import FlowBlocks
from mapveil.mechanisms.flow_series import FlowSeries
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.multiscale_series import MultiscaleSeries
from mapveil.mechanisms.proportion_histogram import ProportionHistogram
from mapveil_client.errors import InputError
from tests.mechanisms.test_flow_blocks import ZONES
from tests.mechanisms.test_flow_series import WEEKS, timed_trips

LATER = mv.Windows(every="1w", start="2026-02-02", until="2026-02-23", zone="UTC")


@pytest.mark.parametrize("numbered", [(WEEKS, Parts(1)), (WEEKS, Parts(1, 2)), (LATER, None)])
def test_windows_that_were_numbered_for_another_mechanism_are_refused(
    numbered: tuple[mv.Windows, Parts | None],
) -> None:
    trips = timed_trips(50)
    places = mv.Points.from_arrays(
        np.arange(2), np.full(2, 0.1), np.full(2, 0.1), time=np.array(["2026-01-06"] * 2)
    )
    plain = Multiscale(epsilon=1), ProportionHistogram(epsilon=1)
    table = windowed(places, *numbered)
    for mechanism in (MultiscaleSeries(epsilon=1, windows=WEEKS), *plain):
        for source in (table, user_sums(table, ZONES)):
            with pytest.raises(InputError, match="numbered for another mechanism"):
                mechanism.release(source, ZONES, account=None, rng=1)
    for flows in (FlowSeries(epsilon=1, windows=WEEKS), FlowBlocks(epsilon=1)):
        with pytest.raises(InputError, match="numbered for another mechanism"):
            flows.release(windowed(trips, *numbered), ZONES, account=None, rng=1)


def test_what_a_mechanism_numbered_itself_is_taken() -> None:
    mechanism = FlowSeries(epsilon=1, windows=WEEKS, windows_per_user=2)
    numbered = mechanism.numbered(timed_trips(50))
    assert mechanism.release(numbered, ZONES, account=None, rng=1).total().estimate > 0


def test_exact_sums_of_other_windows_are_refused() -> None:
    for windows in (2, 4):
        sums = UserSums(np.zeros((windows, ZONES.size), dtype=np.int64), ZONES)
        assert user_sums(sums, ZONES) is sums
        with pytest.raises(InputError, match="exact sums must be of 16 cells in 3 windows"):
            MultiscaleSeries(epsilon=1, windows=WEEKS).release(sums, ZONES, account=None, rng=1)
