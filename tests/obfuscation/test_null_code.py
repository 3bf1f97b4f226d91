"""Null codes, categories and last days: on the phone, in both kinds of file, and in a table of reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.export.phone import PhonePrivatizer, read_phone_privatizer
from mapveil.obfuscation.export.phone_export import export_privatizer
from mapveil.obfuscation.export.privatizer_file import decode_privatizer, encode_privatizer, fingerprint
from mapveil.obfuscation.privatize import fit_privatizer
from mapveil.obfuscation.privatizers.category import Category
from mapveil.obfuscation.privatizers.codebook import Codebook
from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian
from mapveil.obfuscation.privatizers.null_code import NULL_EPSILON, NULL_ERROR
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer
from mapveil.privacy.claim import Assumes
from mapveil_client.errors import BudgetExceeded, PromiseError
from mapveil_client.randomness.random import Randomness
from mapveil_client.report_account import ReportAccount, ReportBudget
from mapveil_client.vault import Vault

Tables = Callable[..., Measurements]
LAST = date(2026, 5, 31)
CELLS = np.array([60551.0, 60561.0, 60570.0])


def typed(table: Measurements, seed: int = 1) -> Measurements:
    """The table with its last feature turned into a cell's number."""
    rows = table.rows.copy()
    rows[:, -1] = CELLS[np.random.default_rng(seed).integers(3, size=len(rows))]
    return replace(table, rows=rows, categories=(rows.shape[1] - 1,))


@pytest.fixture(scope="module", params=[1, 3])
def fitted(request: pytest.FixtureRequest, made_up: Tables) -> FittedPrivatizer:
    code = Codebook(mu=0.6, size=20, sequence=request.param)
    return code.fit(typed(made_up(1_200)), rng=1, null_code=True, expires=LAST)


@pytest.fixture(scope="module")
def phone(fitted: FittedPrivatizer, tmp_path_factory: pytest.TempPathFactory) -> PhonePrivatizer:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    path = tmp_path_factory.mktemp("phone") / "a.onnx"
    export_privatizer(fitted, path)
    return read_phone_privatizer(path)


def test_rows_unlike_the_pilot_are_answered_empty(fitted: FittedPrivatizer, made_up: Tables) -> None:
    like = typed(made_up(1_200))
    rows = like.rows.copy()
    rows[:, :2] += 1.0  # a hundred kilometres away
    empty_like, empty_far = (
        np.isnan(fitted.reports(table, rng=Randomness(3))).all(axis=1).mean()
        for table in (like, like.with_rows(rows))
    )
    assert empty_far == pytest.approx(1 - NULL_ERROR, abs=0.01)
    assert empty_like < 0.06
    assert fitted.worst_epsilon == pytest.approx(
        fitted.privatizer.worst_epsilon(fitted.state, fitted.numeric[1])
        + fitted.privatizer.sequence
        + NULL_EPSILON
    )
    assert Assumes.NULL_CODE in {each.kind for each in fitted.guarantee().assumptions}


def test_the_phone_gives_empty_reports_and_categories_too(
    fitted: FittedPrivatizer, phone: PhonePrivatizer, made_up: Tables
) -> None:
    rows = typed(made_up(1_200, seed=4), seed=4).rows
    rows[:300, 0] += 1.0
    rows[300:600, 3] = 1e30  # beyond single precision once squared
    expected, found = (
        fitted.privatize(rows, rng=Randomness(5)),
        phone.privatize(rows, rng=Randomness(5), today=LAST),
    )
    assert np.isnan(found[300:600]).all(axis=1).mean() > 0.9
    same = np.isclose(found, expected, rtol=0, atol=1e-5 * fitted.normalisation.scale, equal_nan=True)
    assert (~same.all(axis=1)).mean() <= 0.005
    assert set(found[~np.isnan(found[:, -1]), -1]) <= set(CELLS)
    assert np.isnan(found).all(axis=1).any()


def test_a_category_is_never_a_number_between_two(made_up: Tables) -> None:
    table = typed(made_up(3_000))
    fitted = LocalGaussian(epsilon=10).fit(table, rng=1, category_epsilon="1/2")
    made = fitted.privatize(table.rows, rng=1)
    assert set(made[~np.isnan(made[:, -1]), -1]) <= set(CELLS)
    claimed = fitted.guarantee()
    assert claimed.epsilon == Fraction(21, 2)
    assert dict(claimed.shares) == {"numbers": 10, "categories": Fraction(1, 2)}
    # The account composes numbers as Gaussian noise, and adds categories up.
    cost = fitted.report_cost
    assert cost.ratio > 0
    assert cost.epsilon == Fraction(1, 2)


def test_the_response_has_the_law_of_its_epsilon() -> None:
    category = Category(0, CELLS, Fraction(1))
    drawn = np.arange(0, category.total, category.total // 200_000, dtype=np.int64)
    said = category.respond(np.full(len(drawn), CELLS[1]), drawn)
    shares = [float((said == value).mean()) for value in CELLS] + [float(np.isnan(said).mean())]
    assert shares[1] / shares[0] == pytest.approx(np.e, rel=1e-3)
    assert [shares[0]] * 2 == pytest.approx(shares[2:], abs=1e-4)
    # Exactly: every other value has weight B, the true one at most e B.
    assert category.weights.more / category.weights.less <= np.e
    unknown = category.respond(np.full(len(drawn), 5.0), drawn)
    assert float(np.isnan(unknown).mean()) == pytest.approx(shares[1], abs=1e-4)


def test_a_file_keeps_codes_categories_and_the_last_day(fitted: FittedPrivatizer, made_up: Tables) -> None:
    again = decode_privatizer(encode_privatizer(fitted), "a")
    rows = typed(made_up(300, seed=2)).rows
    np.testing.assert_array_equal(
        again.privatize(rows, rng=Randomness(2)), fitted.privatize(rows, rng=Randomness(2))
    )
    assert (again.expires, again.record()) == (LAST, fitted.record())
    assert fingerprint(again) == fingerprint(fitted)


def test_a_phone_refuses_after_the_last_day_and_beyond_its_account(made_up: Tables, tmp_path: Path) -> None:
    table = typed(made_up(600))
    fitted = fit_privatizer(table, LocalGaussian(epsilon=1), rng=1, days=30, today=date(2026, 5, 1))
    assert fitted.expires == LAST
    assert fitted.null_code is None  # a proof covers every row
    export_privatizer(fitted, tmp_path / "a.json")
    phone = read_phone_privatizer(tmp_path / "a.json")
    assert phone.fingerprint == fingerprint(fitted)
    account = ReportAccount(Vault(tmp_path / "account", bytes(32)), ReportBudget(Fraction(6)))
    most = account.budget.most(phone.report_cost)
    assert most is not None
    assert 0 < most < 600
    assert phone.privatize(table.rows[:most], account=account, today=LAST).shape == (most, 5)
    with pytest.raises(BudgetExceeded):
        phone.privatize(table.rows[0], account=account, today=LAST)
    with pytest.raises(PromiseError, match="expired on 2026-05-31, and today is 2026-06-01: nothing is sent"):
        phone.privatize(table.rows[0], today=date(2026, 6, 1))
    assert account.total.reports == most
