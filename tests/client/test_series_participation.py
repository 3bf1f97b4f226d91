"""A device in a series: it draws its window before it looks where it is, once, and reports about no other."""

from __future__ import annotations

import numpy as np

from mapveil_client.device_locations import Whereabouts
from mapveil_client.local.message import read_reports
from mapveil_client.memory import DeviceMemory
from mapveil_client.vault import Vault
from tests.client.conduct import Unseen, saved, spent

KEY = bytes(range(32))
DAYS = {"every": "1d", "start": "2026-01-05", "until": "2026-01-09", "zone": None, "by": None, "values": []}
MONDAY = 1_767_571_200.0  # 2026-01-05, UTC
DAY = 86400.0


def series_terms(new_terms):
    return new_terms(trust="local", method="olh-h", options={}, windows=DAYS)


def everywhere(days) -> Whereabouts:
    """One place on each of some days, counted from Monday."""
    days = np.asarray(days, dtype=np.float64)
    return Whereabouts(
        np.full(days.size, -73.97), np.full(days.size, 40.76), times=MONDAY + DAY * (days + 0.5)
    )


def test_the_window_is_drawn_unlooked_and_kept_through_a_restart(new_terms, new_device, tmp_path) -> None:
    terms, vault = series_terms(new_terms), Vault(tmp_path / "v", KEY)
    device = new_device(terms, memory=DeviceMemory.open(vault), places=Unseen())
    drawn = device.part.window
    assert saved(vault.path).parts[terms.identifier].window == drawn
    said = [line.text for line in device.memory.log.lines if terms.series.names[drawn] in line.text]
    assert len(said) == 1
    assert "no other" in said[0]
    vault.close()
    again = new_device(
        terms,
        5,
        memory=DeviceMemory.open(vault),
        joined=False,
        places=everywhere(range(4)),
        now=lambda: MONDAY + 9 * DAY,
    )
    again.join()
    body = again.report()
    assert read_reports([body], terms.randomizer, 4).windows.tolist() == [drawn]
    assert again.report() == body
    assert spent(again) == 1


def test_a_device_waits_for_the_end_of_its_window(new_terms, new_device) -> None:
    terms, clock = series_terms(new_terms), [MONDAY]
    device = new_device(terms, places=everywhere(range(4)), now=lambda: clock[0])
    end = MONDAY + DAY * (device.part.window + 1)
    for now in (MONDAY, end - 1):
        clock[0] = now
        assert device.report() is None
        assert device.running
        assert spent(device) == 0
    clock[0] = end
    assert device.report() is not None
    assert spent(device) == 1


def test_without_a_place_in_the_window_a_device_leaves_uncharged(new_terms, new_device) -> None:
    terms = series_terms(new_terms)
    for index in range(4):
        first = new_device(terms, index, places=everywhere(range(4)), now=lambda: MONDAY + 9 * DAY)
        others = [day for day in range(4) if day != first.part.window]
        device = new_device(terms, index, places=everywhere(others), now=lambda: MONDAY + 9 * DAY)
        assert device.part.window == first.part.window
        assert device.report() is None
        assert not device.running
        assert spent(device) == 0


def test_all_windows_are_drawn_whatever_the_places(new_terms, new_device) -> None:
    terms = series_terms(new_terms)
    drawn = [new_device(terms, index, places=Unseen()).part.window for index in range(200)]
    assert np.bincount(drawn, minlength=4).min() > 25  # 50 expected, standard deviation 6.1
