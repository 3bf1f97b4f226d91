"""Draw the secure sum's states from its table of steps; a test checks that picture and page are current."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

from mapveil_client.secure_sum.states import (
    CLIENT_STEPS,
    SERVER_STEPS,
    ClientState,
    Message,
    ServerState,
    Signal,
    Step,
)

PAGE = Path(__file__).parent / "explanation" / "secure-sums.md"
PICTURE = Path(__file__).parent / "_static" / "secure_sum_states.svg"
BEGIN, END = "<!-- steps: made by docs/make_state_diagram.py -->\n", "<!-- end of steps -->\n"

_STEP, _HALF_WIDTH, _HALF_HEIGHT = 104, 66, 17
_WIDTH, _LEFT, _RIGHT, _TOP = 880, 250, 630, 70
_PLACES: dict[ClientState | ServerState, tuple[int, int]] = {
    **{
        state: (_LEFT, _TOP + state.value * _STEP)
        for state in ClientState
        if state is not ClientState.ABORTED
    },
    # Half a row lower: what one side sends while it changes its state, the other side expects in its own.
    **{
        state: (_RIGHT, _TOP + state.value * _STEP + _STEP // 2)
        for state in ServerState
        if state is not ServerState.ABORTED
    },
}
_STYLE = """
text { font: 13px sans-serif; fill: #222; text-anchor: middle }
.lane { font-weight: bold; font-size: 15px }
.box { fill: #eef3fa; stroke: #345; rx: 8 }
.end { fill: #e4f2e4 }
path { fill: none; stroke: #345; stroke-width: 1.4; marker-end: url(#tip) }
.message { stroke: #b0532a }
.active { stroke-dasharray: 5 4 }
.small { font-size: 12px; fill: #555 }
"""


def event_name(event: Message | Signal) -> str:
    """An event as a person reads it."""
    return event.name if isinstance(event, Message) else event.value


def picture() -> str:
    """The SVG: states as boxes, steps as arrows down, messages as arrows across."""
    height = _TOP + 6 * _STEP + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        "<title>The states of a client and of the server, and the messages between them</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><polygon points="0,0 10,5 0,10" fill="#345"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        _text(_LEFT, 28, "client", "lane"),
        _text(_RIGHT, 28, "server", "lane"),
    ]
    receivers = {
        step.event: step.state for step in (*CLIENT_STEPS, *SERVER_STEPS) if isinstance(step.event, Message)
    }
    steps = [step for step in (*CLIENT_STEPS, *SERVER_STEPS) if step.event is not Signal.ABORT]
    for step in steps:
        if step.after is not step.state:
            parts += _step(step, receivers)
    for state, (x, y) in _PLACES.items():
        kind = "box end" if state.name == "DONE" else "box"
        parts.append(
            f'<rect class="{kind}" x="{x - _HALF_WIDTH}" y="{y - _HALF_HEIGHT}" '
            f'width="{2 * _HALF_WIDTH}" height="{2 * _HALF_HEIGHT}"/>'
        )
        parts.append(_text(x, y + 5, state.name))
    parts.append(_text(_LEFT, height - 12, "dashed: with the consistency check", "small"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>'


def _step(step: Step[ClientState] | Step[ServerState], receivers: dict) -> list[str]:
    """An arrow from a state to the next, and one to whoever expects the message that it sends."""
    (x, top), (_, bottom) = _PLACES[step.state], _PLACES[step.after]
    dashes = " active" if step.active else ""
    outwards = -1 if x == _LEFT else 1
    label = event_name(step.event) if isinstance(step.event, Signal) else ""
    if step.active is False:  # past the state that only the check needs
        side, far = x + outwards * _HALF_WIDTH, x + outwards * (_HALF_WIDTH + 70)
        words = ["without the check,", f"on {event_name(step.event)}:"]
        words += [step.sends.name] if step.sends is not None else []
        beside, middle = x + outwards * (_HALF_WIDTH + 112), (top + bottom) // 2 - 6
        return [
            f'<path d="M{side} {top}C{far} {top + 30} {far} {bottom - 30} {side} {bottom}"/>',
            *(_text(beside, middle + 15 * line, word, "small") for line, word in enumerate(words)),
        ]
    made = [f'<path class="{dashes.strip()}" d="M{x} {top + _HALF_HEIGHT}V{bottom - _HALF_HEIGHT}"/>']
    middle = (top + bottom) // 2
    if label:
        made.append(_text(x + outwards * 46, middle - 8, label, "small"))
    if step.sends is not None:
        goal = _PLACES[receivers[step.sends]][0] + outwards * _HALF_WIDTH
        made.append(f'<path class="message{dashes}" d="M{x - outwards * 3} {middle}H{goal}"/>')
        made.append(_text((x + goal) // 2, middle - 7, step.sends.name))
    return made


def steps_table() -> str:
    """Every step as a row of Markdown."""
    lines = ["| party | state | on | sends | next | check |", "|---|---|---|---|---|---|"]
    for party, steps in (("client", CLIENT_STEPS), ("server", SERVER_STEPS)):
        for step in steps:
            sends = f"`{step.sends.name}`" if step.sends is not None else ""
            check = {None: "", True: "with", False: "without"}[step.active]
            event = f"`{step.event.name}`" if isinstance(step.event, Message) else step.event.value
            lines.append(f"| {party} | {step.state.name} | {event} | {sends} | {step.after.name} | {check} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with its table replaced by the current one."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + steps_table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stderr.write(f"wrote {PICTURE} and the table in {PAGE}\n")
