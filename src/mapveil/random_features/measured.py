"""Measured hiding of devices: the facts of a guarantee, and warnings."""

from typing import Final

from mapveil.maps.scene import Note
from mapveil.privacy.claim import Measured, Quantity
from mapveil.random_features.posterior import Hiding

FEW_PLACES: Final = 20
"""Equally likely places below which a warning is given."""

SMALL_PART: Final = 0.25
"""Fraction of the error without a report below which a posterior error gives a warning."""

_ERROR, _TWENTIETH = Quantity.POSTERIOR_ERROR, Quantity.WORST_ERROR
_BLIND, _PLACES = Quantity.PRIOR_ERROR, Quantity.PLACES_LEFT


def hiding_facts(found: Hiding, against: str, *, unit: str, cell: float) -> tuple[Measured, ...]:
    """The measurements as a guarantee carries them.

    Parameters
    ----------
    found : Hiding
        Measurements of :func:`mapveil.random_features.posterior.hiding`.
    against : str
        The adversary, such as "a server that knows the region only".
    unit : str
        Unit of lengths: ``m``, or ``cells`` where the region is nowhere on Earth.
    cell : float
        Side of the prior's cells, in that unit.
    """
    return (
        Measured(_ERROR, found.error_m, unit, against),
        Measured(_TWENTIETH, found.worst_error_m, unit, against),
        Measured(_BLIND, found.prior_error_m, unit, against),
        Measured(_PLACES, found.places, f"equally likely cells of {cell:.3g} {unit}", against),
    )


def hiding_warnings(measured: tuple[Measured, ...]) -> tuple[Note, ...]:
    """One sentence for each adversary that is left with few places, or with a small error.

    Measurements other than those of :func:`hiding_facts` are ignored.

    Examples
    --------
    >>> found = Hiding(error_m=0.0, worst_error_m=0.0, places=1.0, prior_error_m=4000.0)
    >>> for text in hiding_warnings(hiding_facts(found, "a server", unit="m", cell=150)):
    ...     print(text[:72])
    WARNING: a device that answered is as good as found: 1 place left, error
    """
    said = []
    for against in dict.fromkeys(each.against for each in measured):
        facts = {each.quantity: each for each in measured if each.against == against}
        if not {_ERROR, _TWENTIETH, _BLIND, _PLACES} <= facts.keys():
            continue
        places, blind = facts[_PLACES].value, facts[_BLIND].value
        few = places < FEW_PLACES
        small = facts[_ERROR].value < SMALL_PART * blind
        some = facts[_TWENTIETH].value < SMALL_PART * blind
        if not (few or small or some):
            continue
        unit = facts[_ERROR].unit
        left = f"{_three(places)} {'place' if places < 1.5 else 'places'} left"
        error = f"error {_three(facts[_ERROR].value)} {unit} ({_three(blind)} {unit} without the report)"
        if places < 2 or small:
            text = f"a device that answered is as good as found: {left}, {error}"
        elif few:
            text = f"a device that answered is hidden among few places: {left}, {error}"
        else:
            least = f"{_three(facts[_TWENTIETH].value)} {unit}"
            text = (
                f"one device in twenty that answered is found to within {least} or less ({left} on average)"
            )
        said.append(Note(f"{text}, against {against}", "warning"))
    return tuple(said)


def _three(value: float) -> str:
    return f"{float(f'{value:.3g}'):g}"
