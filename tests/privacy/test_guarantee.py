"""Guarantees: typed, read back from JSON as they were, and rendered in one order."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil
import mapveil_client
from mapveil.mechanisms.methods import METHODS
from mapveil.privacy import promise, promise_words
from mapveil.privacy.claim import (
    AccountReference,
    Adversary,
    Assumes,
    ContributionBound,
    Measured,
    Neighbouring,
    Norm,
    Quantity,
    Reveals,
    Share,
    TrustModel,
    Unit,
)
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import ParameterError


def guarantee(**changes: Any) -> Guarantee:
    record = {
        "model": TrustModel.CURATOR,
        "neighbours": Neighbouring.ADD_OR_REMOVE,
        "epsilon": Fraction(1, 3),
        "adversary": Adversary.RELEASE,
        "assumptions": (Assumes.TABLE_SECRET(),),
        "shares": (Share("every cell", Fraction(1, 6)), Share("the region", Fraction(1, 6))),
    }
    return Guarantee(**{**record, **changes})


fractions = st.fractions(min_value=Fraction(1, 10**6), max_value=100)
texts = st.text(max_size=30)
numbers = st.floats(-1e9, 1e9)
parameters = st.dictionaries(st.sampled_from(["radius_m", "tolerated", "codes"]), numbers)


@given(
    made=st.builds(
        Guarantee,
        model=st.sampled_from(TrustModel),
        unit=st.sampled_from(Unit),
        neighbours=st.sampled_from(Neighbouring),
        epsilon=fractions,
        delta=st.fractions(0, Fraction(1, 2)),
        adversary=st.sampled_from(Adversary),
        bound=st.none()
        | st.builds(ContributionBound, st.sampled_from(Norm), fractions, st.none() | fractions),
        disclosure=st.none()
        | st.builds(lambda kind, given: kind(**given), st.sampled_from(Reveals), parameters),
        assumptions=st.lists(
            st.builds(lambda kind, given: kind(**given), st.sampled_from(Assumes), parameters), max_size=3
        ).map(tuple),
        shares=st.lists(st.builds(Share, texts, fractions), max_size=2).map(tuple),
        measured=st.lists(
            st.builds(Measured, st.sampled_from(Quantity), numbers, texts, texts), max_size=2
        ).map(tuple),
        account=st.none()
        | st.builds(
            AccountReference,
            st.lists(texts, max_size=2).map(tuple),
            st.none() | texts,
            *[st.none() | fractions] * 3,
        ),
        simulated=st.booleans(),
        seeded=st.booleans(),
    )
)
def test_json_gives_the_same_fields_back(made: Guarantee) -> None:
    from mapveil.privacy.claim import Claim

    assert Guarantee.from_dict(json.loads(json.dumps(Claim.to_dict(made)))) == made


def test_an_epsilon_needs_a_neighbouring_relation_and_delta_a_range() -> None:
    with pytest.raises(ParameterError, match="neighbouring relation"):
        guarantee(neighbours=None)
    with pytest.raises(ParameterError, match="neighbouring relation"):
        guarantee(epsilon=None)
    with pytest.raises(ParameterError, match="delta must be"):
        guarantee(delta=Fraction(11, 10))


def test_every_term_has_words() -> None:
    assert set(promise_words.MODELS) == set(TrustModel)
    assert set(promise_words.ADVERSARIES) == set(Adversary)
    assert set(promise_words.ASSUMPTIONS) == set(Assumes)
    assert set(promise_words.NEIGHBOURS) == set(Neighbouring)


@pytest.mark.parametrize("say", [repr, Guarantee.in_words, lambda made: json.dumps(made.to_dict())])
def test_a_seed_and_a_simulation_are_named_everywhere(say: Any) -> None:
    assert "not for release" in say(guarantee(seeded=True)).lower()
    assert "simulation" in say(guarantee().as_simulation()).lower()
    assert "simulation" not in say(guarantee()).lower()
    assert guarantee(seeded=True).seeded
    assert not guarantee().seeded


def test_delta_is_additive_slack() -> None:
    made = guarantee(delta=Fraction(1, 10**6))
    for text in (made.in_words(), repr(made)):
        assert "1e-06" in text
        assert "probability that" not in text
    assert "Leaving delta aside" in made.in_words()
    assert "pure" in guarantee().promise.line
    assert "pure" not in made.promise.line


def test_a_belief_bound_names_its_hypotheses() -> None:
    one = Fraction(1)
    both = guarantee(epsilon=one).in_words()
    assert "presence and absence of one user for equally likely can become at most 73.11 %" in both
    assert "between two possible locations, at most 88.08 % (factor e^(2 epsilon) = 7.39)" in both
    assert "a contribution and none" in guarantee(epsilon=one, neighbours=Neighbouring.ZERO_OUT).in_words()
    replaced = guarantee(epsilon=one, neighbours=Neighbouring.REPLACE_ONE).in_words()
    assert "73.11 %" in replaced
    for text in ("88", "added or removed", "absence", "2 epsilon"):
        assert text not in replaced


@given(st.fractions(Fraction(1, 10**6), 60))
def test_no_belief_is_called_certain_or_is_below_the_truth(epsilon: Fraction) -> None:
    told = re.findall(
        r"become (at most|over) ([\d.]+) %|locations, (at most|over) ([\d.]+) %",
        guarantee(epsilon=epsilon).in_words(),
    )
    ((one, first, *_), (*_, other, second)) = told
    for word, percent, exponent in ((one, first, epsilon), (other, second, 2 * epsilon)):
        truth = 100 / (1 + math.exp(-float(exponent)))
        assert float(percent) < 100
        assert (truth > float(percent)) == (word == "over") or abs(truth - float(percent)) < 1e-9


def test_a_seeded_answer_promises_nothing_to_whoever_knows_the_seed() -> None:
    made = guarantee(epsilon=Fraction(1), seeded=True).promise
    assert made.headline == "No bound for whoever knows the seed"
    assert "For whoever does not know the seed, if all rows of one user" in made.sentences[1]
    assert made.sentences[2].startswith(
        "Somebody who does not know the seed and who holds presence and absence"
    )
    assert "seed" not in " ".join(guarantee(epsilon=Fraction(1)).promise.sentences)


@pytest.mark.parametrize(
    ("epsilon", "factor", "title"),
    [
        (Fraction(3, 2), "4.49", "(1.5, 0)-DP"),
        (Fraction(7, 2), "33.2", "(3.5, 0)-DP"),
        (Fraction(10), "22100", "(10, 0)-DP"),
        (Fraction(1, 100), "1.0101", "(0.01, 0)-DP"),
        (Fraction(1, 3), "1.4", "(1/3, 0)-DP"),
        (Fraction(1234561, 10**7), "1.14", "(0.1234561, 0)-DP"),
        (Fraction(164926744167, 1 << 40), "1.17", "(0.150001, 0)-DP"),
        (Fraction(1000), "1.98·10^434", "(1000, 0)-DP"),
        (Fraction(10**12), "1.79·10^434294481903", "(1e+12, 0)-DP"),
    ],
)
def test_bounds_are_rounded_up(epsilon: Fraction, factor: str, title: str) -> None:
    made = guarantee(epsilon=epsilon).promise
    marks = ", large epsilon: little protection" * (epsilon > 10)
    said = f"With or without one user, any outcome is at most {factor} times as likely"
    assert (made.headline, made.title) == (said, f"user-level, add-or-remove, {title}, pure{marks}")


@pytest.mark.parametrize(
    ("neighbours", "epsilon", "told"),
    [
        (Neighbouring.ADD_OR_REMOVE, 12, "presence and absence of one user can become 163000 to 1"),
        (Neighbouring.ZERO_OUT, 11, "a contribution and none of one user can become 59900 to 1"),
        (Neighbouring.REPLACE_ONE, 14, "two possible values of one user can become more than a million to 1"),
        (Neighbouring.REPLACE_ONE, 10**12, "one user can become more than a million to 1"),
    ],
)
def test_a_large_epsilon_is_told_in_odds(neighbours: Neighbouring, epsilon: int, told: str) -> None:
    made = guarantee(neighbours=neighbours, epsilon=Fraction(epsilon))
    (warning,) = made.promise.warnings
    assert warning.startswith("LARGE EPSILON")
    assert told in warning
    assert "large epsilon" in repr(made)
    assert "inf" not in made.in_words()
    assert guarantee(epsilon=Fraction(10)).promise.warnings == ()


@given(fractions, st.fractions(Fraction(1, 10**12), Fraction(1, 2)))
def test_no_printed_bound_is_below_the_truth(epsilon: Fraction, delta: Fraction) -> None:
    told = re.search(r"\((.*), (.*)\)-DP", guarantee(epsilon=epsilon, delta=delta).promise.title)
    assert told is not None
    assert Fraction(told[1]) >= epsilon
    assert float(told[2]) >= float(delta) * (1 - 1e-14)


def test_small_fractions_of_clients_are_printed() -> None:
    assumed = Assumes.DROPOUT(tolerated=0.125, corrupt=0.005)
    line = guarantee(assumptions=(assumed,)).promise.line
    assert "at most 12.5 % of a shard's clients drop out" in line
    assert "at most 0.5 % add no noise" in line


_NEEDED: dict[str, dict[str, float]] = {
    "federated-kde": {"bandwidth_m": 100},
    "planar-laplace": {"bandwidth_m": 100, "radius_m": 200},
    "fourier-kde": {},
    "zero-features": {},
}


def _all() -> list[Guarantee]:
    """The guarantee of every method of the table."""
    return [
        method.make(None, _NEEDED[method.name]).guarantee()
        if method.trust == TrustModel.RANDOM_FEATURES
        else method.make(1, {}).guarantee()
        for method in METHODS
    ]


@pytest.mark.parametrize("made", _all(), ids=[f"{each.trust}-{each.name}" for each in METHODS])
@pytest.mark.parametrize("change", [{}, {"simulated": True}, {"seeded": True}])
def test_every_method_is_rendered_in_one_order_and_in_its_terms(made: Guarantee, change: Any) -> None:
    made = replace(made, **change)
    names = [name for name, _ in made.promise.rows]
    order = ["unit", "neighbours", "(ε, δ)", "adversary", "assumes"]
    assert list(dict.fromkeys(names))[: len(order)] == order
    line = made.promise.line
    places = [
        line.index(text)
        for text in (
            f"{made.unit}-level",
            promise._relation(made),
            "DP" if made.epsilon else "no epsilon",
            "adversary: ",
            "assumptions: ",
        )
    ]
    assert places == sorted(places)
    words = made.in_words()
    assert "this map" not in words
    assert ("SIMULATION" in words) == made.simulated
    assert ("NOT differential privacy" in words) == (made.epsilon is None)
    if made.neighbours is not Neighbouring.ADD_OR_REMOVE:
        assert "added or removed" not in words


TEXT = (
    r"(promise\.(label|headline|sentences|line|listing|rows|warnings)|in_words\(\)|repr\([a-z_.]*guarantee\))"
)
JUDGES = r"(\[|\.(startswith|endswith|find|index|split|replace|lower|partition)\b| *(==|!=|in\b))"
JUDGED = re.compile(rf"{TEXT}{JUDGES}|(==|!=|\bin) [a-z_.]*{TEXT}")


def test_no_code_judges_rendered_text() -> None:
    rooms = [Path(package.__file__ or "").parent for package in (mapveil, mapveil_client)]
    found = [
        f"{path}: {line.strip()}"
        for room in rooms
        for path in room.rglob("*.py")
        for line in path.read_text().splitlines()
        if JUDGED.search(line) and " for " not in line
    ]
    assert not found, "branch on the fields of a guarantee, never on its text"


def test_participation_tells_of_a_listed_window_or_category() -> None:
    text = guarantee(assumptions=(Assumes.PARTICIPATION_PUBLIC(),)).in_words()
    assert "in a listed window or category, abstain" in text
