"""A charge buys an answer: a release cut short anywhere is resumed, is charged once and draws no reply twice."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mapveil as mv
from mapveil.privacy import answers, charges
from mapveil.privacy.answers import Answers
from mapveil.privacy.ledger_accounts import SpendId
from mapveil_client.errors import CuratorWarning, InputError, PromiseError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=4)
COUNTS = mv.Counts(np.random.default_rng(1).poisson(3.0, TILING.size), TILING)
EPSILON = Fraction(2)

Release = Callable[[mv.Account], mv.DensityMap]

RELEASES: dict[str, dict[str, Any]] = {
    "multiscale": {},
    "privtree": {"method": "privtree"},
    "private-fourier-kde": {"method": "private-fourier-kde"},
    "adaptive": {"method": "adaptive"},
    "rounds of secure sums": {"method": "adaptive-grid", "trust": "distributed"},
    "reports": {"trust": "local"},
}


@pytest.fixture
def ledger(tmp_path: Path) -> mv.Ledger:
    return mv.Ledger(tmp_path / "ledger.sqlite")


class Killed(BaseException):
    """An end that no code expects."""


def at_points(monkeypatch: pytest.MonkeyPatch, stop: Callable[[], None]) -> None:
    """Call ``stop`` before and after every step that charges, draws, stores, marks or deletes."""

    def watch(owner: Any, name: str) -> None:
        step = getattr(owner, name)

        def watched(*given: Any, **named: Any) -> Any:
            stop()
            made = step(*given, **named)
            stop()
            return made

        monkeypatch.setattr(owner, name, watched)

    for owner, name in ((mv.Ledger, "spend"), (mv.Ledger, "written"), (Answers, "keep"), (answers, "encode"),
                        (charges, "delete_answers")):  # fmt: skip
        watch(owner, name)


def stop_at(number: int, how: Callable[[], None]) -> Callable[[], None]:
    """Stop at the point of a number, from 0."""
    left = [number]

    def stop() -> None:
        if left[0] == 0:
            how()
        left[0] -= 1

    return stop


def ended(release: Release, account: mv.Account, ledger: mv.Ledger) -> mv.DensityMap:
    """Resume a release that was cut short, or release where it was cut short before the charge."""
    spent = sum((entry.epsilon for entry in ledger.entries()), Fraction(0))
    waiting = charges.unwritten(ledger)
    assert bool(waiting) == bool(spent)
    made = release(mv.Account(ledger=ledger, resume=True) if waiting else account)
    assert sum((entry.epsilon for entry in ledger.entries()), Fraction(0)) == EPSILON
    assert {entry.status for entry in ledger.entries()} == {"written"}
    assert made.guarantee.account is not None
    assert made.guarantee.account.entries == tuple(entry.id for entry in ledger.entries())
    assert made.guarantee.account.entries[0][:16] in made.guarantee.account.entries[-1]
    assert list(ledger.path.parent.glob("*.answers*")) == []
    with pytest.raises(InputError, match="nothing is unwritten"):
        release(mv.Account(ledger=ledger, resume=True))
    return made


@pytest.mark.parametrize("given", RELEASES.values(), ids=RELEASES.keys())
def test_a_release_that_is_killed_anywhere_is_resumed_and_charged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    def release(account: mv.Account) -> mv.DensityMap:
        return mv.release(COUNTS, epsilon=EPSILON, account=account, **given)

    survived = False
    number = 0
    while not survived:
        ledger = mv.Ledger(tmp_path / f"{number}.sqlite")
        account = mv.Account(ledger=ledger)
        child = os.fork()
        if child == 0:  # the process that is killed: no handler runs
            with monkeypatch.context() as watched:
                at_points(watched, stop_at(number, lambda: os._exit(9)))
                try:
                    release(account)
                finally:
                    os._exit(0)
        survived = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        if not survived:
            if {entry.status for entry in ledger.entries()} != {"written"}:
                ended(release, account, ledger)
            else:
                assert charges.unwritten(ledger) == {}
                charges.delete_finished(ledger)
        number += 1
    assert number > 6
    assert list(tmp_path.glob("*.answers*")) == []


@pytest.mark.parametrize("given", RELEASES.values(), ids=RELEASES.keys())
def test_an_interrupted_release_says_so_and_resumes_from_the_replies_it_drew(
    ledger: mv.Ledger, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    def release(account: mv.Account) -> mv.DensityMap:
        return mv.release(COUNTS, epsilon=EPSILON, account=account, **given)

    kept: list[bytes] = []
    encode = answers.encode

    def note(reply: Any) -> bytes:
        kept.append(encode(reply))
        return kept[-1]

    account = mv.Account(ledger=ledger, outputs=["map.tif"])  # its answer is kept: nothing writes it
    with monkeypatch.context() as watched:
        watched.setattr(answers, "encode", note)
        first = release(account)
    assert kept
    monkeypatch.setattr(answers, "encode", lambda reply: pytest.fail("a reply was drawn again"))
    again = ended(release, account, ledger)
    assert again.values.tolist() == first.values.tolist()
    assert again.guarantee == first.guarantee


@pytest.mark.parametrize("number", range(1, 8))
def test_an_error_after_the_charge_says_what_was_charged(
    ledger: mv.Ledger, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def kill() -> None:
        raise Killed

    account = mv.Account(ledger=ledger)
    with monkeypatch.context() as watched:
        at_points(watched, stop_at(number, kill))
        with pytest.raises(Killed) as stopped:
            mv.release(COUNTS, epsilon=EPSILON, account=account, method="adaptive")
    assert "epsilon 2 is charged (spend " in stopped.value.__notes__[0]
    assert "--resume" in stopped.value.__notes__[0]
    ended(
        lambda given: mv.release(COUNTS, epsilon=EPSILON, account=given, method="adaptive"), account, ledger
    )


def test_only_the_same_request_is_resumed(ledger: mv.Ledger) -> None:
    mv.release(COUNTS, epsilon=1, account=mv.Account(ledger=ledger, outputs=["map.tif"]))
    resume = mv.Account(ledger=ledger, resume=True)
    others = mv.Counts(COUNTS.values + 1, TILING)
    for source, given in (
        (COUNTS, {"epsilon": "1.5"}),
        (COUNTS, {"epsilon": 1, "method": "laplace"}),
        (others, {"epsilon": 1}),
    ):
        with pytest.raises(InputError, match=r"no unwritten release of this request.*multiscale quadtree:4"):
            mv.release(source, account=resume, **given)
    assert [entry.epsilon for entry in ledger.entries()] == [1]
    assert mv.release(COUNTS, epsilon=1, account=resume).guarantee.account is not None
    assert [entry.epsilon for entry in ledger.entries()] == [1]


def test_dropped_rows_are_part_of_the_request(ledger: mv.Ledger) -> None:
    rows = pd.DataFrame({"user_id": range(50), "lon": -74.0, "lat": 40.7})
    kept, dropping = mv.read_points(rows), mv.read_points(rows, on_bad_rows="drop")
    given: dict[str, Any] = {"tiling": TILING, "epsilon": 1, "method": "laplace"}
    mv.release(kept, **given, account=mv.Account(ledger=ledger, outputs=["map.tif"]))
    resume = mv.Account(ledger=ledger, resume=True)
    with pytest.raises(InputError, match="no unwritten release of this request"):
        mv.release(dropping, **given, account=resume)
    assert mv.release(kept, **given, account=resume).guarantee.account is not None


def test_a_release_that_runs_or_waits_is_not_annulled(
    ledger: mv.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def annul() -> None:
        for entry in ledger.entries():
            refused.append(entry.id)
            with pytest.raises(InputError, match="kept answer or is being released now"):
                ledger.annul(entry.id, reason="a test")

    refused: list[str] = []
    rounds = RELEASES["rounds of secure sums"]
    account = mv.Account(ledger=ledger, outputs=["map.tif"])
    with monkeypatch.context() as watched:
        at_points(watched, annul)
        made = mv.release(COUNTS, epsilon=1, account=account, **rounds)
    assert len(set(refused)) == len(ledger.entries()) > 1
    annul()
    assert {entry.status for entry in ledger.entries()} == {"spent"}
    again = mv.release(COUNTS, epsilon=1, account=mv.Account(ledger=ledger, resume=True), **rounds)
    assert again.values.tolist() == made.values.tolist()


def test_answers_that_were_moved_away_annul_nothing(ledger: mv.Ledger, tmp_path: Path) -> None:
    """Their owner moves the answers away, or takes another path to the ledger; then puts them back."""
    rounds = RELEASES["rounds of secure sums"]
    mv.release(COUNTS, epsilon=1, account=mv.Account(ledger=ledger, outputs=["map.tif"]), **rounds)
    first, second = (entry.id for entry in ledger.entries())
    (kept,) = ledger.path.parent.glob("*.answers")
    kept.rename(kept.with_suffix(".away"))
    link, hard = tmp_path / "link.sqlite", tmp_path / "hard.sqlite"
    link.symlink_to(ledger.path)
    hard.hardlink_to(ledger.path)
    for path in (ledger.path, link, hard):
        with pytest.raises(InputError, match="cannot be annulled"):
            mv.Ledger(path).annul(second, reason="a test")
    kept.with_suffix(".away").rename(kept)
    assert [path.name for path in charges.answers_files(mv.Ledger(link).path)] == [kept.name]
    assert [entry.status for entry in ledger.entries()] == ["spent", "spent"]
    later = ledger.spend(ledger.recognise(COUNTS), "1/2", method="laplace")
    resumed = charges.Charges(ledger, ledger.recognise(COUNTS))
    resumed._spends = [first, second]
    charged = resumed.with_account(mv.mechanisms.LaplaceHistogram(epsilon=1).guarantee())
    assert charged.account is not None
    assert (charged.account.before, charged.account.after) == (0, 1)  # without the later row
    assert later not in charged.account.entries


def test_the_warning_of_a_kept_answer_names_the_line_that_charges(ledger: mv.Ledger) -> None:
    dataset, about = ledger.recognise(COUNTS), {"method": "emd", "parameters": {}}
    with charges.Charges(ledger, dataset, about, outputs=["map.tif"]) as first:
        first.spend(Fraction(1))
    with charges.Charges(ledger, dataset, about, outputs=["map.tif"]) as second:
        with pytest.warns(CuratorWarning, match="--resume writes it") as seen:
            second.spend(Fraction(1))
        assert seen[0].filename == __file__


def test_a_listing_deletes_no_answer(ledger: mv.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The charge comes between the listing's steps: at every one, the process that charged has died since."""
    dataset = ledger.recognise(COUNTS)
    entries, files = mv.Ledger.entries, charges.answers_files

    def charge(number: int) -> None:
        spend = SpendId(f"{number:016x}")
        Answers.create(ledger.path, spend, "{}").close()
        ledger.spend(dataset, "1/100", method="laplace", spend=spend)

    def listed(path: Path) -> Any:
        charge(len(entries(ledger)))
        return files(path)

    monkeypatch.setattr(charges, "answers_files", listed)
    for number in range(1, 4):
        assert len(charges.unwritten(ledger)) == number
    dead = Answers.create(ledger.path, "f" * 16, "{}")
    dead.close()
    charges.unwritten(ledger)
    assert dead.path.exists()
    charges.delete_finished(ledger)
    assert not dead.path.exists()
    assert len(list(files(ledger.path))) == len(entries(ledger)) == 5


