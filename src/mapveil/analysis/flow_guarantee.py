"""The promise of a pair of reports about one trip."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Literal

from mapveil.local.local_mechanism import LocalMechanism
from mapveil.privacy.claim import Assumes, ContributionBound, Norm, Share, Unit
from mapveil.privacy.guarantee import Guarantee


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
    one = unit == "user"
    return replace(
        base,
        unit=Unit.USER if one else Unit.TRIP,
        bound=ContributionBound(Norm.REPORTS, Fraction(2)),
        assumptions=base.assumptions
        if one
        else (Assumes.COMPOSES(), *base.assumes_besides(Assumes.ONE_CLIENT, Assumes.ONE_CONTRIBUTION)),
        shares=(Share("the origin", half), Share("the destination", half)),
    )
