"""Tokens are guessed in vain, and soon not even answered; whoever has a right one enrols from the same address."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import httpx
import numpy as np
import pytest

from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import Identity, enrolment_statement

from .addresses import snapshot

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def guesses(count: int, near: str = "") -> list[dict[str, str]]:
    """Enrolments with tokens that are none; with ``near``, all that differ from it in one character."""
    chance, key = np.random.default_rng(8), Identity.draw(Randomness(8))
    made = []
    for each in range(count):
        letters = list(near or "mve_" + "".join(chance.choice(list(ALPHABET), 43)))
        if near:
            at = 4 + each % 43
            letters[at] = ALPHABET[(ALPHABET.index(letters[at]) + 1 + each // 43) % len(ALPHABET)]
        token = "".join(letters)
        signature = key.sign(enrolment_statement(token, key.public)).hex()
        made.append({"token": token, "public_key": key.public.hex(), "signature": signature})
    return made


@pytest.mark.parametrize("near", [False, True])
def test_guessing_enrolment_tokens_is_slowed_down_and_in_vain(api_with: Any, near: bool) -> None:
    api = api_with(failure_rate=1, failure_burst=20)
    token = api.enrolment(1)
    before = snapshot(api.store)
    answers = [api.client.post("/v1/devices", json=body) for body in guesses(100, token if near else "")]
    statuses = [answer.status_code for answer in answers]
    assert statuses[:20] == [401] * 20
    assert Counter(statuses)[429] > 60
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers if answer.status_code == 429)
    assert snapshot(api.store) == before
    # Nobody is told how near a guess was.
    assert len({answer.text for answer in answers}) == 2
    mine = Identity.draw(Randomness(9))
    right = {
        "token": token,
        "public_key": mine.public.hex(),
        "signature": mine.sign(enrolment_statement(token, mine.public)).hex(),
    }
    assert api.client.post("/v1/devices", json=right).status_code == 201


def test_a_wrong_signature_counts_as_a_guess(api_with: Any) -> None:
    """Or a token that was overheard could be tried with keys without end."""
    api = api_with(failure_rate=1, failure_burst=5)
    token = api.enrolment(1)
    body = {**guesses(1)[0], "token": token}
    statuses = [api.client.post("/v1/devices", json=body).status_code for _ in range(15)]
    assert statuses[:5] == [401] * 5
    assert 429 in statuses[5:]
    assert api.accounts.enrolments()[0].uses_left == 1


def test_a_token_of_one_use_enrols_one_device_however_many_ask_at_once(api: Any) -> None:
    token, answers = api.enrolment(1), []

    def enrol(seed: int) -> None:
        key = Identity.draw(Randomness(seed))
        body = {
            "token": token,
            "public_key": key.public.hex(),
            "signature": key.sign(enrolment_statement(token, key.public)).hex(),
        }
        with httpx.Client(base_url=api.address, timeout=300) as client:
            answers.append(client.post("/v1/devices", json=body).status_code)

    threads = [threading.Thread(target=enrol, args=(100 + each,)) for each in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(answers) == {201: 1, 401: 15}
    assert api.accounts.device_count() == 1


def test_an_enrolment_is_of_one_token_and_one_key(api: Any) -> None:
    """Overheard and sent again it is the same device; with another token or key it is nothing."""
    first, second = api.enrolment(5), api.enrolment(5)
    (phone,) = api.phones(1)
    public = phone.identity.public.hex()
    signed = {
        token: phone.identity.sign(enrolment_statement(token, phone.identity.public)).hex()
        for token in (first, second)
    }
    replay = {"token": first, "public_key": public, "signature": signed[first]}
    assert [api.client.post("/v1/devices", json=replay).json() for _ in range(3)] == [
        {"device": phone.number}
    ] * 3
    crossed = {"token": second, "public_key": public, "signature": signed[first]}
    assert api.client.post("/v1/devices", json=crossed).status_code == 401
    other = Identity.draw(Randomness(77)).public.hex()
    stolen = {"token": first, "public_key": other, "signature": signed[first]}
    assert api.client.post("/v1/devices", json=stolen).status_code == 401
    assert [each.uses_left for each in api.accounts.enrolments()][:2] == [5, 5]