def test_what_was_annulled_is_not_released(ledger: mv.Ledger) -> None:
    dataset = ledger.recognise(COUNTS)
    spends = [
        ledger.spend(dataset, 1, method="laplace", spend=SpendId(spend))
        for spend in ("0" * 16, "0" * 16 + "-2")
    ]
    ledger.annul(spends[1], reason="a test")
    with pytest.raises(PromiseError, match=f"spend {spends[1]} was annulled"):
        charges.written(ledger, spends)
    assert [entry.status for entry in ledger.entries()] == ["spent", "annulled"]


def test_a_ledger_without_room_for_answers_charges_nothing(
    ledger: mv.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(answers, "create_private", full)
    with pytest.raises(PromiseError, match=r"No space left on device.*nothing is charged"):
        mv.release(COUNTS, epsilon=1, account=mv.Account(ledger=ledger))
    assert ledger.entries() == ()


def test_a_full_disk_costs_nothing(ledger: mv.Ledger) -> None:
    """A real write error: the child may write files of so many bytes only."""
    large = mv.Quadtree(REGION, depth=7)
    counts = mv.Counts(np.ones(large.size, dtype=np.int64), large)
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (110_000, 110_000))
            mv.release(counts, epsilon=EPSILON, method="laplace", account=mv.Account(ledger=ledger))
        except PromiseError as error:
            os._exit(3 if "is charged (spend " in error.__notes__[0] else 4)
        finally:
            os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    ended(
        lambda given: mv.release(counts, epsilon=EPSILON, method="laplace", account=given),
        mv.Account(ledger=ledger),
        ledger,
    )


