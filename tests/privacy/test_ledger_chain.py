"""The ledger's hash chain: whatever another program changes in the file is found, and nothing is spent on it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from contextlib import closing
from functools import partial

import pytest

import mapveil as mv
from mapveil.privacy import ledger_chain
from mapveil.privacy.chain_head import ChainHead
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.ledger_chain import SCHEMA, SEALED_TABLES, _digests, _value, value_at, verify
from mapveil.privacy.ledger_file import transaction
from mapveil_client.errors import PromiseError
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.terms import canonical_json

KEY = Identity(bytes(range(32)))


def table(*users):
    return mv.Points.from_arrays(list(users), [-73.9] * len(users), [40.7] * len(users))


@pytest.fixture
def ledger(tmp_path):
    """Three spends of two populations: written, annulled, neither; a name, budgets, a statement."""
    made = Ledger(tmp_path / "ledger.sqlite")
    ours, others = made.recognise(table("ann", "bob")), made.recognise(table("cleo", "dan"))
    made.written(made.spend(ours, "1/3", method="emd", outputs=["a.tif"]))
    made.annul(made.spend(others, "1/2", method="laplace"), reason="it never ran")
    made.spend(ours, 1, method="uniform", parameters={"width": 3})
    made.set_budget(ours, 5)
    made.name(others, "others")
    with transaction(made.path, write=True) as connection:
        row = connection.execute("SELECT MIN(dataset), MAX(dataset) FROM datasets").fetchone()
        connection.execute("INSERT INTO other_people VALUES (?, ?, '2026', 'two cities')", row)
    return made


def report(ledger):
    with transaction(ledger.path) as connection:
        return verify(connection)


def free(connection):
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")


def tamper(ledger, *statements):
    """Another program writes to the file, and puts the triggers back."""
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        triggers = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        free(connection)
        for statement in statements:
            connection.execute(*(statement if isinstance(statement, tuple) else (statement,)))
        for (sql,) in triggers:
            connection.execute(sql)


def test_what_was_written_is_whole(ledger):
    found = report(ledger)
    assert found.problems == []
    with transaction(ledger.path) as connection:
        rows = sum(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in SEALED_TABLES)
        lines = connection.execute("SELECT count(*) FROM chain WHERE source <> 'rest'").fetchone()[0]
    assert rows == lines == 6


def test_the_first_write_is_preceded_by_one_hash_of_the_file(tmp_path, monkeypatch):
    made = Ledger(tmp_path / "new.sqlite")
    monkeypatch.setattr(ledger_chain, "verify", lambda _: pytest.fail("the whole chain was recomputed"))
    made.spend(made.recognise(table("ann", "bob")), 1, method="emd")


def test_the_chain_is_what_it_says(ledger):
    """The formula of the module, spelled out."""
    with transaction(ledger.path) as connection:
        value = bytes(32)
        for number, source, row, digest, kept in connection.execute("SELECT * FROM chain ORDER BY number"):
            line = {"digest": digest.hex(), "number": number, "row": row, "source": source}
            text = json.dumps(line, sort_keys=True, separators=(",", ":"))
            value = hashlib.sha256(b"mapveil ledger 1\0" + value + text.encode()).digest()
            assert kept == value
        cursor = connection.execute("SELECT * FROM spends ORDER BY spend LIMIT 1")
        names = [column[0] for column in cursor.description]
        record = dict(zip(names, cursor.fetchone(), strict=True))
        first = connection.execute(
            "SELECT digest FROM chain WHERE source = 'spends' ORDER BY number"
        ).fetchone()
    assert first[0] == hashlib.sha256(canonical_json(record)).digest()
    assert report(ledger).head == value


def columns_of(ledger):
    """Every column of every row of every table."""
    with closing(sqlite3.connect(ledger.path)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> 'checkpoint'"
        ).fetchall()
        for (name,) in tables:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            for (rowid,) in connection.execute(f"SELECT rowid FROM {name}").fetchall():
                for column in columns:
                    (value,) = connection.execute(
                        f"SELECT {column} FROM {name} WHERE rowid = ?", (rowid,)
                    ).fetchone()
                    yield name, column, rowid, value


def other_than(name, column, value):
    if (name, column) == ("events", "kind"):
        return "annulled" if value == "written" else "written"
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:] if value else b"x"
    return value + 70 if isinstance(value, int) else f"{value or ''}0"


def test_each_column_of_each_row_is_compared(ledger):
    whole = ledger.path.read_bytes()
    seen = set()
    for name, column, rowid, value in list(columns_of(ledger)):
        changed = other_than(name, column, value)
        tamper(ledger, (f"UPDATE {name} SET {column} = ? WHERE rowid = ?", (changed, rowid)))
        assert report(ledger).problems, (name, column, rowid)
        ledger.path.write_bytes(whole)
        seen.add((name, column))
    assert report(ledger).problems == []
    assert {("spends", "epsilon"), ("accounts", "budget"), ("names", "account"), ("chain", "digest")} <= seen
    assert len(seen) > 30


FORGERIES = {
    "a spend set to 1/100": ["UPDATE spends SET epsilon = '1/300' WHERE spend = 1"],
    "a spend deleted": ["DELETE FROM spends WHERE spend = 3"],
    "all deleted": ["DELETE FROM events", "DELETE FROM spends"],
    "a spend added": [
        "INSERT INTO spends SELECT 9, 'feed', time, dataset, '1', method, '{}', '', '', '[]', 0 FROM spends LIMIT 1"
    ],
    "spends exchanged": [
        "UPDATE spends SET spend = 9 WHERE spend = 1",
        "UPDATE spends SET spend = 1 WHERE spend = 3",
        "UPDATE spends SET spend = 3 WHERE spend = 9",
    ],
    "a spend annulled": [
        "INSERT INTO events SELECT id, 'annulled', time, 'x', NULL FROM spends WHERE spend = 3"
    ],
    "an annulment deleted": ["DELETE FROM events WHERE kind = 'annulled'"],
    "a budget raised": ["UPDATE accounts SET budget = '100'"],
    "the default raised": ["UPDATE ledger SET default_budget = '100'"],
    "a dataset moved": ["UPDATE datasets SET account = 1"],
    "people forgotten": ["UPDATE accounts SET sketch = x''"],
    "a statement added": ["INSERT INTO other_people SELECT other, dataset, time, 'x' FROM other_people"],
    "a line of the chain deleted": ["DELETE FROM chain WHERE number = 3"],
    "two lines exchanged": [
        "UPDATE chain SET number = 99 WHERE number = 2",
        "UPDATE chain SET number = 2 WHERE number = 3",
        "UPDATE chain SET number = 3 WHERE number = 99",
    ],
    "a spend cut with its line": [
        "DELETE FROM spends WHERE spend = 3",
        "DELETE FROM chain WHERE source = 'spends' AND row = 3",
    ],
}


@pytest.mark.parametrize("forged", ["text", 7, None, 1e999, b""], ids=str)
@pytest.mark.parametrize("column", ["chain.digest", "chain.value", "accounts.sketch", "spends.epsilon"])
def test_values_of_another_kind_are_found(ledger, column, forged):
    name, column = column.split(".")
    try:
        tamper(ledger, (f"UPDATE {name} SET {column} = ?", (forged,)))
    except sqlite3.IntegrityError:
        assert forged is None
        return
    assert report(ledger).problems
    with pytest.raises(PromiseError, match="another program changed the ledger"):
        ledger.set_budget(None, 4)


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_are_found(ledger, name):
    tamper(ledger, *FORGERIES[name])
    assert report(ledger).problems


def test_housekeeping_of_the_file_changes_nothing(ledger):
    before = report(ledger)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute("VACUUM")
        connection.execute("ANALYZE")
    assert report(ledger) == before
    ledger.set_budget(None, 4)
    assert report(ledger).problems == []


def test_a_trigger_that_is_gone_is_found(ledger):
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        connection.execute("DROP TRIGGER spends_stay")
    assert report(ledger).problems


@pytest.mark.parametrize("name", FORGERIES)
def test_a_changed_ledger_is_never_sealed_again(ledger, name):
    """Nor is anything spent on it, though the triggers are back and every row has a line."""
    ours = ledger.recognise(table("ann", "bob"))
    tamper(ledger, *FORGERIES[name])
    before = ledger.path.read_bytes()
    for change in (
        lambda: ledger.recognise(table("ann", "bob")),
        lambda: ledger.spend(ours, "1/100", method="laplace"),
        lambda: ledger.set_budget(None, 4),
    ):
        with pytest.raises(PromiseError, match="another program changed the ledger"):
            change()
    assert ledger.path.read_bytes() == before


def test_an_untouched_file_is_not_verified_again_and_a_forged_checkpoint_is_found(ledger, monkeypatch):
    ours = ledger.recognise(table("ann", "bob"))

    def spend():
        ledger.spend(ours, "1/100", method="emd")

    with monkeypatch.context() as patched:
        patched.setattr(ledger_chain, "verify", pytest.fail)
        spend()
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute(
            "VACUUM"
        )  # other bytes, the same rows: the chain is recomputed, and a checkpoint made
    spend()
    monkeypatch.setattr(ledger_chain, "verify", pytest.fail)
    spend()
    monkeypatch.undo()
    for forged in (b"", bytes(32), "text", 7):
        tamper(ledger, ("UPDATE checkpoint SET digest = ?", (forged,)))
        spend()
    tamper(ledger, *FORGERIES["a spend set to 1/100"])
    with pytest.raises(PromiseError, match="another program changed the ledger"):
        spend()
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        digest = ledger_chain._file_digest(connection)
        connection.execute("UPDATE checkpoint SET digest = ?", (digest,))
    spend()  # as where the whole chain is made anew by its rules, which are public
    assert report(ledger).problems


def test_a_published_head_shows_what_was_cut_or_made_anew(ledger):
    found = report(ledger)
    published = ChainHead.sign(KEY, "ledger", found.lines, found.head, "t")

    def fault():
        now = report(ledger)
        assert now.problems == []
        with transaction(ledger.path) as connection:
            return published.fault("ledger", now.lines, partial(value_at, connection), KEY)

    assert fault() is None
    ledger.spend(ledger.recognise(table("ann", "bob")), "1/4", method="emd")
    assert fault() is None
    # The owner makes the chain anew, in which the first spend cost a hundredth.
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        triggers = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        free(connection)
        connection.execute("UPDATE spends SET epsilon = '1/300' WHERE spend = 1")
        first = next(_digests(connection.execute("SELECT * FROM spends WHERE spend = 1")))
        connection.execute("UPDATE chain SET digest = ? WHERE source = 'spends' AND row = 1", (first,))
        value = bytes(32)
        for number, source, row, digest in connection.execute(
            "SELECT number, source, row, digest FROM chain ORDER BY number"
        ).fetchall():
            value = _value(value, number, source, row, digest)
            connection.execute("UPDATE chain SET value = ? WHERE number = ?", (value, number))
        for (sql,) in triggers:
            connection.execute(sql)
    assert "was rewritten" in fault()


def test_lines_cut_at_the_end_show_against_a_published_head(ledger):
    head = report(ledger)
    spend = ledger.spend(ledger.recognise(table("ann", "bob")), "1/4", method="emd")
    later = report(ledger)
    published = ChainHead.sign(KEY, "ledger", later.lines, later.head, "t")
    tamper(
        ledger,
        ("DELETE FROM spends WHERE id = ?", (spend,)),
        ("DELETE FROM chain WHERE number > ?", (head.lines,)),
    )
    now = report(ledger)
    assert now == head  # whole, but shorter
    with transaction(ledger.path) as connection:
        fault = published.fault("ledger", now.lines, partial(value_at, connection), KEY)
    assert "taken off the end" in fault


def test_the_chain_itself_is_append_only(ledger):
    assert SCHEMA.count("CREATE TRIGGER") == 2
    for statement in ("UPDATE chain SET digest = x''", "DELETE FROM chain WHERE number = 2"):
        with (
            pytest.raises(sqlite3.IntegrityError, match="never"),
            closing(sqlite3.connect(ledger.path)) as connection,
        ):
            connection.execute(statement)


def test_a_spend_of_a_known_population_costs_one_line(ledger):
    before = report(ledger).lines
    ledger.written(ledger.spend(ledger.recognise(table("ann", "bob")), "1/100", method="emd"))
    assert report(ledger).lines == before + 2


def test_sealing_is_cheap_among_many_populations(tmp_path):
    """200 accounts whose sketches have 128 KiB each: the largest that a ledger keeps."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ours = ledger.recognise(table("ann", "bob"))
    with transaction(ledger.path, write=True) as connection:
        row = connection.execute("SELECT unit, owner, budget, reason FROM accounts").fetchone() or (
            "user",
            "",
            None,
            "",
        )
        many = [(*row, bytes(1 << 17)) for _ in range(200)]
        connection.executemany(
            "INSERT INTO accounts (unit, owner, budget, reason, sketch) VALUES (?, ?, ?, ?, ?)", many
        )
    started = time.process_time()
    spend = ledger.spend(ours, "1/100", method="emd")
    ledger.written(spend)
    took = time.process_time() - started
    started = time.process_time()
    for _ in range(4):  # two writes hash the file before and after
        hashlib.sha256(ledger.path.read_bytes()).digest()
    hashed = time.process_time() - started
    assert took < 8 * hashed  # 3 to 4 times on a loaded machine


