"""A request that is refused, for whatever reason, leaves the ledger's file as it was, and says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil.analysis.trips import Trips
from mapveil.privacy.answers import Answers
from mapveil.privacy.ledger import Ledger
from mapveil_client.errors import BudgetExceeded, MapveilError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=3)


def table(first: int, last: int, source: str = "arrays", **more: Any) -> mv.Points:
    at = np.linspace(0.0, 0.1, last - first)
    users = [f"person-{number}" for number in range(first, last)]
    return mv.Points.from_arrays(users, **{"lon": -74 + at, "lat": 40.7 + at, **more}, source=source)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two accounts: that of 60 people is exhausted, and that of 60 others has 2 of 3 left."""
    made = Ledger(tmp_path / "ledger.sqlite")
    made.spend(made.recognise(table(0, 60), dataset="spent"), 3, method="laplace")
    made.spend(made.recognise(table(100, 160), dataset="roomy"), 1, method="laplace")
    return made


Release = Callable[[Ledger], Any]


def released(data: Any, epsilon: object = 1, tiling: Any = TILING, **given: Any) -> Release:
    names = {"name", "outputs", "resume", "other_people"} & set(given)
    account = {name: given.pop(name) for name in names}
    return lambda ledger: mv.release(
        data, tiling, epsilon=epsilon, account=mv.Account(ledger=ledger, **account), **given
    )


def flows(ledger: Ledger) -> Any:
    points, ends = table(300, 360), TILING.centres()
    trips = Trips(np.arange(60), *(side[:60] for side in (*ends, *ends)), points=points)
    return mv.flows(trips, TILING, epsilon=4, account=mv.Account(ledger=ledger))


NEW, KNOWN, OTHERS = table(300, 360, "june.csv"), table(100, 160), table(120, 200)

