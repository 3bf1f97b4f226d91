"""``mapveil ledger head`` and ``ledger check``: a published head, and what is found against it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import mapveil as mv
from mapveil.privacy.ledger import Ledger, SpendId
from mapveil.privacy.ledger_records import default_ledger_path
from mapveil_client.errors import BudgetExceeded

Call = Callable[..., Any]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "own.sqlite")


def spend(ledger: Ledger) -> SpendId:
    people = ledger.recognise(mv.Points.from_arrays(["ann", "bob"], [-73.9, -74.0], [40.7, 40.8]))
    return ledger.spend(people, "1/3", method="emd")


def test_a_head_is_published_and_checked(mapveil: Call, ledger: Ledger, tmp_path: Path) -> None:
    given = ("ledger", "--ledger", ledger.path)
    spend(ledger)
    published = tmp_path / "head.json"
    made = mapveil(*given, "head")
    assert made.code == 0
    published.write_text(made.out)
    key = ledger.path.with_name("own.sqlite.key")
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_text().strip() not in made.out
    later = spend(ledger)
    checked = mapveil(*given, "check", "--head", published)
    assert checked.code == 0
    record = json.loads(made.out)
    assert (record["chain"], mapveil(*given, "check").code) == ("ledger", 0)
    assert f"line {record['count']} is that of the head" in checked.out
    published.write_text(mapveil(*given, "head").out)
    count = json.loads(published.read_text())["count"]
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM spends WHERE id = ?", (later,))
        connection.execute("DELETE FROM chain WHERE number = ?", (count,))
        for _, sql in triggers:
            connection.execute(sql)
    assert mapveil(*given, "check").code == 0  # shorter, and whole
    cut = mapveil(*given, "check", "--head", published)
    assert cut.code == 1
    assert "lines were taken off the end" in cut.err


def test_a_changed_ledger_has_no_head(mapveil: Call, ledger: Ledger, tmp_path: Path) -> None:
    spend(ledger)
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        connection.execute("UPDATE accounts SET budget = '100'")
    for command in ("check", "head"):
        outcome = mapveil("ledger", "--ledger", ledger.path, command)
        assert outcome.code == 1
        assert outcome.out == ""
        assert "changed by another program" in outcome.err
    assert not ledger.path.with_name("own.sqlite.key").exists()


def test_a_check_makes_no_ledger(mapveil: Call, tmp_path: Path) -> None:
    for command in ("check", "head"):
        outcome = mapveil("ledger", "--ledger", tmp_path / "none.sqlite", command)
        assert outcome.code == 2
        assert "no such file" in outcome.err
    assert not (tmp_path / "none.sqlite").exists()
    outcome = mapveil(
        "ledger", "--ledger", tmp_path / "none.sqlite", "check", "--head", tmp_path / "none.json"
    )
    assert outcome.code == 2


def test_joining_accounts_says_what_changed(mapveil: Call, ledger: Ledger) -> None:
    given = ("ledger", "--ledger", ledger.path)
    for name, budget, owner in (("checkins", 1, "A. Nowak"), ("roomy", 9, "")):
        ledger.recognise(None, dataset=name)
        ledger.set_budget(name, budget, owner=owner)
        ledger.spend(name, "0.1", method="laplace")
    said = mapveil(*given, "name", "checkins", "roomy").out
    assert said.splitlines() == [
        "joined account checkins: 0.1 of 1 spent per user, 0.9 left",
        "    owner: A. Nowak",
        "joined account roomy: 0.1 of 9 spent per user, 8.9 left",
        "the smaller budget holds for both now, with its reason:",
        "account checkins, roomy: 0.2 of 1 spent per user, 0.8 left",
        "    owner: A. Nowak",
    ]


def test_a_read_makes_no_ledger(mapveil: Call, tmp_path: Path) -> None:
    outcome = mapveil("ledger", "--ledger", tmp_path / "folder" / "none.sqlite")
    assert outcome.code == 2
    assert "there is no ledger at this path" in outcome.err
    assert not (tmp_path / "folder").exists()
    shown = mapveil("ledger", "--json")
    assert (shown.code, json.loads(shown.out)["entries"]) == (0, [])
    assert not default_ledger_path().exists()


@pytest.mark.parametrize(
    ("forgery", "code"),
    [
        ("UPDATE spends SET epsilon = '1/300'", 0),
        ("UPDATE spends SET parameters = 'x'", 1),
        ("UPDATE spends SET time = 'x'", 1),
        ("UPDATE spends SET outputs = x'ff'", 1),
        ("UPDATE chain SET digest = 'x'", 0),
    ],
)
def test_a_listing_of_a_changed_ledger_says_so(
    mapveil: Call, ledger: Ledger, forgery: str, code: int
) -> None:
    spend(ledger)
    assert "changed" not in mapveil("ledger", "--ledger", ledger.path).err
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        for name in ("spends_are_final", "chain_is_final"):
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(forgery)
    shown = mapveil("ledger", "--ledger", ledger.path, "--json")
    assert (shown.code, "another program changed the ledger" in shown.err) == (code, True)
    if not code:
        assert json.loads(shown.out)["problems"]


def test_a_budget_has_an_owner_and_a_reason_before_the_first_release(mapveil: Call, ledger: Ledger) -> None:
    given = ("ledger", "--ledger", ledger.path)
    whose = ("--owner", "A. Nowak", "--reason", "ticket 481")
    assert mapveil(*given, "budget", "weekly", "0.3", *whose).out == (
        "budget of weekly: 0.3 (a new account: --dataset charges it)\n"
    )
    assert mapveil(*given, "budget", "weekly", "0.4").out == "budget of weekly: 0.4\n"
    mapveil(*given, "budget", "default", "2", "--owner", "C. Diaz")
    assert mapveil(*given).out.splitlines()[1:] == [
        "default budget: 2",
        "    owner: C. Diaz",
        "account weekly: 0 of 0.4 spent per user, 0.4 left",
        "    owner: A. Nowak",
        "    reason for the budget: ticket 481",
        "nothing was spent yet",
    ]


def test_a_listing_groups_spends_under_every_name_of_their_account(mapveil: Call, ledger: Ledger) -> None:
    given = ("ledger", "--ledger", ledger.path)
    for name in ("weekly", "bergen"):
        ledger.recognise(None, dataset=name)
    share = Fraction(164926744166, 2**40)
    first = ledger.spend("bergen", share, method="multiscale")
    second = ledger.spend("weekly", "0.5", method="laplace")
    mapveil(*given, "name", "weekly", "checkins")
    shown = mapveil(*given).out.splitlines()[2:]
    assert shown[0] == "account weekly, checkins: 0.5 of 3 spent per user, 2.5 left"
    assert shown[2] == "account bergen: about 0.15 of 3 spent per user, about 2.85 left"
    assert second in shown[1]
    assert f"{first}  epsilon about 0.15  multiscale" in shown[3]
    record = json.loads(mapveil(*given, "--json").out)
    assert record["accounts"][0]["names"] == ["weekly", "checkins"]
    assert [Fraction(entry["epsilon"]) for entry in record["entries"]] == [share, Fraction(1, 2)]


def test_few_digits_and_negative_budgets_are_refused_by_their_names(mapveil: Call, ledger: Ledger) -> None:
    given = ("ledger", "--ledger", ledger.path)
    spend(ledger)
    identity = ledger.accounts()[0].datasets[0]
    assert "4 are too short" in mapveil(*given, "--dataset", identity[:4]).err
    cut = mapveil(*given, "budget", identity[:3], "4")
    assert (cut.code, "by at least 6 of them" in cut.err) == (2, True)
    refused = mapveil(*given, "budget", "checkins", "-1")
    assert (refused.code, "budget must be" in refused.err) == (2, True)
    assert len(ledger.accounts()) == 1
    with pytest.raises(BudgetExceeded, match="the owner of the budget decides"):
        ledger.spend(identity, 4, method="emd")


def test_head_and_check_have_json(mapveil: Call, ledger: Ledger, tmp_path: Path) -> None:
    given = ("ledger", "--ledger", ledger.path)
    spend(ledger)
    (tmp_path / "head.json").write_text(mapveil(*given, "head", "--json").out)
    record = json.loads(mapveil(*given, "check", "--json", "--head", tmp_path / "head.json").out)
    assert record["head"] == record["lines"]
