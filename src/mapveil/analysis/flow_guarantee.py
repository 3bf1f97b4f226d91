"""The promise of a pair of reports about one trip."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Literal

from mapveil.local.mechanism import LocalMechanism
from mapveil.privacy.guarantee import Guarantee, Share


def flow_guarantee(
    mechanism: LocalMechanism, unit: Literal["user", "trip"], *, seeded: bool = False
) -> Guarantee:
    """The promise to those who report both ends of a trip, each with half of the mechanism's epsilon.

    By sequential composition it is the whole epsilon, however much the two ends have to do with each other.

    Parameters
    ----------
    mechanism : LocalMechanism
        Its epsilon is that of the pair.
    unit : str
        Whether a ``"user"`` reports one trip, or every ``"trip"`` is reported and the promise is about one of them.
    seeded : bool
        Whether the randomness can be repeated.
    """
    half: Fraction = mechanism.budget / 2
    base = mechanism.guarantee(seeded=seeded)
    sends, replaced = (
        ("Each user sends two reports, about origin and destination of one trip", "one user's trip")
        if unit == "user"
        else ("Each trip has two reports, about its origin and its destination", "one trip")
    )
    silent = "that a device reports tells that it has a trip in the region; "
    return replace(
        base,
        unit="user" if unit == "user" else "report",
        bounding=(
            f"{sends}, randomized on the device with half of epsilon each: nobody else ever has the trip."
        ),
        neighbours=(
            f"{silent if mechanism.outside == 'drop' else ''}{replaced} replaced by any other between two places of "
            "the map"
        ),
        assumptions=(
            "one device per user, one pair of reports per device: the epsilons of several reports add up"
            if unit == "user"
            else "the promise is about one trip: the epsilons of a user's trips add up",
            *base.assumptions[1:],
        ),
        shares=(Share("the origin", half), Share("the destination", half)),
    )