REFUSED: dict[str, tuple[Release, str]] = {
    "budget of a known account": (released(table(0, 60)), "3 of 3 spent, 0 left"),
    "budget of a new account": (released(NEW, 4), "a new account: epsilon 4 asked, 0 of 3 spent"),
    "budget of a new name": (released(NEW, 4, name="june"), "account june: epsilon 4 asked"),
    "budget, of other people": (
        released(OTHERS, 4, name="bergen", other_people="numbered in each city"),
        "account bergen: epsilon 4 asked",
    ),
    "budget, joining": (released(OTHERS, 3, name="roomy"), "account roomy: epsilon 3 asked, 1 of 3 spent"),
    "budget of a new name for a known account": (released(KNOWN, 3, name="june"), "account roomy"),
    "budget, distributed": (released(NEW, 4, trust="distributed"), "0 of 3 spent"),
    "budget, local": (released(NEW, 4, trust="local"), "0 of 3 spent"),
    "budget, without a region": (released(NEW, 4, "quadtree:4"), "0 of 3 spent"),
    "budget of flows": (flows, "a new account"),
    "budget of neighbours": (
        lambda ledger: mv.neighbours(NEW, TILING, k=3, epsilon=4, account=mv.Account(ledger=ledger)),
        "a new account",
    ),
    "budget of a session": (
        lambda ledger: mv.Session(NEW, 4, account=mv.Account("june", ledger)),
        "account june",
    ),
    "people in common": (released(OTHERS), "has people in common with account roomy"),
    "people in common, named": (released(OTHERS, name="june"), "has people in common with account roomy"),
    "nothing to state": (released(NEW, name="june", other_people="a reason"), "nothing to state"),
    "a statement without a name": (
        released(NEW, other_people="a reason"),
        "dataset is required.*such as dataset=june",
    ),
    "a statement without a reason": (released(OTHERS, name="june", other_people=" "), "must be a reason"),
    "a name that could be an id": (released(NEW, name="abcdef"), "no account in the ledger"),
    "a name with blanks": (released(NEW, name=" june "), "name must be a word"),
    "nothing to resume": (released(NEW, resume=True), "nothing is unwritten"),
    "nothing to resume, named": (released(NEW, name="june", resume=True), "nothing is unwritten"),
    "a bad row": (
        released(table(300, 302, lat=[40.7, np.nan]), name="june"),
        "row 2, column 'lat' is 'nan'",
    ),
    "epsilon too large": (released(NEW, 21, name="june"), "epsilon must be at most 20"),
    "epsilon too small": (released(NEW, "1e-9", name="june"), "epsilon must be|too small|too wide|noise"),
    "no number": (released(NEW, float("nan"), name="june"), "epsilon must be a finite number"),
    "a format that holds no such cells": (
        released(NEW, 1, "h3:7", region=REGION, name="june", outputs=["map.tif"]),
        "GeoTIFF holds a raster",
    ),
    "no room for the answers": (released(NEW, name="june", outputs=["map.tif"]), "nothing is charged"),
    "too many neighbours": (
        lambda ledger: mv.neighbours(NEW, TILING, k=10**9, epsilon=1, account=mv.Account("june", ledger)),
        "k must be",
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_refused_request_changes_no_byte(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    release, said = REFUSED[reason]
    if reason == "no room for the answers":

        def full(self: Answers, path: Path, request: str) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Answers, "__init__", full)
    before, files = ledger.path.read_bytes(), sorted(ledger.path.parent.iterdir())
    with pytest.raises(MapveilError, match=said):
        release(ledger)
    assert ledger.path.read_bytes() == before
    assert sorted(ledger.path.parent.iterdir()) == files


def test_a_session_that_released_nothing_recorded_nobody(ledger: Ledger) -> None:
    before = ledger.path.read_bytes()
    session = mv.Session(NEW, 1, account=mv.Account("june", ledger))
    assert ledger.path.read_bytes() == before
    session.release(TILING, epsilon=1)
    assert ledger.account("june").spent == 1


def test_a_refusal_of_new_people_says_how_to_allow_it(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded) as caught:
        released(NEW, 4)(ledger)
    found = re.search(
        r"open an account with that budget: mapveil ledger --ledger (\S+) budget (\S+) (\S+), and release with "
        r"--dataset (\S+)$",
        str(caught.value),
    )
    assert found is not None, caught.value
    path, name, budget, dataset = found.groups()
    assert (Path(path), name, budget, dataset) == (ledger.path, "june", "4", "june")
    ledger.set_budget(name, budget)
    released(NEW, 4, name=dataset)(ledger)
    assert ledger.account("june").spent == 4


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("data/visits of june.csv.gz", "visits-of-june-csv"),
        ("arrays", "people"),
        ("20260601.parquet", "people-20260601"),
        ("default.csv", "people-default"),
        ("roomy.csv", "roomy-2"),
        ("*.parquet", "people"),
    ],
)
def test_a_proposed_name_can_be_given(ledger: Ledger, source: str, name: str) -> None:
    with pytest.raises(MapveilError, match=f"dataset={name} with other_people=REASON"):
        released(table(120, 200, source))(ledger)
    ledger.recognise(table(120, 200), dataset=name, other_people="a test")
    assert ledger.account(name).name == name


def test_people_whom_others_recorded_meanwhile_are_charged_to_that_account(ledger: Ledger) -> None:
    found = ledger.identify(NEW)
    ledger.spend(ledger.recognise(NEW, dataset="first"), 1, method="laplace")
    ledger.spend(found, "1/2", method="laplace")
    assert ledger.account("first").spent == Fraction(3, 2)
    assert len(ledger.accounts()) == 3


def test_people_whom_another_account_has_meanwhile_are_refused(ledger: Ledger) -> None:
    found = ledger.identify(NEW)
    ledger.recognise(table(310, 400), dataset="july")
    before = ledger.path.read_bytes()
    with pytest.raises(MapveilError, match="in common with account july"):
        ledger.spend(found, 1, method="laplace")
    ledger.recognise(table(600, 660), dataset="august")
    ledger.spend("august", 3, method="laplace")
    assert ledger.path.read_bytes() != before
    joining = ledger.identify(table(590, 660), dataset="august")
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExceeded, match="account august"):
        ledger.spend(joining, "1/10", method="laplace")
    assert ledger.path.read_bytes() == before
