"""A series collected from devices: one collection, one promise, a report of each device about the window it drew."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.collector.refusals import Invalid
from mapveil.collector.rounds.specification import read_specification
from mapveil.maps.series_map import SeriesMap
from mapveil_client.contribution import client_report
from mapveil_client.device_account import Budget
from mapveil_client.device_locations import Whereabouts
from mapveil_client.encodings import LabelEncoding
from mapveil_client.errors import InputError
from mapveil_client.local.message import read_reports, write_reports
from mapveil_client.local.randomizer import Reports
from mapveil_client.memory import DeviceMemory
from mapveil_client.participation import Participation
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from tests.collector.engine.conftest import Crowd
from tests.collector.engine.test_engine import send_reports

WEEKS = {"every": "1w", "start": "2026-01-05", "until": "2026-01-26"}
LONG = {"every": "1mo", "start": "2026-01-01", "until": "2099-01-01"}
MONDAY = 1_767_571_200.0  # 2026-01-05, UTC
WEEK = 7 * 86400.0
COUNT = 90


@pytest.fixture
def spec(make_spec):
    return make_spec("local") | {
        "method": None, "options": None, "tiling": "quadtree:3", "devices": COUNT, "windows": WEEKS
    }  # fmt: skip


def test_a_series_ends_as_one_map_with_the_windows_that_devices_drew(
    engine, store, crowd_of, opened, spec, tmp_path
) -> None:
    crowd_of(store, COUNT)
    id, terms = opened(engine, spec | {"epsilon": "8", "accept_custom_policy": True})
    policy = DevicePolicy(most_per_collection=Fraction(8), budget=Budget(Fraction(8)))
    bodies, drawn = [], []
    for number in range(COUNT):
        # In the first week everybody is in the south-west, and later in the north-east.
        places = Whereabouts(
            np.array([-74.029, -73.901, -73.901]),
            np.array([40.691, 40.829, 40.829]),
            times=MONDAY + WEEK * np.array([0.5, 1.5, 2.5]),
        )
        device = Participation(DeviceMemory.open(), policy, terms, places, Randomness(number))
        device.join()
        drawn.append(device.part.window)
        bodies.append(device.report())
        assert device.memory.account.spent == 8
    sent = read_reports(bodies, terms.randomizer, 3)
    assert sent.windows.tolist() == drawn
    send_reports(engine, id, bodies)
    engine.tick()
    record = engine.collection(id)
    assert (record["state"], record["reports"], record["spent"]) == ("done", COUNT, "8")
    made = engine.map(id)
    assert isinstance(made, SeriesMap)
    assert (made.windows.names, made.guarantee.epsilon) == (("2026-W02", "2026-W03", "2026-W04"), 8)
    assert made.by_window.sum(axis=1) == pytest.approx(np.bincount(drawn, minlength=3))
    first, later = made.by_window[0], made.by_window[1:].sum(axis=0)
    assert np.argmax(first) != np.argmax(later)
    made.save(tmp_path / "series.parquet")
    again = mv.read_map(tmp_path / "series.parquet")
    west = again.window("2026-W02").total(shapely.box(-74.03, 40.69, -73.97, 40.76))
    assert west.estimate > 0.5 * drawn.count(0)


LENIENT = DevicePolicy(most_per_collection=Fraction(2000), most_own_epsilon=10**6, least_shard=3)


class Travellers(Crowd):
    """Devices with places and times: one in the south-west, and later twice as long in the north-east."""

    def places(self, device: int) -> Whereabouts:
        weeks = np.array([0.5, 1.5, 2.5, 9.0 if device % 2 else 2.6])
        lon, lat = np.array([-74.029, -73.901, -73.901, -73.901]), np.array([40.691, 40.829, 40.829, 40.829])
        return Whereabouts(lon, lat, times=MONDAY + WEEK * weeks)

    def vector(self, terms, announced, device):
        assert LENIENT.refusal_of_round(terms, announced) is None
        self.last = announced
        asked = (announced.query, announced.alpha, announced.scale, announced.rounding)
        rng = Randomness(device).child(f"round {announced.number}")
        made = client_report(self.places(device).devices(terms), *asked, rng).dense(0)
        self.vectors[device, announced.number] = made
        return made


def test_devices_of_secure_sums_divide_themselves_over_all_windows(
    engine, store, clock, opened, spec
) -> None:
    crowd = Travellers(store, 24)
    given = {"trust": "distributed", "epsilon": "2000", "accept_large_epsilon": True, "devices": 24}
    given |= {
        "options": {"of": "devices"}
    }  # a map of these few, and not of a population that they are a sample of
    id, terms = opened(engine, spec | given | {"accept_custom_policy": True})
    assert crowd.play(engine, id, clock) == "done", engine.collection(id)["reason"]
    record, made = engine.collection(id), engine.map(id)
    assert sum(Fraction(each["epsilon"]) for each in record["rounds"]) == 2000
    assert isinstance(made, SeriesMap)
    assert (made.guarantee.model, made.guarantee.epsilon) == ("distributed", 2000)
    # Half of the devices have three places in windows, and a place in none; the others four.
    assert made.by_window.sum(axis=1) == pytest.approx([4 + 3, 4 + 3, 4 + 6], abs=1)
    west, east = np.argmax(made.by_window[0]), np.argmax(made.by_window[2])
    assert made.by_window[1, [west, east]] == pytest.approx([0, 7], abs=1)
    places = crowd.last.query.encoding.places
    more = replace(crowd.last, encoding=LabelEncoding(places, 4).to_dict(), length=4 * places.length)
    assert "labels must be the 3 windows of the terms, got 4" in str(LENIENT.refusal_of_round(terms, more))


def test_a_device_without_times_leaves_a_series_of_sums(spec) -> None:
    terms = read_specification(
        spec | {"trust": "distributed", "active": False, "accept_custom_policy": True}, "0123456789abcdef" * 2
    ).terms
    with pytest.raises(InputError, match="no times"):
        Whereabouts(np.array([-74.0]), np.array([40.7])).devices(terms)


def test_a_report_of_another_kind_of_collection_is_refused(engine, store, crowd_of, opened, spec) -> None:
    crowd_of(store, COUNT)
    id, terms = opened(engine, spec)
    value = terms.randomizer.randomize([0], Randomness(0)).values
    for window in (None, np.array([3])):
        body = write_reports(Reports(value, window), terms.randomizer)[0]
        with pytest.raises(Invalid):
            send_reports(engine, id, [body])


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"method": "grr"}, "multiscale, got local and grr"),
        ({"trust": "distributed", "method": "adaptive"}, "by multiscale, got distributed and adaptive"),
        ({"trust": "distributed", "options": {"windows_per_user": 2}}, "need trust central"),
        ({"trust": "distributed", "windows": LONG}, "2098-12 is not: create it then"),
        ({"windows": {"every": "1w", "start": "2026-01-05", "until": "2026-01-12"}}, "must be 2 to 1024, got 1"),
        ({"windows": {"every": "1h", "start": "2026-01-05", "until": "2026-03-12"}}, "must be 2 to 1024, got 1584"),
        ({"tiling": "grid:1x4096"}, "windows must be at most 2 on this tiling's raster of 16,777,216 sites, got"),
        ({"windows": {"every": "1w", "start": "2026-01-05", "until": "2026-01-13"}}, "must end a window"),
        ({"windows": {"every": "1w"}}, "start and until"),
        ({"windows": {"by": "purpose"}}, "values"),
        ({"windows": {"by": "hour", "zone": "Europe/Atlantis"}}, "zone"),
        ({"windows": {"every": "a week"}}, "windows.every"),
        ({"options": {"windows_per_user": 2}}, "windows_per_user"),
    ],
)  # fmt: skip
def test_windows_that_no_collection_has_are_refused_in_a_line(spec, changes, match) -> None:
    with pytest.raises(InputError, match=match) as refused:
        read_specification(spec | changes, "0123456789abcdef" * 2)
    assert "\n" not in str(refused.value)
