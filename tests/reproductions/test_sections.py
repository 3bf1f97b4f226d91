"""Parts of a reproduction by name."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from mapveil_client.errors import ParameterError
from reproductions.reproduction import Claim, Report, Table
from reproductions.sections import Reproduction, answer_once, chosen_sections, names_of


class Part(NamedTuple):
    key: str


PARTS = (Part("table 1"), Part("figure 10"), Part("table beyond"), Part("figure 1"))


def test_names_keep_their_order() -> None:
    assert names_of(PARTS, "table") == ("1", "beyond")
    assert names_of(PARTS, "figure") == ("10", "1")


def test_parts_are_chosen_by_kind_and_name() -> None:
    assert chosen_sections(PARTS, [], []) == PARTS
    assert chosen_sections(PARTS, ["1"], []) == (PARTS[0],)
    assert chosen_sections(PARTS, ["beyond"], ["1"]) == (PARTS[2], PARTS[3])


@pytest.mark.parametrize(
    ("tables", "figures", "said"), [(["10"], [], "table .*'10'.*1, beyond"), ([], ["2"], "figure")]
)
def test_what_is_not_there_is_refused(tables: list[str], figures: list[str], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        chosen_sections(PARTS, tables, figures)


def test_a_reproduction_tells_tables_and_verdicts() -> None:
    claim = Claim("it is so", "holds in part", "1 of 2")
    made: Reproduction[int] = Reproduction(
        (claim,), {"table 1": Report([Table("Heading", ["a"], [["7"]])])}, (1, 2), ()
    )
    text = made.text()
    assert "Heading" in text
    assert "HOLDS IN PART: it is so" in text


def test_equal_tasks_are_answered_once_and_the_longest_first() -> None:
    ran: list[int] = []

    def square(task: int) -> int:
        ran.append(task)
        return task * task

    assert answer_once({"table 1": [2, 3], "figure 1": [3, 5]}, square) == {2: 4, 3: 9, 5: 25}
    assert ran == [2, 3, 5]
    ran.clear()
    answer_once({"table 1": [2, 3], "figure 1": [3, 5]}, square, size=float)
    assert ran == [5, 3, 2]
