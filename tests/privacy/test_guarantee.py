"""The guarantee: prints what was promised, and reads back as it was."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.privacy.guarantee import Guarantee, Share


def guarantee(**changes):
    record = {
        "trust": "central",
        "epsilon": Fraction(1, 3),
        "bounding": "Each user counts 1.",
        "neighbours": "add or remove all rows of one user",
        "assumptions": ("the curator keeps the table secret",),
        "shares": (Share("every cell", Fraction(1, 6)), Share("the region", Fraction(1, 6))),
    }
    return Guarantee(**{**record, **changes})


epsilons = st.fractions(min_value=Fraction(1, 10**6), max_value=100)
texts = st.text(max_size=30)


@given(epsilons, st.floats(0, 0.1), texts, texts, st.lists(texts, max_size=3), st.booleans())
def test_json_gives_the_same_guarantee_back(epsilon, delta, bounding, neighbours, assumptions, seeded):
    made = Guarantee(
        trust="local",
        epsilon=epsilon,
        delta=delta,
        unit="report",
        bounding=bounding,
        neighbours=neighbours,
        assumptions=tuple(assumptions),
        shares=(Share("all", epsilon),),
        seeded=seeded,
    )
    assert Guarantee.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_the_repr_says_everything():
    shown = repr(guarantee())
    for part in (
        "0.333333-DP per user",
        "trust: central",
        "Each user counts 1.",
        "add or remove all rows of one user",
        "the curator keeps the table secret",
        "0.166667 on every cell",
    ):
        assert part in shown
    assert "seeded" not in shown
    assert "delta" not in shown


@pytest.mark.parametrize("say", [repr, Guarantee.in_words, lambda made: json.dumps(made.to_dict())])
def test_a_seed_is_never_kept_quiet(say):
    seeded = guarantee(seeded=True)
    assert "not for release" in say(seeded).lower()
    assert not seeded.for_release
    assert guarantee().for_release


def test_delta_is_said_in_words_and_in_the_repr():
    assert "plus a probability of 1e-06" in guarantee(delta=1e-6).in_words()
    assert "delta 1e-06" in repr(guarantee(delta=1e-6))


def test_words_name_the_factor_the_unit_and_the_assumptions():
    words = guarantee(epsilon=Fraction(1)).in_words()
    assert "at most e^1 times" in words
    assert "one user" in words
    assert "the curator keeps the table secret" in words
