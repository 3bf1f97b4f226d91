"""Draw the life of a collection from its table of steps; a test checks that picture and page are current."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

from mapveil.collector.rounds.life_cycle import STEPS, Happening, State, Step
from mapveil_client.secure_sum.states import phase_name, server_phases

PAGE = Path(__file__).parent / "explanation" / "collector.md"
PICTURE = Path(__file__).parent / "_static" / "collection_states.svg"
BEGIN, END = "<!-- steps: made by docs/make_collection_diagram.py -->\n", "<!-- end of steps -->\n"

_WIDTH, _HEIGHT = 880, 316
_HALF_WIDTH, _HALF_HEIGHT = 52, 18
_ROW, _ENDED = 78, 168  # heights of the states that go on, and of the one where collections fail
_PLACES: dict[State, tuple[int, int]] = {
    State.PENDING: (68, _ROW),
    State.OPEN: (254, _ROW),
    State.RUNNING: (440, _ROW),
    State.FINISHING: (626, _ROW),
    State.DONE: (812, _ROW),
    State.ABORTED: (440, _ENDED),
}
_PHASES_TOP = 250
_STYLE = """
text { font: 13px sans-serif; fill: #222; text-anchor: middle }
.box { fill: #eef3fa; stroke: #345; rx: 8 }
.end { fill: #e4f2e4 }
.failed { fill: #f8e6e0 }
path { fill: none; stroke: #345; stroke-width: 1.4; marker-end: url(#tip) }
.fails { stroke: #b0532a; stroke-dasharray: 5 4 }
.within { stroke: #8a94a3; marker-end: none; stroke-dasharray: 2 4 }
.small { font-size: 12px; fill: #555 }
"""


def picture() -> str:
    """The SVG: states as boxes, what happens as arrows, and below them the phases of a round."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        "<title>The states of a collection, and the phases of one round</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><polygon points="0,0 10,5 0,10" fill="#345"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
    ]
    for step in STEPS:
        parts += _arrow(step)
    for state, (x, y) in _PLACES.items():
        kind = {State.DONE: "box end", State.ABORTED: "box failed"}.get(state, "box")
        parts += _box(x, y, _HALF_WIDTH, state.value, kind)
    return "\n".join([*parts, *_round(), "</svg>"]) + "\n"


def _arrow(step: Step) -> list[str]:
    """An arrow from a state to the next, named by what happens."""
    (x, y), (far, below) = _PLACES[step.state], _PLACES[step.after]
    if step.happening is Happening.FAILED:
        if x == far:
            words = _text(x + 26, (y + below) // 2 + 4, step.happening.value, "small")
            return [f'<path class="fails" d="M{x} {y + _HALF_HEIGHT}V{below - _HALF_HEIGHT}"/>', words]
        side = far + (_HALF_WIDTH if x > far else -_HALF_WIDTH)
        level = below + (8 if abs(x - far) > 200 else -8 * (x < far))  # two come from the left
        return [f'<path class="fails" d="M{x} {y + _HALF_HEIGHT}V{level}H{side}"/>']
    if abs(far - x) > 200:  # past the state between them
        top, middle = y - 58, (x + far) // 2
        return [
            f'<path d="M{x} {y - _HALF_HEIGHT}C{x + 30} {top} {far - 30} {top} {far} {y - _HALF_HEIGHT}"/>',
            _text(middle, top + 6, step.happening.value, "small"),
        ]
    return [
        f'<path d="M{x + _HALF_WIDTH} {y}H{far - _HALF_WIDTH}"/>',
        _text((x + far) // 2, y - 8, step.happening.value, "small"),
    ]


def _round() -> list[str]:
    """The phases of a round as a row of boxes, and the way back to the next round."""
    half, gap, y = 46, 128, _PHASES_TOP
    phases = server_phases(active=True)
    first = _PLACES[State.RUNNING][0] - gap * (len(phases) - 1) // 2
    parts = [_text(first - half - 62, y + 5, "a round", "small")]
    checked = [phase for phase in phases if phase not in server_phases(active=False)]
    for place, phase in enumerate(phases):
        x = first + gap * place
        words = phase_name(phase) + (" *" if phase in checked else "")
        parts += _box(x, y, half, words, "box")
        if place:
            parts.append(f'<path d="M{x - gap + half} {y}H{x - half}"/>')
    last = first + gap * (len(phases) - 1)
    low = y + 44
    parts.append(f'<path d="M{last} {y + _HALF_HEIGHT}V{low}H{first}V{y + _HALF_HEIGHT}"/>')
    parts.append(
        _text((first + last) // 2, low - 6, "next question, to those who were in the last sum", "small")
    )
    parts.append(_text(last + half + 54, y + 5, "* if active", "small"))
    return parts


def _box(x: int, y: int, half_width: int, words: str, kind: str) -> list[str]:
    return [
        f'<rect class="{kind}" x="{x - half_width}" y="{y - _HALF_HEIGHT}" '
        f'width="{2 * half_width}" height="{2 * _HALF_HEIGHT}"/>',
        _text(x, y + 5, words),
    ]


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>'


def steps_table() -> str:
    """Every step as a row of Markdown."""
    lines = ["| state | when | next |", "|---|---|---|"]
    lines += [f"| {step.state.value} | {step.happening.value} | {step.after.value} |" for step in STEPS]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with its table replaced by the current one."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + steps_table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stderr.write(f"wrote {PICTURE} and the table in {PAGE}\n")
