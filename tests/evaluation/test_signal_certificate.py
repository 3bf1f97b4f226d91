"""Certificates: of other users and later days, for the reports they are about, and for no others."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from mapveil.attacks.signal_adversary import BlindGuess
from mapveil.attacks.signal_neighbours import SignalNeighbours
from mapveil.evaluation.certificate_file import read_certificate, write_certificate
from mapveil.evaluation.signal_certificate import (
    LATER_DAYS,
    OTHER_USERS,
    SignalCertificate,
    certified,
    certify,
)
from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.export.privatizer_file import fingerprint
from mapveil.obfuscation.privatize import fit_privatizer
from mapveil.obfuscation.privatized_file import Provenance
from mapveil.obfuscation.privatizers.gaussian_noise import GaussianNoise
from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer
from mapveil.privacy.claim import Assumes, Quantity
from mapveil_client.errors import InputError

DAY_US = 86_400_000_000
ADVERSARIES = (BlindGuess(), SignalNeighbours(counts=(1, 10), judged=100))


def rows_of(days: int, per_day: int = 120) -> Measurements:
    """Four users, each around a place of its own."""
    draw = np.random.default_rng(2)
    count = days * per_day
    users = np.arange(count) % 4
    place = [35.5, 24.0] + 0.01 * np.column_stack([users // 2, users % 2]) + draw.normal(0, 1e-3, (count, 2))
    return Measurements(
        np.column_stack([place, -80 + draw.normal(0, 3, count)]),
        ("lat", "lon", "rss_dbm"),
        users,
        ("a", "b", "c", "d"),
        np.repeat(np.arange(days) + 20_000, per_day) * DAY_US,
        np.arange(count),
    )


@pytest.fixture(scope="module")
def table() -> Measurements:
    return rows_of(6)


@pytest.fixture(scope="module")
def noise(table: Measurements) -> FittedPrivatizer:
    return GaussianNoise(sigma=0.05).fit(table, rng=1)


@pytest.fixture(scope="module")
def certificate(noise: FittedPrivatizer, table: Measurements) -> SignalCertificate:
    return certify(noise, table, adversaries=ADVERSARIES, rng=1)


def test_it_judges_other_users_and_later_days(
    certificate: SignalCertificate, noise: FittedPrivatizer
) -> None:
    others, later = certificate.judged
    assert (others.part, later.part) == (OTHER_USERS, LATER_DAYS)
    # Little noise: users are named, and places found, days later; of a stranger the name is not known.
    assert later.user_error is not None
    assert later.user_error < 0.05
    assert later.location_error_m < 0.5 * later.blind_location_error_m
    assert others.user_error is None
    assert certificate.fingerprint == fingerprint(noise)
    assert (certificate.first, certificate.last) == (date(2024, 10, 4), date(2024, 10, 9))
    assert math.isinf(certificate.worst_epsilon)


def test_it_says_on_how_many_users_it_rests(certificate: SignalCertificate, noise: FittedPrivatizer) -> None:
    others, later = certificate.judged
    assert (certificate.labelled_users, others.users, later.users, later.user_error_users) == (3, 1, 3, 3)
    assert certificate.labelled_reports is not None
    assert certificate.labelled_reports > 3 * later.users
    assert others.user_error_interval is None
    assert later.user_error is not None
    assert later.user_error_interval is not None
    low, high = later.user_error_interval
    assert low <= later.user_error < high
    assert high > 0.5  # of three users little is known
    own = Provenance(certificate.fingerprint, certificate.first, certificate.last)
    full = replace(certificate, adversaries=("blind",))
    assert f"of 3 users; 95 % interval by user {low:.3f} to {high:.3f}" in (
        certified(noise.guarantee(), full, own).in_words()
    )


def test_no_adversary_does_worse_than_without_reports(table: Measurements) -> None:
    drowned = GaussianNoise(sigma=50.0).fit(table, rng=1)
    for each in certify(drowned, table, adversaries=ADVERSARIES, rng=1).judged:
        assert each.location_error_m <= each.blind_location_error_m
        assert (
            each.user_error is None
            or each.blind_user_error is None
            or each.user_error <= each.blind_user_error
        )


def test_less_work_of_an_adversary_is_said_and_stated_for_no_reports(
    certificate: SignalCertificate, noise: FittedPrivatizer
) -> None:
    assert certificate.adversaries == ("blind", f"{ADVERSARIES[1].label} (not its full work)")
    own = Provenance(certificate.fingerprint, certificate.first, certificate.last)
    assert "not given its full work" in str(certificate.about(own))
    stated = certified(noise.guarantee(), certificate, own)
    assert Assumes.NOT_CERTIFIED in {each.kind for each in stated.assumptions}
    assert not stated.measured


def test_users_who_do_not_return_are_not_taken_for_hidden(noise: FittedPrivatizer) -> None:
    table = rows_of(6)
    # Every user of the last days is a new one.
    users = table.users + 4 * (np.arange(len(table)) >= 4 * 120)
    again = replace(table, users=users, user_ids=tuple("abcdefgh"))
    _, later = certify(noise, again, adversaries=ADVERSARIES, rng=1).judged
    assert later.user_error is None
    assert later.location_error_m > 0


def test_it_comes_back_from_its_file(certificate: SignalCertificate, tmp_path: Path) -> None:
    write_certificate(certificate, tmp_path / "c.json")
    assert read_certificate(tmp_path / "c.json") == certificate
    (tmp_path / "d.json").write_text("{}")
    for name in ("d.json", "none.json"):
        with pytest.raises(InputError, match="cannot be read as a certificate"):
            read_certificate(tmp_path / name)


def test_it_is_stated_for_its_own_reports_only(
    certificate: SignalCertificate, noise: FittedPrivatizer, table: Measurements
) -> None:
    made, certificate = noise.guarantee(), replace(certificate, adversaries=("blind", "trees"))
    own = Provenance(certificate.fingerprint, certificate.first, certificate.last)
    stated = certified(made, certificate, own)
    figures = [each for each in stated.measured if each.quantity is Quantity.PLACE_ERROR]
    assert [each.value for each in figures] == [each.location_error_m for each in certificate.judged]
    assert (
        "later days of 2024-10-04 to 2024-10-09 (rows on 6 of these days; 0.0% of the reports are empty)"
        in stated.in_words()
    )
    for given, reason in (
        (None, "do not say which privatizer"),
        (own._replace(fingerprint="0" * 64), "of another privatizer"),
        (own._replace(last=date(2024, 10, 10)), "the certificate of 2024-10-04 to 2024-10-09"),
        (own._replace(kept=("user_id",)), "the reports keep 'user_id' as it was"),
        (own._replace(empty=0.97), "97.0% of the reports are empty"),
    ):
        assert reason in str(certificate.about(given))
        nothing = certified(made, certificate, given)
        assert not [each for each in nothing.measured if each.quantity is Quantity.PLACE_ERROR]
        assert Assumes.NOT_CERTIFIED in {each.kind for each in nothing.assumptions}
    # What is proved holds whatever was measured.
    proved = LocalGaussian(epsilon=1).fit(table, rng=1).guarantee()
    assert certified(proved, None, None) == proved


def test_a_table_without_days_or_users_is_refused(noise: FittedPrivatizer, table: Measurements) -> None:
    with pytest.raises(InputError, match="no times; a certificate is about later days"):
        certify(noise, replace(table, time=None), adversaries=ADVERSARIES, rng=1)
    with pytest.raises(InputError, match="4 users on 1 days"):
        certify(noise, rows_of(1), adversaries=ADVERSARIES, rng=1)


def test_stray_rows_do_not_stretch_the_period(noise: FittedPrivatizer, table: Measurements) -> None:
    assert table.time is not None
    time = table.time.copy()
    time[[0, -1]] = 0, 24_473 * DAY_US  # 1970 and 2037
    made = certify(noise, replace(table, time=time), adversaries=ADVERSARIES, rng=1)
    assert (made.first, made.last) == (date(2024, 10, 4), date(2024, 10, 9))
    assert (made.days, made.left_out) == (6, 2)
    time[:20] = 0  # too many to be strays
    with pytest.raises(InputError, match="rows on 8 of the 24474 days from 1970-01-01 to 2037-01-02"):
        certify(noise, replace(table, time=time), adversaries=ADVERSARIES, rng=1)


def test_too_few_rows_are_named(noise: FittedPrivatizer) -> None:
    with pytest.raises(InputError, match=r"16 rows; expected at least 90: 30 reports of labelled users, of"):
        certify(noise, rows_of(2, per_day=8), adversaries=ADVERSARIES, rng=1)
    with pytest.raises(
        InputError, match="24 reports of other users among 96 rows of 4 users on 2 days; expected"
    ):
        certify(noise, rows_of(2, per_day=48), adversaries=ADVERSARIES, rng=1)


def test_rows_unlike_the_pilot_are_not_certified(table: Measurements) -> None:
    elsewhere = table.with_rows(table.rows + np.array([5.0, 5.0, 0.0]))
    fitted = fit_privatizer(table, "codebook", {"size": 8}, rng=1)
    with pytest.raises(InputError, match="of the reports are empty: their rows are unlike the pilot"):
        certify(fitted, elsewhere, adversaries=ADVERSARIES, rng=1)


def test_places_beyond_the_pilot_are_not_all_one(noise: FittedPrivatizer, table: Measurements) -> None:
    """Brought into the pilot's range they would be guessed without an error."""
    elsewhere = table.with_rows(table.rows + np.array([5.0, 5.0, 0.0]))
    for each in certify(noise, elsewhere, adversaries=ADVERSARIES, rng=1).judged:
        assert each.location_error_m > 100
    # One place at latitude 0 adds no kilometres to the mean.
    rows = table.rows.copy()
    rows[::240, :2] = 0
    for each in certify(noise, table.with_rows(rows), adversaries=ADVERSARIES, rng=1).judged:
        assert each.blind_location_error_m < 2_000
