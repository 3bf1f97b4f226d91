"""A series by two operators: one report of each device over all windows, one promise, one map of every window."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.collector.operators.peer_messages import AskedQuery
from mapveil.collector.rounds.reconciliation import reconcile
from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil.geo.windows import Windows
from mapveil.maps.series_map import SeriesMap
from mapveil_client.contribution import encode_places
from mapveil_client.device_account import Budget
from mapveil_client.device_locations import Whereabouts
from mapveil_client.encodings import LabelEncoding, NodeEncoding
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.memory import DeviceMemory
from mapveil_client.morton import PrefixTree
from mapveil_client.participation import Participation
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from tests.collector.engine.test_series import LONG, MONDAY, WEEK, WEEKS

from .pair import OWN, Pair
from .test_attacks import task_of
from .test_collections import exact

COUNT = 24
EPSILON = 17  # the most that a helper answers for, nearly: sums within a fraction of a device
SCALE = 1024
WEST, EAST = (-74.029, 40.691), (-73.901, 40.829)
HELPER_KEY = OWN[1].config.public_key.hex()
POLICY = DevicePolicy(
    budget=Budget(Fraction(EPSILON)), most_per_collection=Fraction(EPSILON), helper=HELPER_KEY
)
SPEC = {"method": "multiscale", "windows": WEEKS | {"zone": "UTC"}, "epsilon": str(EPSILON)}


def record_of(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Longitudes, latitudes and times: in the west first and in the east later, and the odd ones once after the end."""
    weeks = np.array([0.5, 1.5, 2.5, 9.0 if number % 2 else 2.6])
    lon, lat = np.array([WEST, EAST, EAST, EAST]).T
    return lon, lat, MONDAY + WEEK * weeks


def devices_of(pair: Pair, count: int = COUNT) -> list[Participation]:
    """Devices that joined, each with its record."""
    made = []
    for number in range(count):
        lon, lat, times = record_of(number)
        places = Whereabouts(lon, lat, times=times)
        made.append(Participation(DeviceMemory.open(), POLICY, pair.terms, places, Randomness(number)))
        made[-1].join()
    return made


@pytest.fixture
def collected(pair_of) -> tuple[Pair, str, list[Participation]]:
    """A series that was collected, and its devices."""
    pair = pair_of()
    id = pair.open(**SPEC)
    devices = devices_of(pair)
    pair.send(id, [device.report() for device in devices])
    assert pair.play(id) == "done", pair.engine.collection(id)["reason"]
    return pair, id, devices


def test_each_device_is_divided_over_all_windows_and_pays_once(collected) -> None:
    pair, id, devices = collected
    sums = np.array(exact(pair, id)).reshape(16, 4)
    # Half of the devices have three places in windows, and the others four.
    divided = sum(
        encode_places(
            each._whereabouts.devices(pair.terms),
            pair.terms.shared_sites,
            SCALE,
            "largest-remainder",
            Randomness(0),
        ).dense(0)
        for each in devices
    )
    assert sums.ravel().tolist() == divided.tolist()
    assert sums.sum() == COUNT * SCALE
    assert sums.sum(axis=0) == pytest.approx(SCALE * np.array([7, 7, 10, 0]), abs=COUNT)
    for each in devices:
        assert each.memory.account.entries[id].charges == {0: EPSILON}
        assert each.part.window == -1
    ledgers = [engine.ledger() for engine in (pair.engine, pair.other)]
    charges = [[(line["purpose"], line["epsilon"]) for line in ledger] for ledger in ledgers]
    assert charges[0] == charges[1]
    assert ("blocks in 3 windows", f"{EPSILON}/2") in charges[0]
    assert sum(Fraction(epsilon) for _, epsilon in charges[0]) == EPSILON
    for store in pair.stores:
        with store.read() as connection:
            assert reconcile(connection).problems == []


