"""Every claim has exact checks, and they catch half the noise and noise 15 % small in each query of each row."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mapveil.mechanisms.methods import METHODS, Method

from . import faults
from .claims import AUDITS, claims_something, promise_of
from .worlds import SMALL


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.trust} {method.name}")
def test_what_claims_something_is_audited_and_nothing_else(method: Method) -> None:
    options = " ".join(f"{name}={value}" for name, value in SMALL.get(method.name, {}).items())
    audited = f"{method.trust} {method.name} {options}".strip() in AUDITS
    assert audited == claims_something(promise_of(method))


@pytest.mark.parametrize("factor", [faults.HALF, faults.SMALL], ids=["half", "15 % small"])
@pytest.mark.parametrize("claim", AUDITS)
def test_less_noise_than_claimed_is_caught_in_every_query(claim: str, factor: Fraction) -> None:
    AUDITS[claim].assert_catches(factor)
