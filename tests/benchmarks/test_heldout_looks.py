"""Trials until a row is decided: decided rows stay, clearly worse methods stop, and what goes on is the same noise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.data_sets import DataSet
from benchmarks.heldout import command
from benchmarks.heldout_looks import ERROR, Looks, Rows, epsilons_in_question, judged
from benchmarks.heldout_tables import Measured, standings
from mapveil.cli.app import run
from mapveil.evaluation.comparison import Row

DATA = DataSet("here", "test", "", "here")


def judge(before: Rows, **methods: list[float]) -> Rows:
    rows = [
        Row(name, 1.0, trial, "kl", value, 0.0)
        for name, values in methods.items()
        for trial, value in enumerate(values)
    ]
    return judged(before, standings(Measured(DATA, "central", tuple(rows)), "mine"))


def test_rows_are_judged_at_twice_the_trials_and_at_a_level_for_all_looks_together() -> None:
    looks = Looks.up_to(3, 20)
    assert looks.totals == (3, 6, 12, 20)
    assert (1 - looks.level) * len(looks.totals) == pytest.approx(ERROR)
    assert Looks.up_to(5, 3) == Looks((5,))


def test_only_methods_that_are_not_clearly_worse_go_on() -> None:
    rows = judge({}, mine=[1.0, 2.0, 3.0], near=[1.1, 1.9, 3.1], far=[5.0, 6.1, 7.0])
    assert rows["central", 1.0, "kl"].verdict == "tie"
    assert [epsilons_in_question(rows, "central", name) for name in ("mine", "near", "far")] == [
        (1.0,), (1.0,), (),
    ]  # fmt: skip
    assert epsilons_in_question(rows, "local", "mine") == ()


def test_an_undecided_row_is_decided_by_the_methods_that_went_on() -> None:
    first = {"mine": [1.0, 2.0, 3.0], "near": [1.1, 1.95, 3.1], "far": [5.0, 6.1, 7.0]}
    before = judge({}, **first)
    more = first | {
        "mine": [*first["mine"], 1.0, 1.0, 1.0],
        "near": [*first["near"], 1.2, 1.21, 1.19],
    }
    row = judge(before, **more)["central", 1.0, "kl"]
    assert (row.best_other, row.verdict, row.trials) == ("near", "win", 6)


def test_no_row_is_won_over_a_method_in_question_that_failed() -> None:
    mine, near = [1.0, 2.0, 3.0, 1.0, 1.0, 1.0], [1.1, 2.1, 3.1, 1.2, 1.21, 1.19]
    failed = [0.99, 6.1, 7.0]
    (row,) = judge({}, mine=mine, near=near, failed=failed).values()
    assert (row.best_other, row.verdict, row.unbeaten) == ("near", "tie", ())
    (row,) = judge({}, mine=mine[:3], near=near).values()
    assert row.verdict == "tie"
    (row,) = judge({}, mine=near, near=mine, failed=failed).values()
    assert row.verdict == "loss"


def test_a_decided_row_stays_as_it_was() -> None:
    before = judge({}, mine=[1.0, 2.0, 3.0], near=[1.5, 2.51, 3.49])
    assert before["central", 1.0, "kl"].verdict == "win"
    assert epsilons_in_question(before, "central", "mine") == ()
    assert judge(before, mine=[9.0, 9.0, 9.1], near=[1.5, 2.51, 3.49]) == before


def test_the_command_repeats_undecided_rows_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "raster.npy", np.random.default_rng(0).poisson(9, (4, 4)))
    arguments = [
        str(tmp_path),
        "--trust",
        "central",
        "--trials",
        "2",
        "--max-trials",
        "4",
        "--epsilon",
        "0.1,5",
    ]
    with pytest.raises(SystemExit) as ended:
        run([*arguments, "--max-cells", "16", "--workers", "1", "--json"], command, "heldout")
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert (found["settings"]["max_trials"], found["settings"]["level"]) == (4, 0.975)
    assert {row["trials"] for row in found["rows"]} <= {2, 4}
    assert all(row["trials"] == 4 for row in found["rows"] if row["verdict"] == "tie")
    (kl,) = (each for each in found["means"] if (each["method"], each["metric"]) == ("central/laplace", "kl"))
    assert kl["test"]["sets"] == 1
