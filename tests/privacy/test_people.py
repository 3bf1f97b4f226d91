"""The ledger knows people: whatever their table looks like, and whenever two tables share them."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import mapveil as mv
from mapveil.privacy import population
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.population import see
from mapveil_client.errors import BudgetExceeded, CuratorWarning, InputError, ParameterError


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def table(user: Any, **more: Any) -> mv.Points:
    users = list(user)
    place = np.linspace(0.0, 0.1, len(users))
    return mv.Points.from_arrays(users, **{"lon": -74 + place, "lat": 40.7 + place, **more})


def people(first: int, last: int) -> list[str]:
    return [f"person-{number}" for number in range(first, last)]


def key_of(ledger: Ledger) -> bytes:
    with sqlite3.connect(ledger.path) as connection:
        key = connection.execute("SELECT key FROM ledger").fetchone()[0]
    connection.close()
    return bytes(key)


PANEL = people(0, 60)


@pytest.mark.parametrize(
    "again",
    [
        table(PANEL[::-1]),
        table(PANEL, lon=-74 + np.linspace(0.0, 0.1, 60) + 1e-6),
        table([*PANEL, PANEL[0]]),
        table(PANEL * 2),
        table(PANEL, weight=[2.0] * 60),
        table(PANEL, label=["a"] * 60),
        table([f" {user.upper()} " for user in PANEL]),
    ],
    ids=["order", "jitter", "one row more", "doubled rows", "weight", "label", "case and spaces"],
)
def test_the_same_people_are_recognised_silently(ledger: Ledger, again: mv.Points) -> None:
    known = ledger.recognise(table(PANEL))
    assert ledger.recognise(again) == known
    assert len(ledger.accounts()) == 1


def test_a_filter_of_the_request_does_not_change_the_people(ledger: Ledger) -> None:
    frame = pd.DataFrame({"user_id": PANEL, "lon": -74.0, "lat": 40.7, "hour": range(60)})
    known = ledger.recognise(mv.read_points(frame))
    for where in ("hour < 12", "FALSE"):
        assert ledger.recognise(mv.read_points(frame, where=where)) == known


def diluted(number: int, **options: Any) -> mv.Points:
    """The panel among ten times as many people whom this table alone has."""
    invented = [f"invented-{number}-{at}" for at in range(601)]
    lat = [40.7] * 60 + [float("nan") if options.get("on_bad_rows") else 40.7] * 601
    return mv.read_points(pd.DataFrame({"user_id": PANEL + invented, "lon": -74.0, "lat": lat}), **options)


@pytest.mark.parametrize("options", [{"where": "user_id LIKE 'p%'"}, {"on_bad_rows": "drop"}], ids=str)
@pytest.mark.parametrize("sample", [256, population.SAMPLE])
@pytest.mark.parametrize("first", ["whole", "filtered"])
def test_people_whose_rows_are_left_out_hide_nobody(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], sample: int, first: str
) -> None:
    monkeypatch.setattr(population, "SAMPLE", sample)
    known = ledger.recognise(diluted(1, **options if first == "filtered" else {}), dataset="panel")
    assert ledger.recognise(diluted(1, **options)) == known
    before = ledger.path.read_bytes()
    for number in range(2, 6):
        with pytest.raises(InputError, match="in common with account panel"):
            ledger.recognise(diluted(number, **options))
    assert ledger.path.read_bytes() == before


def test_no_refusal_depends_on_whom_a_filter_leaves(ledger: Ledger) -> None:
    """A table that shares few people with an account: a filter for one of its rows told whether it holds."""
    ledger.recognise(table(PANEL), dataset="panel")
    frame = pd.DataFrame({"user_id": people(59, 200), "lon": -74.0, "lat": 40.7})
    ledger.spend(ledger.recognise(mv.read_points(frame)), 3, method="laplace")
    before, said = ledger.path.read_bytes(), set()
    for where in (
        "user_id = 'person-59' AND lon < -73",
        "user_id = 'person-59' AND lon > -73",
        "TRUE",
        "FALSE",
    ):
        with pytest.raises(InputError, match="in common with account panel") as caught:
            ledger.recognise(mv.read_points(frame, where=where))
        said.add(str(caught.value))
    assert len(said) == 1
    assert ledger.path.read_bytes() == before


def test_a_filter_does_not_change_what_an_account_knows(ledger: Ledger) -> None:
    frame = pd.DataFrame({"user_id": PANEL, "lon": -74.0, "lat": 40.7})
    known = ledger.recognise(mv.read_points(frame, where="user_id = 'person-1' AND lon > 0"), dataset="panel")
    with pytest.raises(InputError, match="in common with account panel"):
        ledger.recognise(table(PANEL[1:2]))
    assert ledger.account(known).name == "panel"


def test_a_table_known_by_its_invented_people_does_not_hide_the_others(ledger: Ledger) -> None:
    ledger.recognise(diluted(1), dataset="panel")
    with pytest.raises(InputError, match="in common with account panel"):
        ledger.recognise(diluted(2, where="user_id NOT LIKE 'p%'"))
    with pytest.raises(InputError, match="one common person is refused, else 10 %"):
        ledger.recognise(diluted(2, where="user_id NOT LIKE 'p%'"))
    known = ledger.recognise(diluted(2))  # more than nine invented ones for each
    assert ledger.account(known).name != "panel"
    with pytest.raises(InputError, match="in common with account panel"):
        ledger.recognise(diluted(2, where="user_id LIKE 'p%'"))


def test_a_table_known_by_some_of_its_people_adds_the_others(ledger: Ledger) -> None:
    known = ledger.recognise(diluted(1, where="user_id LIKE 'p%'"))
    assert ledger.recognise(diluted(1)) == known
    with pytest.raises(InputError, match="in common with"):
        ledger.recognise(table([f"invented-1-{at}" for at in range(601)]))


@pytest.mark.parametrize(
    "changed",
    [PANEL[:30], PANEL[:1], [*PANEL, "somebody else"], [*PANEL[:8], *people(100, 170)], people(54, 600)],
    ids=["filtered", "filtered to one", "one person more", "a tenth of the table", "a tenth of the account"],
)
def test_some_of_the_people_are_refused_until_the_account_is_named(
    ledger: Ledger, changed: list[str]
) -> None:
    known = ledger.recognise(table(PANEL), dataset="panel")
    ledger.spend(known, 3, method="laplace")
    before = ledger.path.read_bytes()
    for given in (dict[str, str](), {"dataset": "fresh"}):
        with pytest.raises(
            InputError,
            match=r"arrays: has people in common with account panel \(about \d+% of the smaller of the two\)",
        ):
            ledger.recognise(table(changed), **given)
    assert ledger.path.read_bytes() == before
    joined = ledger.recognise(table(changed), dataset="panel")
    assert joined != known
    with pytest.raises(BudgetExceeded):
        ledger.spend(joined, "0.1", method="laplace")
    assert ledger.recognise(table(changed)) == joined
    assert len(ledger.accounts()) == 1


def test_a_refusal_by_an_account_without_a_name_names_its_last_release(ledger: Ledger) -> None:
    known = ledger.recognise(table(PANEL))
    ledger.spend(known, 1, method="laplace", outputs=("march.parquet",))
    with pytest.raises(InputError, match=r"last released by laplace on \d{4}-\d\d-\d\d, to march.parquet$"):
        ledger.recognise(table(PANEL[:30]))


def test_fewer_than_a_tenth_are_another_account(ledger: Ledger) -> None:
    first = ledger.recognise(table(PANEL))
    other = ledger.recognise(table(people(55, 200)))
    assert ledger.account(first) != ledger.account(other)


def test_sixty_weeks_of_one_population_are_one_account(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A twentieth of the people are new every week; with 512 values the account of 1,975 is soon a sample."""
    monkeypatch.setattr(population, "SAMPLE", 512)
    ledger.recognise(table(people(0, 500)), dataset="panel")
    for week in range(1, 60):
        active = table(people(25 * week, 500 + 25 * week))
        with pytest.raises(InputError, match="account panel"):
            ledger.recognise(active)
        ledger.recognise(active, dataset="panel")
    (account,) = ledger.accounts()
    assert len(account.datasets) == 60


