"""The table of charges: the docs hold its rows, every row has tests, and an abort costs what its row says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from mapveil.collector.rounds.charge_table import CHARGE_TABLE, abort_rows
from mapveil.collector.rounds.life_cycle import State
from tests.test_adversaries import collected

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "explanation" / "collector.md").read_text("utf-8")
LEFT_OUT, DEVICES, ENGINE = (
    f"tests/{path}"
    for path in ("collector/engine/test_left_out_shards.py", "client/test_charges.py", "collector/engine/")
)
TESTS = (
    (f"{ENGINE}test_endings.py::test_a_deadline_with_fewer_than_the_minimum_aborts",
     f"{DEVICES}::test_joining_alone_costs_nothing"),
    (f"{LEFT_OUT}::test_an_operator_s_abort_charges_those_whose_survivors_were_told",
     f"{DEVICES}::test_a_round_that_is_run_again_costs_once"),
    (f"{DEVICES}::test_left_out_before_its_vector_was_sent_costs_nothing",),
    (f"{LEFT_OUT}::test_a_malformed_input_is_refused_at_the_door_and_costs_its_device_only",
     f"{DEVICES}::test_a_vector_that_was_sent_is_charged_whatever_becomes_of_it"),
    (f"{LEFT_OUT}::test_one_bad_device_of_the_only_shard_costs_its_own_report_and_is_named",
     f"{DEVICES}::test_a_vector_that_was_sent_is_charged_whatever_becomes_of_it"),
    (f"{ENGINE}test_dropouts.py::test_a_shard_left_out_before_its_survivors_were_told_is_not_charged",
     f"{DEVICES}::test_a_vector_that_was_sent_is_charged_whatever_becomes_of_it"),
    (f"{LEFT_OUT}::test_an_operator_s_abort_charges_those_whose_survivors_were_told",
     f"{DEVICES}::test_a_vector_that_was_sent_is_charged_whatever_becomes_of_it"),
    (f"{LEFT_OUT}::test_an_operator_s_abort_charges_those_whose_survivors_were_told",),
    (f"{LEFT_OUT}::test_one_bad_device_costs_its_shard_at_most",),
    ("tests/client/test_participation.py::test_a_local_report_is_made_once_and_charged_before_it_leaves",),
    ("tests/client/test_device_client.py::test_a_collection_that_is_gone_holds_no_budget_and_is_answered_no_more",
     "tests/client/test_device_client.py::test_what_was_charged_stays_charged_when_the_collection_is_gone"),
)  # fmt: skip


def test_the_page_holds_the_rows_of_the_table() -> None:
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in PAGE.splitlines()]
    start = rows.index(
        (
            "what ends a device's part in a round of epsilon",
            "the collector's ledger",
            "the device's own account",
        )
    )
    assert rows[start + 2 : start + 2 + len(CHARGE_TABLE)] == [each[:3] for each in CHARGE_TABLE]
    assert len(rows[start + 2 + len(CHARGE_TABLE)]) == 1  # and no more


def test_every_row_has_its_tests() -> None:
    assert len(TESTS) == len(CHARGE_TABLE)
    missing = [
        each for row in TESTS for each in row if each.split("::")[1] not in collected(each.split("::")[0])
    ]
    assert not missing


@pytest.mark.parametrize("phase", [None, "keys", "shares", "inputs", "consents", "answers"])
def test_the_row_of_a_phase_is_what_an_abort_in_it_charges(
    engine, store, crowd_of, opened, make_spec, phase
) -> None:
    crowd = crowd_of(store, 24)
    id, _ = opened(engine, make_spec("distributed", method="uniform"))
    if phase is not None:
        asyncio.run(crowd.join(engine, id))
        engine.tick()
        crowd.play_until(engine, id, phase)
        asyncio.run(crowd.turn(engine, id))
    (row,) = [each for each in engine.collection(id)["abort_charges"] if each["now"]]
    assert (phase or "joining") in row["phases"]
    engine.abort(id, "operator 1", "a test")
    charged = sum(each["devices"] for each in engine.ledger())
    assert (row["ledger"], charged) in {("0", 0), ("epsilon", 24)}


@pytest.mark.parametrize("trust", ["distributed", "local"])
def test_what_has_ended_is_in_no_phase_that_an_abort_would_charge(
    engine, store, crowd_of, opened, make_spec, trust
) -> None:
    crowd_of(store, 1)  # and the operator
    id, _ = opened(engine, make_spec(trust))
    assert any(row["now"] for row in engine.collection(id)["abort_charges"])
    engine.abort(id, "operator 1", "a test")
    assert not any(row["now"] for row in engine.collection(id)["abort_charges"])


def test_every_phase_has_one_row_and_reports_their_own(engine, store, crowd_of, opened, make_spec) -> None:
    crowd_of(store, 1)  # and the operator
    _, terms = opened(engine, make_spec("distributed"))
    phases = [phase for row in abort_rows(terms, State.RUNNING, "keys") for phase in row["phases"]]
    assert phases == ["joining", "keys", "shares", "inputs", "consents", "answers"]
    assert not any(row["now"] for row in abort_rows(terms, State.PENDING, None))
    (finishing,) = [row for row in abort_rows(terms, State.FINISHING, None) if row["now"]]
    assert finishing["ledger"] == "epsilon"
    _, terms = opened(engine, make_spec("local"))
    (report,) = abort_rows(terms, State.OPEN, None)
    assert (report["device"], report["now"]) == ("epsilon", True)
    _, terms = opened(engine, make_spec("random-features"))
    assert abort_rows(terms, State.OPEN, None) == []
    assert re.search(r"`tests/collector/engine/test_charge_table.py`", PAGE)
