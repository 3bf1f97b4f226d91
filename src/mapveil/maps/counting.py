"""The number of users that one user counts as, in words: one function for terminals, pages, pictures and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def counting_note(parameters: Mapping[str, Any], divided: str = "") -> str:
    """A note on the users that one user counts as, by the parameters of a map's mechanism.

    Parameters
    ----------
    parameters : mapping
        Of the release; ``windows`` where it is a series.
    divided : str
        What a user's 1 is divided over, or the one cell it is in, such as "divided over their trips"; may be empty.

    Examples
    --------
    >>> counting_note({}, "divided over the cells they were in")
    'each user counts 1, divided over the cells they were in'
    >>> counting_note({"windows": {}, "windows_per_user": 4})
    'up to 4 windows of a user count, 1 in each: one user may count as 4'
    """
    most = parameters.get("windows_per_user")
    rest = f", {divided}" if divided else ""
    if parameters.get("windows") is None:
        return f"each user counts 1{rest}"
    if parameters.get("per") == "user-week":
        return f"each user counts 1 in each week{rest}"
    if most is None:
        return f"over all windows together each user counts 1{rest}"
    if most == 1:
        return f"one window of a user counts, 1 in it{rest}"
    return f"up to {most} windows of a user count, 1 in each{rest}: one user may count as {most}"
