"""Accounts in Python: named budgets, the user's own ledger by default, and data that no ledger recognises."""

from __future__ import annotations

import re
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines import user_sums
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil.privacy.claim import Assumes
from mapveil_client.contribution import Devices
from mapveil_client.errors import BudgetExceeded, CuratorWarning, ParameterError

CITY = mv.synthetic.city(users=300, seed=1)
TILING = mv.Quadtree(CITY.region, depth=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_a_named_budget_is_opened_once_and_never_changed(path: Path) -> None:
    account = mv.Account.open("city", budget=2, ledger=path, owner="A. Nowak", reason="ticket 481")
    (state,) = mv.Ledger(path).accounts()
    assert (state.name, state.owner, state.reason, state.budget) == ("city", "A. Nowak", "ticket 481", 2)
    assert mv.Account.open("city", ledger=path) == mv.Account.open("city", budget="2", ledger=path) == account
    mv.Ledger(path).name("city", "town")
    for name in ("city", "town"):
        with pytest.raises(ParameterError, match=f"mapveil ledger budget {name} 5"):
            mv.Account.open(name, budget=5, ledger=path)
    assert (account.budget, account.spent, account.remaining, account.entries) == (2, 0, 2, ())
    with pytest.raises(ParameterError, match="name is required"):
        _ = mv.Account(ledger=path).remaining


def test_every_release_is_charged_to_the_user_s_own_ledger_by_default() -> None:
    mv.release(CITY, TILING, epsilon=1, method="laplace")
    LaplaceHistogram(epsilon=1).release(CITY, TILING)
    mv.neighbours(CITY, TILING, epsilon="1/2")
    (account,) = mv.Ledger().accounts()
    assert account.spent == Fraction(5, 2)
    with pytest.raises(BudgetExceeded):
        LaplaceHistogram(epsilon=1).release(CITY, TILING)
    assert LaplaceHistogram(epsilon=1).release(CITY, TILING, rng=1).guarantee.account is None
    free = LaplaceHistogram(epsilon=1).release(CITY, TILING, account=None)
    assert ("account", "not accounted") in free.guarantee.promise.rows
    assert mv.Ledger().accounts()[0].spent == Fraction(5, 2)


def test_exact_sums_and_devices_need_a_named_account_or_none(path: Path) -> None:
    sums, devices = user_sums(CITY, TILING), Devices(np.arange(9))
    secure = mv.trust.SecureAggregation()
    account = mv.Account.open("city", budget=1, ledger=path)
    for source, mechanism in (
        (sums, LaplaceHistogram(epsilon="1/2")),
        (devices, LaplaceHistogram(epsilon="1/2", trust=secure)),
    ):
        with pytest.raises(ParameterError, match="account must be named, or None"):
            mechanism.release(source, TILING)
        assert mechanism.release(source, TILING, account=None).guarantee.account is None
        assert mechanism.release(source, TILING, account=account).guarantee.account is not None
    assert account.remaining == 0
    with pytest.raises(BudgetExceeded):
        LaplaceHistogram(epsilon="1/2").release(sums, TILING, account=account)
    assert mv.Ledger().entries() == ()


@pytest.mark.parametrize("account", ["weekly", 0, True])
def test_what_is_no_account_is_refused(account: Any) -> None:
    hint = 'mv.Account("NAME")' if account != "weekly" else "mv.Account('weekly')"
    for attempt in (
        lambda: mv.release(CITY, TILING, epsilon=1, account=account),
        lambda: LaplaceHistogram(epsilon=1).release(CITY, TILING, account=account),
        lambda: mv.Session(CITY, epsilon=1, account=account),
    ):
        with pytest.raises(ParameterError, match=re.escape(hint)):
            attempt()


def test_a_path_and_a_region_in_the_wrong_place_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"mv.read_points\('visits.parquet'\)"):
        mv.release(cast("Any", "visits.parquet"), TILING, epsilon=1)
    with pytest.raises(ParameterError, match="tiling must be a Tiling"):
        mv.release(CITY, cast("Any", CITY.region), epsilon=1)


def test_a_region_that_meets_the_earlier_ones_only_when_exchanged_is_hinted_at_before_the_charge(
    path: Path,
) -> None:
    porto, london = ([-8.7, 41.1, -8.5, 41.2], [-0.2, 51.4, 0.1, 51.6])
    lon, lat = np.tile([-8.6, 0.0], 20), np.tile([41.15, 51.5], 20)
    people = mv.Points.from_arrays([f"p{at}" for at in range(40)], lon, lat)

    def release(box: list[float], data: mv.Points = people) -> None:
        cells = mv.Quadtree(mv.Region.from_bbox(*box), depth=2)
        mv.release(data, cells, epsilon="1/10", account=mv.Account("people", path))

    exchanged = [porto[1], porto[0], porto[3], porto[2]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release(porto)
        release(london)
        charged = mv.Ledger(path).account("people").spent
        with pytest.raises(CuratorWarning, match=r"does not meet -8.7,41.1,-8.5,41.2.* exchanged"):
            release(exchanged)
    assert mv.Ledger(path).account("people").spent == charged  # it comes first
    declared = mv.Points.from_arrays(["a"], [-8.6], [41.15], region=mv.Region.from_bbox(*porto))
    with pytest.warns(CuratorWarning) as told:
        release(exchanged, declared)
    assert [word in str(each.message) for word, each in zip(("exchanged", "nobody"), told, strict=True)] == [
        True
    ] * 2


def test_a_guarantee_rests_on_the_statement_that_people_are_others(path: Path) -> None:
    def made(name: str, **more: Any) -> Any:
        account = mv.Account(name, path, **more)
        return mv.release(CITY, TILING, epsilon=1, account=account).guarantee

    assert Assumes.OTHER_PEOPLE() not in made("oslo").assumptions
    with pytest.warns(CuratorWarning, match="exactly the people of account oslo"):
        assert Assumes.OTHER_PEOPLE() in made("bergen", other_people="numbered in each city").assumptions
    for name in ("oslo", "bergen"):  # from now on both
        with pytest.warns(CuratorWarning, match="exactly the people of account"):
            guarantee = made(name)
        assert Assumes.OTHER_PEOPLE() in guarantee.assumptions
        assert "others than those of other budgets who have the same ids" in guarantee.promise.line
        assert mv.Guarantee.from_dict(guarantee.to_dict()) == guarantee