def test_sixty_disjoint_populations_are_sixty_accounts(ledger: Ledger) -> None:
    for at in range(60):
        ledger.recognise(table(people(100 * at, 100 * at + 100)))
    assert len(ledger.accounts()) == 60


def test_nothing_but_keyed_values_is_stored(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other.sqlite")
    sketches = []
    for one in (ledger, other):
        one.recognise(table(PANEL))
        assert b"person" not in one.path.read_bytes()
        assert one.path.stat().st_mode & 0o077 == 0
        with see(table(PANEL), key_of(one)) as seen:
            sketches.append(seen.sketch)
            assert seen.sketch.tobytes() in one.path.read_bytes()
    assert not np.isin(*sketches).any()


def test_a_small_table_inside_a_large_account_is_seen_as_often_as_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With m k / N = 1.28 a fraction e^-1.28 = 0.278 goes unseen: of 100 tables 28, within four deviations of 4.5.

    Half or twice as many values would leave 53 or 8.
    """
    monkeypatch.setattr(population, "SAMPLE", 256)
    unseen = 0
    for trial in range(5):
        key = trial.to_bytes(32, "big")
        with see(table(range(20_000)), key) as whole:
            sketch = whole.sketch
        assert sketch.size == 256
        for first in range(0, 2000, 100):
            with see(table(range(first, first + 100)), key) as part:
                unseen += not part.shares({1: sketch})
    assert 10 <= unseen <= 46


def seen_share(account: int, people: int, common: float) -> float:
    """The probability that ``common`` of the people of a table are seen in an account of many."""
    sampled = population.SAMPLE / account
    least = np.ceil(population.SHARED * min(population.SAMPLE, people * sampled))
    return float(binom.sf(max(least, 1) - 1, people * common, sampled))


def test_the_table_of_the_documentation_is_computed() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "budgets.md"
    rows = re.findall(
        r"^\| ([\d,]+) \| ([\d,]+) \| (\d+) % \| ([\d.]+) % \|$", page.read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) == 6
    for account, people, common, stated in rows:
        found = seen_share(int(account.replace(",", "")), int(people.replace(",", "")), int(common) / 100)
        assert f"{100 * found:.{2 if found > 0.99 else 0}f}" == stated


def test_a_small_account_inside_a_large_table_is_always_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "SAMPLE", 256)
    with see(table(range(40)), b"key") as small:
        sketch = small.sketch
    with see(table(range(100_000)), b"key") as large:
        assert large.shares({1: sketch}) == {1: 1.0}


def test_a_share_is_estimated_without_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of 5,000 are among 20,000, 128 of whom are sampled: the mean of 20 estimates has deviation 0.014."""
    monkeypatch.setattr(population, "SAMPLE", 512)
    found = []
    for trial in range(20):
        key = trial.to_bytes(32, "big")
        with see(table(range(20_000)), key) as whole:
            sketch = whole.sketch
        with see(table(range(17_500, 22_500)), key) as part:
            found.append(part.shares({1: sketch})[1])
    assert abs(np.mean(found) - 0.5) < 0.056


def test_ids_that_coincide_are_refused_with_both_ways_out(ledger: Ledger) -> None:
    ledger.recognise(table(range(1, 501)), dataset="oslo")
    with pytest.raises(InputError) as caught:
        ledger.recognise(table(range(1, 301)))
    assert str(caught.value) == (
        "arrays: has people in common with account oslo (about 100% of the smaller of the two), so nothing is charged "
        "or released. If they are the same people: dataset=oslo. If they are others whose ids coincide, as ids such as "
        "1 to n do by chance: dataset=people with other_people=REASON, and say why"
    )


def test_other_people_are_recorded_and_have_a_budget_of_their_own(ledger: Ledger) -> None:
    oslo = ledger.recognise(table(range(1, 501)), dataset="oslo")
    ledger.spend(oslo, 3, method="laplace")
    statement = {"dataset": "bergen", "other_people": "numbered in each city"}
    with pytest.warns(CuratorWarning, match="exactly the people of account oslo.*: numbered in each city"):
        bergen = ledger.recognise(table(range(1, 501)), **statement)
    with pytest.warns(CuratorWarning, match="exactly the people of account oslo.*: numbered in each city"):
        assert ledger.recognise(table(range(1, 501)), **statement) == bergen  # the same command again
    assert ledger.remaining(bergen) == 3
    assert ledger.account("bergen").other_people == ("oslo: numbered in each city",)
    assert ledger.account("oslo").other_people == ("bergen: numbered in each city",)
    with pytest.raises(
        InputError, match=r"account bergen \(about 100% .*\) and account oslo|oslo .* and account bergen"
    ):
        ledger.recognise(table(range(1, 501)))
    with pytest.warns(CuratorWarning, match="exactly the people of account oslo.*: numbered in each city"):
        assert ledger.recognise(table(range(1, 501)), dataset="bergen") == bergen
    week = ledger.recognise(table(range(1, 521)), dataset="bergen")  # the statement holds
    assert ledger.account(week) == ledger.account("bergen")
    before = ledger.path.read_bytes()
    for known in ("oslo", "bergen"):
        with pytest.raises(ParameterError, match=r"^leave out other_people, .*nothing is charged"):
            ledger.recognise(table(range(1, 501)), dataset=known, other_people="another reason")
    with pytest.raises(
        ParameterError, match=r"^leave out .*too few ids in common with any other account than new"
    ):
        ledger.recognise(table(range(1000, 1100)), dataset="new", other_people="a third city")
    assert ledger.path.read_bytes() == before
    ledger.recognise(table(range(2001, 2501)), dataset="molde")
    both = [*range(1, 501), *range(2001, 2501)]
    with pytest.raises(InputError, match="in common with account molde"):
        ledger.recognise(table(both), dataset="bergen")
    ledger.recognise(
        table(both), dataset="bergen", other_people="numbered there too"
    )  # of a known account, recorded
    assert ledger.account("molde").other_people == ("bergen: numbered there too",)
    connection = sqlite3.connect(ledger.path)
    for statement in ("DELETE FROM other_people", "UPDATE other_people SET reason = ''"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "given",
    [
        {"other_people": "others"},
        {"dataset": "new", "other_people": " "},
        {"dataset": "abcdef"},
        {"dataset": ""},
    ],
)
def test_a_statement_that_cannot_be_recorded_is_refused(ledger: Ledger, given: dict[str, str]) -> None:
    ledger.recognise(table(PANEL))
    before = ledger.path.read_bytes()
    with pytest.raises((InputError, ParameterError)):
        ledger.recognise(table(PANEL[:30]), **given)
    assert ledger.path.read_bytes() == before


def test_people_of_two_accounts_are_refused_until_these_are_joined(ledger: Ledger) -> None:
    ledger.recognise(table(PANEL[:30]), dataset="north")
    ledger.recognise(table(PANEL[30:]), dataset="south")
    for given in (dict[str, str](), {"dataset": "north"}):
        with pytest.raises(InputError, match="mapveil ledger name south north, then dataset=north"):
            ledger.recognise(table(PANEL), **given)
    ledger.name("south", "north")
    ledger.recognise(table(PANEL), dataset="north")
    (account,) = ledger.accounts()
    assert len(account.datasets) == 3
    with pytest.raises(InputError, match="account north"):
        ledger.recognise(table([*PANEL[30:], "somebody else"]))


def test_a_new_name_for_known_people_names_their_account(ledger: Ledger) -> None:
    known = ledger.recognise(table(PANEL))
    assert ledger.recognise(table(PANEL), dataset="panel") == known
    assert ledger.recognise(table(PANEL), dataset="again") == known
    assert ledger.account("again").name == "panel"


def test_rasters_of_counts_are_known_by_their_content(ledger: Ledger) -> None:
    region = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
    tiling = mv.Quadtree(region, depth=2)
    ones, twos = (mv.Counts(np.full(16, number, dtype=np.int64), tiling) for number in (1, 2))
    elsewhere = mv.Counts(np.ones(16, dtype=np.int64), mv.Grid(region, columns=4, rows=4))
    known = ledger.recognise(ones)
    assert ledger.recognise(mv.Counts(np.ones(16, dtype=np.int64), tiling, "renamed")) == known
    assert len({known, ledger.recognise(twos), ledger.recognise(elsewhere)}) == 3
    ledger.recognise(ones, dataset="city")
    later = ledger.recognise(mv.Counts(np.full(16, 3, dtype=np.int64), tiling), dataset="city")
    assert ledger.account(later) == ledger.account(known)


@pytest.mark.parametrize(("ids", "people"), [(["AB1", "ab1", " ab1", "x"], 2), (["1", "01", "2"], 2)])
def test_one_person_written_in_several_ways_is_told_before_the_charge(
    ledger: Ledger, ids: list[str], people: int
) -> None:
    place = np.zeros(len(ids))
    points = mv.Points.from_arrays(ids, place - 74, place + 40.7, source="table")
    tiling = mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=1)
    with pytest.warns(CuratorWarning, match=f"{len(ids)} ids, as they are written, are {people} people"):
        mv.release(points, tiling, epsilon=1, account=mv.Account(ledger=ledger.path))
