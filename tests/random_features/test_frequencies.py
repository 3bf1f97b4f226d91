"""The store of a device's frequencies: drawn once, secret, and gone after one answer where that was wanted."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import stat
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from mapveil.random_features.frequencies import FrequencyStore, offsets, unit_frequencies
from mapveil.random_features.kernels import Gaussian
from mapveil.random_features.policy import Policy
from mapveil_client.errors import InputError, ParameterError, PromiseError
from mapveil_client.randomness.random import Randomness

POLICY = Policy((100.0, 100.0), features=3)


def test_a_million_devices_draw_what_one_does():
    many = unit_frequencies(50_000, 2, Gaussian(), 2, Randomness(1))
    assert many.shape == (2, 50_000, 2)
    assert stats.kstest(many.ravel(), stats.norm().cdf).pvalue > 1e-9
    # No device has a frequency of another.
    assert np.unique(many[0]).size == many[0].size


def test_the_same_frequencies_are_taken_every_time_and_after_a_restart(tmp_path):
    path = tmp_path / "frequencies"
    store = FrequencyStore(path, POLICY, jitter_m=20.0)
    first = store.take(3)
    assert first.units.shape == (2, 1, 3)
    assert first.offset.shape == (2, 1)
    assert first.offset.any()
    for again in (store.take(3), FrequencyStore(path, POLICY, jitter_m=20.0).take(3)):
        np.testing.assert_array_equal(again.units, first.units)
        np.testing.assert_array_equal(again.offset, first.offset)
    np.testing.assert_array_equal(store.take(1).units, first.units[:, :, :1])  # fewer are the first of them
    store.take(3).units[:] = 0  # a caller cannot change them
    np.testing.assert_array_equal(store.take(3).units, first.units)


def test_two_devices_draw_different_ones(tmp_path):
    first, second = (FrequencyStore(tmp_path / name, POLICY).take(3).units for name in "ab")
    assert not np.intersect1d(first, second).size
    seeded = [FrequencyStore(tmp_path / name, POLICY, rng=Randomness(1)).take(1).units for name in "cd"]
    np.testing.assert_array_equal(*seeded)


def test_more_than_the_policy_allows_are_not_there(tmp_path):
    store = FrequencyStore(tmp_path / "f", POLICY)
    for features in (0, 4):
        with pytest.raises(PromiseError, match="this device has 3"):
            store.take(features)


def test_one_shot_answers_once_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "f"
    store = FrequencyStore(path, POLICY, one_shot=True)
    content = path.read_bytes()
    taken = store.take(2)
    assert taken.units.tobytes() in content or taken.units[0].tobytes()[:8] in content
    left = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not any(left.find(number.tobytes()) >= 0 for number in taken.units.ravel())
    for again in (store, FrequencyStore(path, POLICY, one_shot=True), FrequencyStore(path, POLICY)):
        with pytest.raises(PromiseError, match="answers once, and has answered"):
            again.take(1)
    assert "discarded" in repr(store)


def test_a_refusal_uses_nothing_up(tmp_path):
    store = FrequencyStore(tmp_path / "f", POLICY, one_shot=True)
    with pytest.raises(PromiseError):
        store.take(9)
    assert store.take(1).units.size == 2


def test_the_file_is_its_owners_alone_and_appears_whole(tmp_path):
    path = tmp_path / "f"
    FrequencyStore(path, POLICY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["f"]


def test_a_second_process_keeps_the_firsts_draw(tmp_path):
    path = tmp_path / "f"
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda _: _racing(path), range(8)))
    for store in stores[1:]:
        np.testing.assert_array_equal(store.take(3).units, stores[0].take(3).units)


def _racing(path):
    # All see no file: each draws, and one of them is kept.
    return FrequencyStore(path, POLICY)


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[:-1],
        lambda b: b + b"x",
        lambda b: b[:10],
        lambda b: b"",
        lambda b: b.replace(b"mapveil", b"mapvale"),
    ],
)
def test_a_damaged_file_is_an_error_and_not_a_second_draw(tmp_path, damage):
    path = tmp_path / "f"
    FrequencyStore(path, POLICY)
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    with pytest.raises(InputError, match=r"not drawn again|another policy"):
        FrequencyStore(path, POLICY)
    assert path.read_bytes() == broken


def test_numbers_that_are_none_are_damage(tmp_path):
    path = tmp_path / "f"
    FrequencyStore(path, POLICY)
    content = path.read_bytes()
    path.write_bytes(content[:-8] + np.array([np.nan]).tobytes())
    with pytest.raises(InputError, match="is damaged"):
        FrequencyStore(path, POLICY)


@pytest.mark.parametrize("change", [{"kernel": "cauchy"}, {"features": 2}, {"bandwidth": (1.0, 1.0, 1.0)}])
def test_another_policy_does_not_draw_a_second_set(tmp_path, change):
    path = tmp_path / "f"
    FrequencyStore(path, POLICY)
    with pytest.raises(InputError, match="another policy"):
        FrequencyStore(path, dataclasses.replace(POLICY, **change))
    FrequencyStore(path, dataclasses.replace(POLICY, bands=5))  # what is drawn does not depend on it


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InputError, match="cannot be kept"):
        FrequencyStore(tmp_path / "no" / "f", POLICY)
    with pytest.raises(InputError, match="cannot be read"):
        FrequencyStore(tmp_path, POLICY)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be kept"):
        FrequencyStore(tmp_path / "f", POLICY)


def test_no_frequency_reaches_a_repr_or_a_pickle(tmp_path):
    store = FrequencyStore(tmp_path / "f", POLICY, rng=Randomness(1))
    units = store.take(3).units.ravel()
    assert not any(f"{abs(unit):.4f}"[:5] in repr(store) for unit in units)
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="secret"):
            escape(store)


def test_offsets_have_their_spread_and_leave_time_alone():
    drawn = offsets(100_000, 3, 25.0, Randomness(2))
    assert stats.kstest(drawn[:2].ravel(), stats.norm(scale=25.0).cdf).pvalue > 1e-9
    assert stats.kstest(drawn[:2].ravel(), stats.norm(scale=32.5).cdf).pvalue < 1e-9
    assert not drawn[2].any()
    assert not offsets(10, 2, 0.0, Randomness(2)).any()


@pytest.mark.parametrize("jitter", [-1.0, np.nan, np.inf])
def test_a_senseless_jitter_is_refused(tmp_path, jitter):
    with pytest.raises(ParameterError, match="jitter_m"):
        FrequencyStore(tmp_path / "f", POLICY, jitter_m=jitter)
