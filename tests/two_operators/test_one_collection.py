"""A report is for one collection: a second pair of operators, of another id, refuses it and tells nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from mapveil.two_operators import aggregation
from mapveil.two_operators.aggregation import HELPER, LEADER, Operator
from mapveil.two_operators.sum_schemes import PathScheme, Scheme, VectorScheme
from mapveil.two_operators.verification_messages import Opening, Response
from mapveil_client.errors import ParameterError, PromiseError
from mapveil_client.randomness.random import Randomness

from .test_operators import KEY, SITES, Sent, collected, one_hot, reports

FIRST, SECOND = b"first collection" * 2, b"other collection" * 2
OTHER_KEY = KEY[::-1]
TRUTH = [2, 0, 3, 3, 1]


def vectors(collection: bytes) -> VectorScheme:
    return VectorScheme(4, 3, collection)


def paths(collection: bytes) -> PathScheme:
    return PathScheme(1, collection)


class Verified(NamedTuple):
    leader: Operator
    helper: Operator
    opening: Opening
    response: Response


def verified(scheme: Scheme, key: bytes, sent: Sent) -> Verified:
    leader, helper = (
        Operator(scheme, number, scheme.collection, key, Fraction(1), 1) for number in (LEADER, HELPER)
    )
    for number, operator in enumerate((leader, helper)):
        operator.receive(pair[number] for pair in sent)
    opening = leader.open(leader.waiting)
    response = helper.respond(opening)
    helper.settle(leader.close(response))
    return Verified(leader, helper, opening, response)


def sites_told(
    sent: Sent, first: tuple[PathScheme, bytes], second: tuple[PathScheme, bytes]
) -> list[list[int]]:
    """Sites that two sketches of a report leave: their difference is r_i - r'_i at the client's site i."""
    nonces = np.stack([np.frombuffer(pair[0].nonce, dtype=np.uint8) for pair in sent])
    sketches, random = [], []
    for scheme, key in (first, second):
        message = verified(scheme, key, sent).response.message
        sketches.append(scheme.field.decode(message)[0][:, 0])
        level = scheme.prefixes.shape[1] - 1
        random.append(scheme.vdaf.verification(key, nonces, level, scheme.field, scheme.sites))
    field = first[0].field
    difference, of_sites = field.subtract(*sketches), field.subtract(*random)
    return [
        np.flatnonzero((each == told).all(axis=1)).tolist()
        for each, told in zip(of_sites, difference, strict=True)
    ]


@pytest.mark.parametrize("scheme", [vectors, paths])
def test_a_report_replayed_to_operators_of_another_collection_is_refused_by_both(
    scheme: Callable[[bytes], Scheme],
) -> None:
    sent = reports(scheme(FIRST), one_hot(TRUTH))
    honest = verified(scheme(FIRST), KEY, sent)
    assert (honest.leader.accepted, honest.helper.accepted) == (5, 5)
    for key in (KEY, OTHER_KEY):
        replayed = verified(scheme(SECOND), key, sent)
        assert (replayed.leader.accepted, replayed.helper.accepted) == (0, 0)


def test_a_replayed_vector_is_refused_before_any_share_of_it_is_told() -> None:
    """The proof's shares at a second random point would give the vector away."""
    replayed = verified(vectors(SECOND), OTHER_KEY, reports(vectors(FIRST), one_hot(TRUTH)))
    assert not replayed.opening.shares.any()
    fitting = verified(vectors(FIRST), OTHER_KEY, reports(vectors(FIRST), one_hot(TRUTH)))
    assert fitting.opening.shares.any(axis=1).all()
    scheme, sent = vectors(SECOND), reports(vectors(FIRST), one_hot(TRUTH))
    helper = Operator(scheme, HELPER, SECOND, OTHER_KEY, Fraction(1), 1)
    helper.receive(pair[1] for pair in sent)
    assert not helper._begun(helper.waiting).share.any()


def test_two_sketches_of_a_replayed_path_do_not_name_the_site() -> None:
    """Of one collection's id they do, which is why an id must not be used twice: the attack itself works."""
    sent = reports(paths(FIRST), one_hot(TRUTH))
    again = sites_told(sent, (paths(FIRST), KEY), (paths(FIRST), OTHER_KEY))
    assert again == [[site] for site in TRUTH]
    assert sites_told(sent, (paths(FIRST), KEY), (paths(SECOND), OTHER_KEY)) == [[]] * 5


def test_the_numbers_of_a_verify_key_are_of_one_collection() -> None:
    nonces = np.zeros((1, 16), dtype=np.uint8)
    drawn = [paths(each).vdaf.verification(KEY, nonces, 2, paths(each).field, 4) for each in (FIRST, SECOND)]
    assert (drawn[0] != drawn[1]).any(axis=2).all()


def test_an_operator_of_another_id_than_its_scheme_or_of_a_short_id_is_refused() -> None:
    with pytest.raises(ParameterError, match="collection must be the scheme's id"):
        Operator(paths(FIRST), LEADER, SECOND, KEY, Fraction(1), 1)
    for scheme in (vectors, paths):
        with pytest.raises(ParameterError, match="an id of 32 bytes, got 15"):
            scheme(FIRST[:15])


def test_an_operator_draws_no_more_samples_than_its_delta_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal costs nothing, and no more answers of that size follow."""
    monkeypatch.setattr(aggregation, "MOST_SAMPLES", 2 * SITES.length)
    scheme = vectors(b"test collection." * 2)
    for operator in collected(scheme, reports(scheme, one_hot(TRUTH))):
        for purpose in ("first", "second"):
            operator.answer(purpose, SITES, Fraction(1), Randomness(1))
        with pytest.raises(
            PromiseError, match="third would be its sample 12 of noise, and its delta allows 8"
        ):
            operator.answer("third", SITES, Fraction(1), Randomness(1))
        assert [share.purpose for share in operator.answered] == ["first", "second"]
