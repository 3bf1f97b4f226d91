"""The documentation's picture and tables are those of the code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

from mapveil_client.secure_sum.messages import LAYOUTS
from mapveil_client.secure_sum.states import ClientState, Message, ServerState

DOCS = Path(__file__).resolve().parents[2] / "docs"
REFERENCE = DOCS / "reference" / "secure-sum-messages.md"


def load():
    spec = importlib.util.spec_from_file_location("make_state_diagram", DOCS / "make_state_diagram.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_picture_and_the_table_are_current():
    made = load()
    assert made.PICTURE.read_text(encoding="utf-8") == made.picture(), (
        "run: python docs/make_state_diagram.py"
    )
    text = made.PAGE.read_text(encoding="utf-8")
    assert text == made.page(text), "run: python docs/make_state_diagram.py"


def test_the_picture_shows_every_state_and_message():
    shown = [element.text for element in ElementTree.fromstring(load().picture()).iter() if element.text]
    for state in (*ClientState, *ServerState):
        assert state.name == "ABORTED" or state.name in shown
    for message in Message:
        assert message.name in shown


def test_the_reference_lists_every_message_and_field():
    rows = re.findall(
        r"^\| (\d) \| (\w+) \| (\w+) \| (.*) \|$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [(int(number), name) for number, name, _, _ in rows] == [(int(m), m.name) for m in Message]
    for _, name, _, fields in rows:
        assert re.findall(r"`(\w+)`:", fields) == [field.name for field in LAYOUTS[Message[name]]]