@pytest.mark.filterwarnings("ignore:.*lie in no window")
def test_the_map_is_the_series_that_a_release_in_one_process_makes(collected, tmp_path) -> None:
    pair, id, _ = collected
    made = pair.engine.map(id)
    assert isinstance(made, SeriesMap)
    assert made.windows.names == ("2026-W02", "2026-W03", "2026-W04")
    assert made.by_window.sum(axis=1) == pytest.approx([7, 7, 10], abs=4)
    west, east = np.argmax(made.by_window[0]), np.argmax(made.by_window[2])
    assert west != east
    assert np.argmax(made.by_window[1]) == east
    rows = [record_of(number) for number in range(COUNT)]
    lon, lat, seconds = (np.concatenate(column) for column in zip(*rows, strict=True))
    times = seconds.astype("datetime64[s]")
    released = mv.release_series(
        mv.Points.from_arrays(np.repeat(np.arange(COUNT), 4), lon, lat, time=times),
        Windows.from_dict(dict(pair.terms.windows)),
        tiling_from_dict(pair.terms.tiling),
        epsilon=EPSILON,
        trust="operators",
        options={"scale": SCALE, "minimum_batch": 20},
        rng=1,
        account=None,
    )
    promised = dataclasses.replace(
        released.guarantee, account=made.guarantee.account, simulated=False, seeded=False
    )
    assert made.guarantee == promised
    assert (made.method, made.parameters) == (released.method, released.parameters)
    law = [
        [(each.epsilon, each.unit, each.terms, each.sensitivity, each.labels) for each in one.measured]
        for one in (made, released)
    ]
    assert law[0] == law[1]
    assert [each.epsilon for each in made.measurements] == [each.epsilon for each in released.measurements]
    assert made.rounds == released.rounds
    made.save(tmp_path / "series.parquet")
    again = mv.read_map(tmp_path / "series.parquet")
    assert isinstance(again, SeriesMap)
    assert again.guarantee == made.guarantee


def test_a_path_reports_the_one_place_and_window_of_most(pair_of) -> None:
    pair = pair_of()
    id = pair.open(**SPEC | {"options": {"scale": 1}})
    pair.send(id, [device.report() for device in devices_of(pair)])
    assert pair.play(id) == "done"
    sums = np.array(exact(pair, id)).reshape(16, 4)
    # Without a second place in the last window, the first site of three equal ones has the unit: in the north-east.
    assert sums.sum(axis=0).tolist() == [0, COUNT // 2, COUNT // 2, 0]


def test_a_device_without_times_leaves_and_is_not_charged(pair_of) -> None:
    pair = pair_of()
    id = pair.open(**SPEC)
    for places in (Whereabouts(*map(np.atleast_1d, WEST)), Whereabouts(np.zeros(0), np.zeros(0))):
        device = Participation(DeviceMemory.open(), POLICY, pair.terms, places)
        device.join()
        if places.lon.size:
            with pytest.raises(InputError, match="no times"):
                device.report()
            assert device.memory.account.spent == 0
        else:  # nowhere, which nobody may learn
            assert len(device.report()) == len(devices_of(pair, 1)[0].report())
    assert pair.engine.collection(id)["state"] == "open"


@pytest.mark.parametrize(
    ("labels", "depth", "match"),
    [
        (2, 2, "must be the 3 windows of the terms, got 2"),
        (4, 2, "got 4"),
        (3, 1, "depth of the query's raster"),
    ],
)
def test_the_helper_answers_about_the_windows_of_the_terms_alone(pair_of, labels, depth, match) -> None:
    pair = pair_of()
    id = pair.open(**SPEC)
    encoding = LabelEncoding(NodeEncoding(PrefixTree.uniform(depth, 0)), labels)
    query = AskedQuery("mine", encoding, Fraction(1)).encode()
    with pytest.raises(PromiseError, match=match):
        pair.helper.answer(id, 1, query)
    task_of(pair)
    with pytest.raises(PromiseError, match="got None"):  # of one map there are no labels
        pair.helper.answer(pair.terms.identifier, 1, query)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"windows": LONG}, "2098-12 is not: create it then"),
        ({"method": "laplace"}, "by multiscale, got operators and laplace"),
        ({"options": {"windows_per_user": 2}}, "need trust central"),
        ({"tiling": "quadtree:7"}, "tiling with 3 windows has 65536 sites: expected at most 16384"),
        ({"tiling": "quadtree:6"}, "coarser tiling, fewer windows or a smaller scale"),
        ({"windows": {"by": "hour", "zone": "Europe/Atlantis"}}, "zone"),
    ],
)
def test_a_series_that_cannot_be_collected_is_refused_in_a_line(pair_of, changes, match) -> None:
    pair = pair_of()
    with pytest.raises(InputError, match=match) as refused:
        pair.open(**SPEC | {"epsilon": "2"} | changes)
    assert "\n" not in str(refused.value)
