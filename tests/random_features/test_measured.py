"""What is warned of, and what is not."""

from __future__ import annotations

import pytest

from mapveil.privacy.claim import Measured, Quantity
from mapveil.random_features.measured import FEW_PLACES, SMALL_PART, hiding_facts, hiding_warnings
from mapveil.random_features.posterior import Hiding

WELL = Hiding(error_m=3900.0, worst_error_m=3000.0, places=200.0, prior_error_m=4000.0)


def warned(**changes: float) -> tuple[str, ...]:
    facts = hiding_facts(WELL._replace(**changes), "a server", unit="m", cell=161.3)
    return hiding_warnings(facts)


def test_devices_that_are_well_hidden_are_not_warned_of() -> None:
    assert warned() == ()
    assert warned(places=FEW_PLACES) == ()
    assert warned(error_m=SMALL_PART * 4000, worst_error_m=SMALL_PART * 4000) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"places": FEW_PLACES - 0.1},
            "hidden among few places: 19.9 places left, error 3900 m (4000 m without",
        ),
        (
            {"error_m": SMALL_PART * 4000 - 1, "worst_error_m": 0.0},
            "as good as found: 200 places left, error 999 m",
        ),
        ({"worst_error_m": 50.0}, "one device in twenty that answered is found to within 50 m or less"),
        ({"places": 1.0}, "as good as found: 1 place left"),
    ],
)
def test_what_is_small_is_warned_of(changes: dict[str, float], said: str) -> None:
    (text,) = warned(**changes)
    assert text.level == "warning"
    assert text == f"WARNING: {text.text}"
    assert said in text
    assert text.endswith("against a server")


def test_each_adversary_is_judged_by_itself() -> None:
    found = hiding_facts(WELL, "a server", unit="m", cell=1) + hiding_facts(
        WELL._replace(places=2.5), "another", unit="m", cell=1
    )
    (text,) = hiding_warnings(found)
    assert text.endswith("against another")


def test_other_measurements_are_passed_over() -> None:
    assert hiding_warnings((Measured(Quantity.POSTERIOR_ERROR, 0.0, "m", "any server"),)) == ()
    assert hiding_warnings(()) == ()
