"""The ledger: never more than the budget, durable before it returns, and no one's file but ours."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.privacy import ledger_file
from mapveil.privacy.ledger import DEFAULT_BUDGET, Ledger, default_ledger_path
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError, PromiseError

CHECKINS = bytes(range(32))
OTHERS = bytes(32)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "folder" / "ledger.sqlite")


def test_a_spend_is_recorded_whole(ledger):
    spend = ledger.spend(
        CHECKINS,
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


def test_the_default_budget_holds_until_one_is_set(ledger):
    assert ledger.budget() == ledger.budget(CHECKINS) == ledger.remaining(CHECKINS) == DEFAULT_BUDGET
    ledger.set_budget(None, "0.5")
    ledger.set_budget(OTHERS, 7)
    assert ledger.budget(CHECKINS) == Fraction(1, 2)
    assert ledger.budget(OTHERS) == 7


def test_a_refusal_says_what_was_asked_spent_left_and_how_to_go_on(ledger):
    ledger.spend(CHECKINS, "2.5", method="laplace")
    with pytest.raises(BudgetExceeded) as caught:
        ledger.spend(CHECKINS, 1, method="laplace")
    text = str(caught.value)
    identity = ledger.dataset_id(CHECKINS)[:12]
    assert "epsilon 1 asked, 2.5 of 3 spent, 0.5 left" in text
    assert text.endswith(f"mapveil ledger budget {identity} 3.5")
    assert "\n" not in text
    assert len(ledger.entries()) == 1
    ledger.set_budget(identity, "3.5")
    ledger.spend(CHECKINS, 1, method="laplace")
    assert ledger.remaining(CHECKINS) == 0


def test_the_first_refusal_leaves_a_dataset_whose_budget_can_be_raised(ledger):
    with pytest.raises(BudgetExceeded):
        ledger.spend(CHECKINS, 4, method="laplace")
    assert ledger.entries() == ()
    ledger.set_budget(ledger.dataset_id(CHECKINS)[:12], 4)
    ledger.spend(CHECKINS, 4, method="laplace")


def test_sums_are_exact(ledger):
    ledger.set_budget(CHECKINS, 1)
    for _ in range(10):
        ledger.spend(CHECKINS, 0.1, method="laplace")
    assert ledger.remaining(CHECKINS) == 0
    with pytest.raises(BudgetExceeded):
        ledger.spend(CHECKINS, Fraction(1, 10**12), method="laplace")


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([b"a" * 32, b"b" * 32]), st.fractions(Fraction(1, 100), 2)), max_size=8
    )
)
def test_the_ledger_agrees_with_plain_addition(tmp_path_factory, wishes):
    ledger = Ledger(tmp_path_factory.mktemp("law") / "ledger.sqlite")
    spent = {b"a" * 32: Fraction(0), b"b" * 32: Fraction(0)}
    for dataset, epsilon in wishes:
        if spent[dataset] + epsilon <= DEFAULT_BUDGET:
            ledger.spend(dataset, epsilon, method="laplace")
            spent[dataset] += epsilon
        else:
            with pytest.raises(BudgetExceeded):
                ledger.spend(dataset, epsilon, method="laplace")
        assert ledger.account(dataset).spent == spent[dataset]
    assert sum(entry.epsilon for entry in ledger.entries()) == sum(spent.values())


def test_datasets_are_told_apart_by_content_and_ids_are_the_ledgers_own(ledger, tmp_path):
    region = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
    tiling = mv.Quadtree(region, depth=2)
    ones = mv.Counts(np.ones(16, dtype=np.int64), tiling)
    twos = mv.Counts(np.full(16, 2, dtype=np.int64), tiling)
    elsewhere = mv.Counts(np.ones(16, dtype=np.int64), mv.Grid(region, columns=4, rows=4))
    rows = mv.Points.from_arrays([1, 2, 2], [-73.95, -73.96, -73.97], [40.70, 40.71, 40.72])
    turned = mv.Points.from_arrays([2, 1, 2], [-73.97, -73.95, -73.96], [40.72, 40.70, 40.71])
    ids = [ledger.dataset_id(dataset) for dataset in (ones, twos, elsewhere, rows)]
    assert len(set(ids)) == 4
    assert ledger.dataset_id(mv.Counts(np.ones(16, dtype=np.int64), tiling, "renamed")) == ids[0]
    assert ledger.dataset_id(turned) == ids[3]
    other = Ledger(tmp_path / "other.sqlite")
    assert other.dataset_id(ones) != ids[0]
    assert ones.fingerprint().hex() not in ids


def test_nothing_of_the_data_is_in_the_file(ledger):
    ledger.spend(CHECKINS, 1, method="laplace", outputs=["/home/ann/nyc.tif"])
    stored = ledger.path.read_bytes()
    assert CHECKINS not in stored
    assert CHECKINS.hex().encode() not in stored
    assert b"/home/ann" not in stored


def test_names_stand_for_datasets_and_join_budgets(ledger):
    ledger.spend(CHECKINS, 2, method="laplace")
    ledger.spend(OTHERS, 1, method="laplace")
    ledger.name(CHECKINS, "nyc")
    assert ledger.account("nyc").spent == 2
    ledger.name(OTHERS, "nyc")
    assert ledger.remaining(CHECKINS) == ledger.remaining(OTHERS) == ledger.remaining("nyc") == 0
    assert len(ledger.entries("nyc")) == 2
    (account,) = ledger.accounts()
    assert account.name == "nyc"
    assert set(account.datasets) == {ledger.dataset_id(data)[:12] for data in (CHECKINS, OTHERS)}
    with pytest.raises(BudgetExceeded, match="dataset nyc"):
        ledger.spend(OTHERS, "0.1", method="laplace")


def test_a_second_name_never_opens_a_fresh_budget(ledger):
    ledger.spend(CHECKINS, 3, method="laplace")
    ledger.name(CHECKINS, "first")
    ledger.name(CHECKINS, "second")
    ledger.name(OTHERS, "first")
    for dataset in ("first", "second", CHECKINS, OTHERS):
        assert ledger.remaining(dataset) == 0
    ledger.name(b"x" * 32, "third")
    ledger.name("second", "third")
    assert all(ledger.remaining(name) == 0 for name in ("first", "second", "third"))


@pytest.mark.parametrize("name", ["", "  ", "default", "abcdef", "0123456789ab"])
def test_a_name_that_could_be_taken_for_something_else_is_refused(ledger, name):
    with pytest.raises(ParameterError, match="name must be"):
        ledger.name(CHECKINS, name)


@pytest.mark.parametrize("called", ["nobody", "abcdef", "ab", "", "%", "*" * 12, "?" * 12])
def test_an_unknown_dataset_is_an_error_not_a_new_budget(ledger, called):
    ledger.spend(CHECKINS, 1, method="laplace")
    with pytest.raises(InputError, match="no dataset in the ledger called"):
        ledger.spend(called, 1, method="laplace")


def test_leading_digits_name_a_dataset(ledger):
    ledger.spend(CHECKINS, 1, method="laplace")
    whole = ledger.dataset_id(CHECKINS)
    for length in (6, 12, 64):
        assert ledger.dataset_id(whole[:length]) == whole


def test_annulling_gives_back_and_leaves_the_line(ledger):
    spend = ledger.spend(CHECKINS, 3, method="laplace")
    ledger.annul(spend, reason="the disk was full before anything was read")
    assert ledger.remaining(CHECKINS) == 3
    (entry,) = ledger.entries(CHECKINS)
    assert (entry.status, entry.reason) == ("annulled", "the disk was full before anything was read")
    assert ledger.account(CHECKINS).releases == 0


def test_annulling_is_strict(ledger):
    spend = ledger.spend(CHECKINS, 1, method="laplace")
    with pytest.raises(ParameterError, match="reason is required"):
        ledger.annul(spend, reason=" ")
    ledger.written(spend)
    with pytest.raises(InputError, match="is written already"):
        ledger.annul(spend, reason="I changed my mind")
    with pytest.raises(InputError, match="no spend has the id"):
        ledger.annul("0" * 16, reason="there is none")
    assert ledger.account(CHECKINS).spent == 1


def test_lines_cannot_be_changed_by_another_program(ledger):
    spend = ledger.spend(CHECKINS, 1, method="laplace")
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
def test_an_impossible_epsilon_is_refused(ledger, epsilon):
    for attempt in (
        lambda: ledger.spend(CHECKINS, epsilon, method="laplace"),
        lambda: ledger.set_budget(CHECKINS, epsilon),
    ):
        with pytest.raises(ParameterError):
            attempt()
    assert ledger.entries() == ()


def test_a_fingerprint_has_32_bytes(ledger):
    with pytest.raises(ParameterError, match="32 bytes"):
        ledger.spend(b"short", 1, method="laplace")


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_can_read_the_file(ledger):
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(ledger.path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in ledger.path.parent.iterdir()] == ["ledger.sqlite"]


def foreign(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE spends (id TEXT)")
    connection.close()


def newer(path):
    Ledger(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
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
        (newer, "schema 99"),
        (damaged, "malformed|not a database"),
    ],
)
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path, spoil, says):
    path = tmp_path / "ledger.sqlite"
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=says) as caught:
        Ledger(path).spend(CHECKINS, 1, method="laplace")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_a_ledger_that_vanished_is_not_replaced_by_an_empty_one(ledger):
    ledger.path.unlink()
    with pytest.raises(InputError, match="no such file"):
        ledger.spend(CHECKINS, 1, method="laplace")
    assert not ledger.path.exists()


def test_a_place_where_no_file_can_be_made_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="no ledger can be made here"):
        Ledger(tmp_path / "file" / "ledger.sqlite")


def test_a_locked_ledger_means_no_release(ledger, monkeypatch):
    monkeypatch.setattr(ledger_file, "_WAIT_SECONDS", 0.1)
    holder = sqlite3.connect(ledger.path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(PromiseError, match="nothing is released"):
        ledger.spend(CHECKINS, 1, method="laplace")
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


def test_the_repr_shows_the_path_only(ledger):
    assert repr(ledger) == f"Ledger({str(ledger.path)!r})"