def test_kept_answers_hold_no_people_and_no_exact_sums(ledger: mv.Ledger) -> None:
    users = [f"person-{at}" for at in range(200)]
    points = mv.Points.from_arrays(users, np.full(200, -73.951234), np.full(200, 40.751234))
    mv.release(points, TILING, epsilon=1, account=mv.Account(ledger=ledger, outputs=["map.tif"]))
    (path,) = ledger.path.parent.glob("*.answers")
    assert path.stat().st_mode & 0o777 == 0o600
    held = path.read_bytes()
    assert b"multiscale" in held
    assert b"person" not in held
    for value in (200.0, -73.951234, 40.751234):
        assert np.float64(value).tobytes() not in held
    assert np.int64(200 << 28).tobytes() not in held


def test_two_processes_do_not_resume_one_release(ledger: mv.Ledger) -> None:
    made = mv.release(COUNTS, epsilon=1, account=mv.Account(ledger=ledger, outputs=["map.tif"]))
    assert made.guarantee.account is not None
    other = Answers.of(ledger.path, made.guarantee.account.entries[0])
    with pytest.raises(InputError, match="another process writes it"):
        mv.release(COUNTS, epsilon=1, account=mv.Account(ledger=ledger, resume=True))
    other.close()
    assert mv.release(COUNTS, epsilon=1, account=mv.Account(ledger=ledger, resume=True)).values.any()


