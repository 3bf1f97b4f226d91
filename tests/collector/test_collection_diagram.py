"""The documentation's picture and table of a collection's life are those of the code."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

from mapveil.collector.rounds.life_cycle import STEPS, State
from mapveil_client.secure_sum.states import phase_name, server_phases

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _load() -> ModuleType:
    path = DOCS / "make_collection_diagram.py"
    spec = importlib.util.spec_from_file_location("make_collection_diagram", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_picture_and_the_table_are_current() -> None:
    made = _load()
    hint = "run: python docs/make_collection_diagram.py"
    assert made.PICTURE.read_text(encoding="utf-8") == made.picture(), hint
    text = made.PAGE.read_text(encoding="utf-8")
    assert text == made.page(text), hint


def test_the_picture_shows_every_state_phase_and_happening() -> None:
    shown = [element.text for element in ElementTree.fromstring(_load().picture()).iter() if element.text]
    for state in State:
        assert shown.count(state.value) == 1
    for phase in server_phases(active=True):
        assert any(words.removesuffix(" *") == phase_name(phase) for words in shown)
    for step in STEPS:
        assert step.happening.value in shown


def test_no_arrow_leaves_a_state_that_ends() -> None:
    ends = {State.DONE, State.ABORTED}
    assert {step.state for step in STEPS}.isdisjoint(ends)
    assert {step.state for step in STEPS} | ends == set(State)
