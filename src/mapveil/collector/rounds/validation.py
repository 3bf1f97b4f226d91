"""Validation errors of a body, in words: fields are named, and no value is repeated."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Tag, model_validator
from pydantic_core import PydanticCustomError

_FIELD_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_\-]{0,39}")
EITHER: Final = Tag("|")
"""Marks each alternative of a field: pydantic puts an alternative's tag into the place of an error."""

_NEEDED: Final[dict[str, str]] = {}
_KINDS: Final = {
    "missing": "is required",
    "extra_forbidden": "is no field here",
    "json_invalid": "must be JSON",
}
_MOST_MEMBERS: Final = 64
"""Most members of an object, several times the fields of any: pydantic makes an error of each that is unknown."""
_MOST: Final = 3  # faults that are told
_MOST_READ: Final = 1000  # errors of pydantic that are read: a name of a window each has one


def worded(pattern: str, needed: str) -> str:
    """A pattern of a text that is accepted, with what is needed in words: ``must be NEEDED``."""
    _NEEDED[pattern] = needed
    return pattern


ONE_LINE: Final = worded(r"^[^\x00-\x1f\x7f]+$", "one line of printable text")


def refuse_many_members(value: Any) -> Any:
    """Refuse an object of a body with too many members, before each of them is looked at."""
    if isinstance(value, Mapping) and len(value) > _MOST_MEMBERS:
        raise PydanticCustomError(
            "many_members", f"must have at most {_MOST_MEMBERS} members, not {len(value)}"
        )
    return value


class StrictModel(BaseModel):
    """A body that is accepted: nothing is converted, nothing unknown is passed over."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    _few_members = model_validator(mode="before")(refuse_many_members)


def validation_text(problems: Sequence[Mapping[str, Any]]) -> str:
    """One line about what is wrong with a body: names fields, never repeats a value.

    Parameters
    ----------
    problems : sequence of mapping
        Errors of pydantic.

    Examples
    --------
    >>> validation_text([{"loc": ("devices",), "msg": "Input should be greater than or equal to 3"}])
    'devices must be greater than or equal to 3'
    """
    faults: dict[tuple[str, ...], list[str]] = {}
    for problem in problems[:_MOST_READ]:
        told = faults.setdefault(_place(problem), [])
        if (needed := _needed(problem)) not in told:
            told.append(needed)
    # An alternative that fails as a whole says nothing beside one that fails in a part.
    above = {at[:n] for at in faults for n in range(len(at))}
    places = [at for at in faults if at not in above]
    lines = [f"{'.'.join(at) or 'body'} {', or '.join(faults[at])}" for at in places[:_MOST]]
    more = "many" if len(problems) > _MOST_READ else len(places) - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more else "")


def _place(problem: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of a field's name; a name that nobody would give may be a token or a location, and is not repeated."""
    parts = list(problem.get("loc", ()))
    # The name of a field that is none is its sender's, whatever it looks like.
    own = parts[-1:] if problem.get("type") == "extra_forbidden" else []
    named = [part for part in parts[: len(parts) - len(own)] if not str(part).startswith(EITHER.tag)] + own
    return tuple(
        str(part) if isinstance(part, int) or _FIELD_NAME.fullmatch(part) else "a name" for part in named
    )


def _needed(problem: Mapping[str, Any]) -> str:
    kind, context = problem.get("type"), problem.get("ctx", {})
    if kind == "string_pattern_mismatch":
        return f"must be {_NEEDED.get(context.get('pattern'), 'of another form')}"
    text = _KINDS.get(str(kind)) or str(problem.get("msg", "is not accepted"))[:200]
    text = re.sub(r"^\w+ should ", "must ", text).replace(" after validation", "")
    return re.sub(r" valid dictionary( or instance of \w+)?", "n object", text)
