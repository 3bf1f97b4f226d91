"""A session splits its budget exactly, charges each release to the account, and refuses beyond."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.privacy.charges import Charges
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError, PromiseError

TILING = mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=3)
COUNTS = mv.Counts(np.full(TILING.size, 9), TILING)


@pytest.fixture
def account(tmp_path: Path) -> mv.Account:
    return mv.Account.open("city", budget=3, ledger=tmp_path / "ledger.sqlite")


def test_an_even_split_is_exact_and_refuses_beyond(account: mv.Account) -> None:
    session = mv.Session(COUNTS, epsilon=1, account=account, split_evenly_over=3)
    for at in range(3):
        assert session.remaining == 1 - Fraction(at, 3)
        assert session.release().guarantee.epsilon == Fraction(1, 3)
    assert (session.remaining, account.spent) == (0, 1)
    with pytest.raises(BudgetExceeded, match="used up"):
        session.release()
    assert (account.spent, len(account.entries)) == (1, 3)


@given(st.lists(st.fractions(Fraction(1, 100), 100), min_size=1, max_size=6), st.fractions(Fraction(1, 9), 3))
def test_weighted_shares_add_up_to_the_budget(weights: list[Fraction], epsilon: Fraction) -> None:
    session = mv.Session(COUNTS, epsilon, account=None, split_by_weights=weights)
    shares = [session.release(method="laplace").guarantee.epsilon for _ in weights]
    assert sum(share or 0 for share in shares) == epsilon
    assert shares[0] == epsilon * weights[0] / sum(weights)
    assert session.remaining == 0


def test_without_a_split_each_release_names_its_epsilon(account: mv.Account) -> None:
    session = mv.Session(COUNTS, epsilon=2, account=account)
    session.release(epsilon="1.5", method="laplace")
    with pytest.raises(BudgetExceeded, match=r"1 asked, 0.5 left in the session"):
        session.release(epsilon=1)
    with pytest.raises(ParameterError, match="epsilon is required"):
        session.release()
    assert (session.remaining, account.spent) == (Fraction(1, 2), Fraction(3, 2))


def test_threads_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every thread has read the budget before any release ends, unless releases wait for each other."""
    started = threading.Barrier(3)

    def slow(*given: Any, **named: Any) -> mv.DensityMap:
        with contextlib.suppress(threading.BrokenBarrierError):
            started.wait(timeout=0.5)
        return mv.release(*given, **named)

    monkeypatch.setattr("mapveil.mechanisms.session.release", slow)
    session = mv.Session(COUNTS, epsilon=1, account=None)
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(session.release, epsilon=1, method="laplace") for _ in range(3)]
    assert sorted(type(run.exception()).__name__ for run in runs) == ["BudgetExceeded"] * 2 + ["NoneType"]
    assert session.remaining == 0


def test_a_budget_that_the_account_does_not_allow_is_refused_at_once(account: mv.Account) -> None:
    with pytest.raises(BudgetExceeded):
        mv.Session(COUNTS, epsilon=4, account=account, split_evenly_over=4)
    assert account.entries == ()


@pytest.mark.parametrize("named", [True, False])
def test_a_refused_or_seeded_release_leaves_its_share(account: mv.Account, named: bool) -> None:
    session = mv.Session(COUNTS, epsilon=2, account=account if named else None, split_evenly_over=2)
    with pytest.raises(InputError):
        session.release(method="hierarchical", options={"level": 99})
    assert session.release(rng=1).guarantee.seeded
    assert (session.remaining, account.spent) == (2, 0)


def test_a_release_that_fails_after_its_charge_takes_its_share(account: mv.Account) -> None:
    few = mv.Points.from_arrays([1], [-73.95], [40.75])
    session = mv.Session(few, epsilon=2, account=account, split_evenly_over=2)
    with pytest.raises(PromiseError, match="no region"):
        session.release("quadtree:4")
    assert session.remaining == 1
    assert 0 < account.spent < Fraction(1, 5)


def test_an_error_with_a_note_of_somebody_else_leaves_the_share(
    account: mv.Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, epsilon: Fraction) -> None:
        error = OSError("the disk is away")
        error.add_note("plug it in")
        raise error

    session = mv.Session(COUNTS, epsilon=2, account=account, split_evenly_over=2)
    with monkeypatch.context() as patched:
        patched.setattr(Charges, "check", fail)
        with pytest.raises(OSError, match="away"):
            session.release()
    assert (session.remaining, account.spent) == (2, 0)
    assert session.release().guarantee.epsilon == 1


@pytest.mark.parametrize("budget", [1, 3])
def test_a_session_resumes_its_first_release_only(account: mv.Account, budget: int) -> None:
    mv.Ledger(account.ledger).set_budget(account.name, budget)
    first = mv.release(COUNTS, epsilon="1/2", account=replace(account, outputs=["map.tif"]))
    again = mv.Session(COUNTS, epsilon=1, account=replace(account, resume=True), split_evenly_over=2)
    assert again.release().values.tolist() == first.values.tolist()
    assert account.spent == Fraction(1, 2)
    assert again.release().values.tolist() != first.values.tolist()
    assert (again.remaining, account.spent) == (0, 1)


def test_a_resumed_session_spends_no_more_than_the_account_has(account: mv.Account) -> None:
    mv.Ledger(account.ledger).set_budget(account.name, "0.75")
    mv.release(COUNTS, epsilon="1/2", account=replace(account, outputs=["map.tif"]))
    again = mv.Session(COUNTS, epsilon=1, account=replace(account, resume=True), split_evenly_over=2)
    again.release()
    with pytest.raises(BudgetExceeded, match=r"0.5 of 0.75 spent"):
        again.release()
    assert account.spent == Fraction(1, 2)


@pytest.mark.parametrize("named", [True, False])
def test_a_large_total_is_accepted_expressly(account: mv.Account, named: bool) -> None:
    own = account if named else None
    with pytest.raises(ParameterError, match="accept_large_epsilon"):
        mv.Session(COUNTS, epsilon=1000, account=own, split_evenly_over=1000)
    assert account.entries == ()
    session = mv.Session(COUNTS, epsilon=60, account=None, split_evenly_over=2, accept_large_epsilon=True)
    assert session.release(method="laplace").guarantee.epsilon == 30


@pytest.mark.parametrize(
    "split",
    [{"split_evenly_over": 0}, {"split_by_weights": []}, {"split_by_weights": [1, 0]},
     {"split_evenly_over": 2, "split_by_weights": [1, 1]}],
)  # fmt: skip
def test_a_split_that_is_none_is_refused(account: mv.Account, split: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        mv.Session(COUNTS, epsilon=1, account=account, **split)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="left out"):
        mv.Session(COUNTS, epsilon=1, account=account, split_evenly_over=2).release(epsilon=1)
    assert account.entries == ()