def test_a_write_is_fast_among_many_spends(ledger):
    ours = ledger.recognise(table("ann", "bob"))
    with transaction(ledger.path, write=True) as connection:
        connection.executemany(
            "INSERT INTO spends SELECT NULL, ?, time, dataset, '1/100000', method, parameters, tiling, region,"
            " outputs, 0 FROM spends WHERE spend = 1",
            [(f"{number:016x}",) for number in range(20_000)],
        )
    started = time.process_time()
    ledger.spend(ours, "1/100", method="emd")
    assert (
        time.process_time() - started < 0.2
    )  # about 0.03 s on a quiet machine, 0.3 s where the chain is recomputed


def test_an_altered_index_is_found(ledger):
    """The rows stay as they are sealed, but a look-up by id finds none, and the account seems unspent."""
    dataset = ledger.entries()[0].dataset
    with closing(sqlite3.connect(ledger.path)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_datasets_1'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    image = bytearray(ledger.path.read_bytes())
    at = image.index(dataset.encode(), (root - 1) * size, root * size)
    image[at + 31] ^= 1
    ledger.path.write_bytes(image)
    assert any("the file is damaged" in problem for problem in report(ledger).problems)
    with pytest.raises(PromiseError, match="another program changed the ledger"):
        ledger.spend("others", 1, method="laplace")
