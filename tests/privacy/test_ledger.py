"""The ledger: never more than the budget, durable before it returns, and no one's file but ours."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.privacy import ledger_file
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.ledger_records import DEFAULT_BUDGET, default_ledger_path
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError, PromiseError


def test_a_spend_is_recorded_whole(ledger, checkins):
    spend = ledger.spend(
        checkins,
        "1/3",
        method="emd",
        parameters={"width": 20, "gamma": 0.5},
        tiling="quadtree:8",
        region="-74,40,-73,41",
        outputs=["/secret/folder/nyc.tif", Path("nyc.html")],
    )
    (entry,) = ledger.entries()
    assert entry.id == spend
    assert entry.epsilon == Fraction(1, 3)
    assert (entry.method, entry.tiling, entry.region) == ("emd", "quadtree:8", "-74,40,-73,41")
    assert entry.parameters == {"width": 20, "gamma": 0.5}
    assert entry.outputs == ("nyc.tif", "nyc.html")
    assert entry.status == "spent"
    assert abs(entry.time - datetime.now(UTC)) < timedelta(minutes=5)
    ledger.written(spend)
    assert ledger.entries()[0].status == "written"


def test_the_default_budget_holds_until_one_is_set(ledger, checkins, others):
    assert (
        ledger.default().budget
        == ledger.account(checkins).budget
        == ledger.remaining(checkins)
        == DEFAULT_BUDGET
    )
    ledger.set_budget(None, "0.5")
    ledger.set_budget(others, 7)
    assert ledger.account(checkins).budget == Fraction(1, 2)
    assert ledger.account(others).budget == 7


def test_a_refusal_says_what_was_asked_spent_left_and_how_to_go_on(ledger, checkins):
    ledger.spend(checkins, "2.5", method="laplace")
    with pytest.raises(BudgetExceeded) as caught:
        ledger.spend(checkins, 1, method="laplace")
    text = str(caught.value)
    identity = checkins[:12]
    assert "epsilon 1 asked, 2.5 of 3 spent, 0.5 left" in text
    assert text.startswith(f"{ledger.path}: account {identity}: ")
    assert text.endswith(f"raise the budget: mapveil ledger --ledger {ledger.path} budget {identity} 3.5")
    assert "\n" not in text
    assert len(ledger.entries()) == 1
    ledger.set_budget(identity, "3.5")
    ledger.spend(checkins, 1, method="laplace")
    assert ledger.remaining(checkins) == 0


def test_a_refusal_names_the_owner(ledger, checkins):
    ledger.set_budget(None, 3, owner="A. Nowak", reason="the policy of 2026")
    with pytest.raises(BudgetExceeded, match=r"raise the budget \(its owner is A. Nowak\): mapveil ledger"):
        ledger.spend(checkins, 4, method="laplace")
    ledger.set_budget(checkins, 3, owner="B. Iyer")
    with pytest.raises(BudgetExceeded, match=r"its owner is B. Iyer"):
        ledger.spend(checkins, 4, method="laplace")


@pytest.mark.parametrize(
    "epsilon", [Fraction(0.1), Fraction(1, 1 << 30), Fraction(1, 3), Fraction("1e-9"), Fraction(10**9)]
)
def test_amounts_are_exact_where_they_are_short(ledger, checkins, epsilon):
    ledger.set_budget(checkins, 10**9)
    ledger.spend(checkins, epsilon, method="laplace")
    spent = ledger.account(checkins).standing.partition(" of ")[0]
    exact = Fraction(spent.removeprefix("about "))
    assert (exact == epsilon) == ("about" not in spent)
    assert exact == pytest.approx(epsilon, rel=1e-5)
    assert len(spent) <= 17
    with pytest.raises(BudgetExceeded) as caught:
        ledger.spend(checkins, 10**9, method="laplace")
    assert Fraction(str(caught.value).rpartition(" ")[2]) == epsilon + 10**9  # to be typed, so exact


def test_a_budget_is_set_before_the_first_release(ledger, checkins):
    ledger.set_budget("weekly", 2, owner="A. Nowak", reason="ticket 481")
    ledger.set_budget(None, 4, owner="C. Diaz", reason="policy")
    assert ledger.account("weekly")[2:6] == ("user", "A. Nowak", "ticket 481", 2)
    assert ledger.account(checkins)[2:6] == ("user", "C. Diaz", "policy", 4)
    assert ledger.default() == (4, "C. Diaz", "policy")
    known = ledger.recognise(mv.Points.from_arrays(["new"], [-73.9], [40.7]), dataset="weekly")
    with pytest.raises(BudgetExceeded):
        ledger.spend(known, 3, method="laplace")
    for refused in ("abcdef", " "):
        with pytest.raises((InputError, ParameterError)):
            ledger.set_budget(refused, 2)


def test_what_was_written_is_listed_not_what_was_to_be(ledger, checkins):
    first, second = (
        ledger.spend(checkins, "1/10", method="laplace", outputs=["/full/a.tif", "b.csv"]) for _ in range(2)
    )
    ledger.written(first, ["/roomy/c.tif"])
    ledger.written(second)
    assert [entry.outputs for entry in ledger.entries()] == [("c.tif",), ("a.tif", "b.csv")]


def test_a_refused_dataset_stays_known_and_its_budget_can_be_raised(ledger, checkins):
    with pytest.raises(BudgetExceeded):
        ledger.spend(checkins, 4, method="laplace")
    assert ledger.entries() == ()
    ledger.set_budget(checkins[:12], 4)
    ledger.spend(checkins, 4, method="laplace")


def test_sums_are_exact(ledger, checkins):
    ledger.set_budget(checkins, 1)
    for _ in range(10):
        ledger.spend(checkins, 0.1, method="laplace")
    assert ledger.remaining(checkins) == 0
    with pytest.raises(BudgetExceeded):
        ledger.spend(checkins, Fraction(1, 10**12), method="laplace")


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), st.fractions(Fraction(1, 100), 2)), max_size=8))
def test_the_ledger_agrees_with_plain_addition(tmp_path_factory, wishes):
    ledger = Ledger(tmp_path_factory.mktemp("law") / "ledger.sqlite")
    spent = {"one": Fraction(0), "two": Fraction(0)}
    for name in spent:
        ledger.recognise(None, dataset=name)
    for dataset, epsilon in wishes:
        if spent[dataset] + epsilon <= DEFAULT_BUDGET:
            ledger.spend(dataset, epsilon, method="laplace")
            spent[dataset] += epsilon
        else:
            with pytest.raises(BudgetExceeded):
                ledger.spend(dataset, epsilon, method="laplace")
        assert ledger.account(dataset).spent == spent[dataset]
    assert sum(entry.epsilon for entry in ledger.entries()) == sum(spent.values())


def test_annulling_gives_back_and_leaves_the_line(ledger, checkins):
    spend = ledger.spend(checkins, 3, method="laplace")
    ledger.annul(spend, reason="the disk was full before anything was read")
    assert ledger.remaining(checkins) == 3
    (entry,) = ledger.entries(checkins)
    assert (entry.status, entry.reason) == ("annulled", "the disk was full before anything was read")
    assert ledger.account(checkins).releases == 0


def test_annulling_is_strict(ledger, checkins):
    spend = ledger.spend(checkins, 1, method="laplace")
    with pytest.raises(ParameterError, match="reason is required"):
        ledger.annul(spend, reason=" ")
    ledger.written(spend)
    with pytest.raises(InputError, match="is written already"):
        ledger.annul(spend, reason="I changed my mind")
    with pytest.raises(InputError, match="no spend has the id"):
        ledger.annul("0" * 16, reason="there is none")
    assert ledger.account(checkins).spent == 1


def test_lines_cannot_be_changed_by_another_program(ledger, checkins):
    spend = ledger.spend(checkins, 1, method="laplace")
    ledger.annul(spend, reason="a test")
    connection = sqlite3.connect(ledger.path)
    for statement in (
        "DELETE FROM spends",
        "UPDATE spends SET epsilon = '1/1000'",
        "DELETE FROM events",
        "UPDATE events SET kind = 'written'",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("epsilon", [0, -1, "x", float("nan")])
def test_an_impossible_epsilon_is_refused(ledger, epsilon, checkins):
    for attempt in (
        lambda: ledger.spend(checkins, epsilon, method="laplace"),
        lambda: ledger.set_budget(checkins, epsilon),
    ):
        with pytest.raises(ParameterError):
            attempt()
    assert ledger.entries() == ()


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_can_read_the_file(ledger):
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(ledger.path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in ledger.path.parent.iterdir()] == ["ledger.sqlite"]


def foreign(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE spends (id TEXT)")
    connection.close()


def of_schema(path, version):
    Ledger(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


def damaged(path):
    Ledger(path)
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.write_bytes(b""), "an empty file"),
        (lambda path: path.write_text("not a database at all, just text " * 40), "not a database"),
        (foreign, "another program's file"),
        (
            lambda path: of_schema(path, 99),
            "schema 99.*so nothing is released; use the Mapveil that wrote it",
        ),
        (lambda path: of_schema(path, 1), "schema 1;.*a new ledger would forget what is spent"),
        (damaged, "malformed|not a database"),
    ],
)
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path, spoil, says):
    path = tmp_path / "ledger.sqlite"
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=says) as caught:
        Ledger(path).recognise(None, dataset="checkins")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_a_ledger_that_vanished_is_not_replaced_by_an_empty_one(ledger, checkins):
    ledger.path.unlink()
    with pytest.raises(InputError, match="no such file"):
        ledger.spend(checkins, 1, method="laplace")
    assert not ledger.path.exists()


def test_a_place_where_no_file_can_be_made_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="no ledger can be made here"):
        Ledger(tmp_path / "file" / "ledger.sqlite")


def test_a_locked_ledger_means_no_release(ledger, monkeypatch, checkins):
    monkeypatch.setattr(ledger_file, "_WAIT_SECONDS", 0.1)
    holder = sqlite3.connect(ledger.path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(PromiseError, match="nothing is released"):
        ledger.spend(checkins, 1, method="laplace")
    holder.close()
    assert ledger.entries() == ()


def test_the_default_path_follows_the_variable_and_the_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("MAPVEIL_LEDGER", str(tmp_path / "mine.sqlite"))
    assert default_ledger_path() == tmp_path / "mine.sqlite"
    monkeypatch.delenv("MAPVEIL_LEDGER")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_ledger_path() == tmp_path / "mapveil" / "ledger.sqlite"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_ledger_path() == Path.home() / ".local" / "share" / "mapveil" / "ledger.sqlite"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_ledger_path().parent == Path.home() / "Library" / "Application Support" / "mapveil"


def test_no_lookup_reads_a_table_that_grows(
    ledger: Ledger, checkins: str, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SQLite's own plans of the queries behind a balance, a refusal, a release's lines and a recognition."""
    spend = ledger.spend(others, 1, method="laplace")
    asked, connect = list[str](), ledger_file._connect

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(asked.append)
        return connection

    monkeypatch.setattr(ledger_file, "_connect", traced)
    ledger.account(checkins)
    ledger.account(others, before=spend)
    ledger.check(checkins, 1)
    ledger.release(spend)
    ledger.entries(checkins)
    ledger.identify(mv.Points.from_arrays(["cleo", "dan"], [-73.9, -74.0], [40.7, 40.8]), dataset="new name")
    monkeypatch.undo()
    with closing(connect(ledger.path)) as connection:
        plans = {
            text: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
            for text in asked
            if text.startswith(("SELECT", "WITH"))
        }
    assert len(plans) > 10
    scanned = {
        (step, text)
        for text, steps in plans.items()
        for step in steps
        if re.match(r"SCAN (spends|events|datasets|names)\b", step)
    }
    assert not scanned


def test_the_documentation_names_the_schema() -> None:
    formats = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
    assert f"Schema {ledger_file.SCHEMA_VERSION}; a file" in formats.read_text(encoding="utf-8")


def test_the_repr_shows_the_path_only(ledger):
    assert repr(ledger) == f"Ledger({str(ledger.path)!r})"