def test_a_search_that_found_no_region_is_an_answer(ledger: mv.Ledger) -> None:
    alone = mv.Points.from_arrays([1], [-73.95], [40.75])
    with pytest.raises(PromiseError, match="no region") as stopped:
        mv.release(alone, "quadtree:4", epsilon=2, account=mv.Account(ledger=ledger, outputs=["map.tif"]))
    (entry,) = ledger.entries()
    assert entry.status == "written"
    assert stopped.value.__notes__ == [f"epsilon about 0.2 is charged (spend {entry.id})"]
    assert charges.unwritten(ledger) == {}


def test_no_release_reads_the_whole_ledger(ledger: mv.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own lines are selected by their ids, also where another id begins alike."""
    dataset = ledger.recognise(COUNTS)
    spends = [
        ledger.spend(dataset, "1/100", method="laplace", spend=SpendId(name))
        for name in ("ab", "ab-2", "abc-2", "ab-10", "ab.1")
    ]
    assert [entry.id for entry in ledger.release("ab")] == [spends[0], spends[1], spends[3]]
    assert ledger.account(dataset).spent == Fraction(1, 20)
    assert ledger.account(dataset).releases == 5
    monkeypatch.setattr(mv.Ledger, "entries", lambda *given: pytest.fail("every line was read"))
    account = mv.Account(ledger=ledger, outputs=["map.tif"])
    made = mv.release(COUNTS, epsilon=1, account=account)
    made = mv.release(COUNTS, epsilon=1, account=mv.Account(ledger=ledger, resume=True))
    balance = account.balance(made.guarantee)
    assert balance is not None
    assert balance.spent == Fraction(21, 20)
