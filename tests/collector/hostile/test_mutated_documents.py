"""Terms, announcements and other words of a server, altered by the thousand: a device reads them, refuses, or holds.

Whatever the words are, a device answers with a sentence or with None; where with None, its rules are kept.
"""

from __future__ import annotations

import copy
import json
import time
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest

from mapveil.collector.rounds.offer import Offer
from mapveil.collector.rounds.plan_replay import announce, replay, shard_sizes
from mapveil.collector.rounds.specification import read_specification
from mapveil.trust.queries import Query
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.errors import InputError
from mapveil_client.participation import DeviceRefusal, Participation
from mapveil_client.policy import DevicePolicy
from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.randomness.noise_shares import share_shape
from mapveil_client.terms import CollectionTerms
from tests.authority import AUTHORITY, NAMED, certified

ALTERED: Final = 7000
SECONDS: Final = 60.0  # of processor time that one document may take on a slow machine
STRANGE: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 2, 1 << 31, 1 << 63, 10**30, 0.5, -0.0, 1e308, 1e-308, 1e400),
    *(
        "",
        "0",
        "1",
        "-1",
        "1/0",
        "1/3",
        "1e999999",
        "9" * 200,
        "\u0661",
        "nan",
        "inf",
        "\x00",
        "\ud800",
        "a" * 5000,
    ),
    *([], [1], [[]], [None], {}, {"a": 1}, {"kind": "quadtree"}, {"kind": "places"}, [[[[[[[[1]]]]]]]]),
)
POLICY: Final = DevicePolicy(authority=NAMED, random_features=Policy((150.0, 150.0)))
SPEC: Final[dict[str, Any]] = {
    "title": "where people are",
    "trust": "distributed",
    "method": "laplace",
    "epsilon": "1",
    "region": [-74.03, 40.69, -73.90, 40.83],
    "tiling": "quadtree:3",
    "devices": 24,
    "minimum": 20,
    "accept_custom_policy": True,
}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "distributed": {},
    "adaptive": {"method": "adaptive", "options": {"shard_size": 30}},
    "count-min": {"method": "count-min"},
    "local": {"trust": "local", "method": "grr"},
    "hashing": {"trust": "local", "method": None},
    "random-features": {
        "trust": "random-features",
        "method": None,
        "epsilon": None,
        "tiling": "quadtree:8",
        "options": {"bandwidth_m": 150.0, "least_signal": 0},
    },
    "places": {
        "tiling": {"kind": "places", "lon": [-74.0, -73.95], "lat": [40.7, 40.75], "names": ["a", "b"]},
    },
}


def terms_of(kind: str) -> CollectionTerms:
    spec = {**SPEC, **KINDS[kind]}
    return read_specification(
        {key: value for key, value in spec.items() if value is not None}, "ab" * 16, AUTHORITY
    ).terms


def announced_of(terms: CollectionTerms) -> RoundAnnouncement:
    sizes = shard_sizes(terms.devices, Offer(terms).model)
    query = replay(terms, sizes, ())
    assert isinstance(query, Query)
    return announce(terms, query, 1, "5a" * 16, sizes)


class Alterer:
    """Alters JSON: values, keys, lists, and now and then its bytes."""

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)

    def below(self, top: int) -> int:
        return int(self.chance.integers(0, max(top, 1)))

    def alter(self, record: dict[str, Any]) -> bytes:
        made = copy.deepcopy(record)
        for _ in range(1 + self.below(3)):
            self._value(made)
        data = json.dumps(made, sort_keys=True, separators=(",", ":")).encode()
        if not self.below(10):
            at = self.below(len(data))
            data = data[:at] + bytes([self.below(256)]) + data[at + self.below(4) :]
        return data

    def _value(self, made: Any) -> None:
        """Somewhere in it, one thing."""
        while True:
            keys = list(made) if isinstance(made, dict) else list(range(len(made)))
            if not keys:
                return
            key = keys[self.below(len(keys))]
            if isinstance(made[key], (dict, list)) and made[key] and self.below(3):
                made = made[key]
                continue
            kind = self.below(6)
            if kind == 0:
                del made[key]
            elif kind == 1 and isinstance(made, dict):
                made[str(STRANGE[self.below(len(STRANGE))])[:50]] = made[key]
            elif kind == 2 and isinstance(made[key], str):
                made[key] = self._text(made[key])
            elif kind == 3 and isinstance(made[key], (int, float)):
                made[key] = made[key] * (2, -1, 0.5, 1e9, 1 + 1e-9)[self.below(5)]
            else:
                made[key] = copy.deepcopy(STRANGE[self.below(len(STRANGE))])
            return

    def _text(self, text: str) -> str:
        at = self.below(len(text) + 1)
        return text[:at] + "0a/-. z"[self.below(7)] + text[at + self.below(2) :]


@pytest.mark.parametrize("kind", KINDS)
def test_altered_terms_are_refused_or_within_the_rules(kind: str) -> None:
    alterer, record = Alterer(1), terms_of(kind).to_record()
    unread, refused, held = 0, 0, 0
    for _ in range(ALTERED // len(KINDS)):
        data, started = alterer.alter(record), time.process_time()
        try:
            terms = CollectionTerms.decode(data)
        except InputError:
            unread += 1
            continue
        sentence = POLICY.refusal(terms)
        assert time.process_time() - started < SECONDS, data[:500]
        if sentence is None:
            assert terms.epsilon is None or 0 < terms.epsilon <= POLICY.most_per_collection
            assert terms.minimum >= POLICY.least_shard
            assert terms.cells.size <= POLICY.most_cells
            assert terms.active or terms.trust != "distributed"
            held += 1
        else:
            assert sentence.isprintable()
            assert len(sentence) <= 300
            refused += 1
    assert min(unread, refused, held) > 4, (unread, refused, held)


@pytest.mark.parametrize("kind", ["distributed", "adaptive", "count-min", "places"])
def test_altered_announcements_are_refused_or_keep_the_promise(kind: str) -> None:
    terms = terms_of(kind)
    mechanism: Any = terms.parameters
    alterer, record = Alterer(2), announced_of(terms).to_record()
    unread, refused, held = 0, 0, 0
    assert POLICY.refusal_of_round(terms, announced_of(terms)) is None
    for _ in range(ALTERED // 7):
        data, started = alterer.alter(record), time.process_time()
        try:
            asked = RoundAnnouncement.decode(data)
        except InputError:
            unread += 1
            continue
        sentence = POLICY.refusal_of_round(terms, asked)
        assert time.process_time() - started < SECONDS, data[:500]
        if sentence is None:
            assert asked.epsilon <= (terms.epsilon or 0)
            assert min(asked.sizes) >= POLICY.least_shard
            assert sum(asked.sizes) >= terms.minimum
            assert asked.active
            for size in asked.sizes:
                needed = share_shape(size, Fraction(1, 10), Fraction(1, 20))
                assert mechanism.whole_noise or needed <= asked.alpha <= 1
            held += 1
        else:
            assert sentence.isprintable()
            assert len(sentence) <= 300
            refused += 1
    assert min(unread, refused, held) > 4, (unread, refused, held)


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"',
        "1e400",
        "-1e400",
        "NaN",
        "Infinity",
        "[" * 900 + "]" * 900,
        "9" * 4299,
        '"' + "a" * 5000 + '"',
    ],
)
def test_what_json_can_hold_and_a_digest_cannot_is_no_document(text: str) -> None:
    """It would only be found out where a device takes the digest, and end the device."""
    terms = terms_of("distributed")
    for record, read in (
        (terms.to_record(), CollectionTerms.decode),
        (announced_of(terms).to_record(), RoundAnnouncement.decode),
    ):
        for name in record:
            data = json.dumps({**record, name: "@@"}).replace('"@@"', text).encode()
            try:
                made: Any = read(data)
            except InputError:
                continue
            assert len(made.digest) == 32
            assert made.encode()


def test_altered_announcements_end_in_a_message_or_a_refusal_and_cost_nothing() -> None:
    """The whole of a device: whatever is announced, nothing is spent before its vector leaves."""
    from mapveil_client.device_locations import Whereabouts
    from mapveil_client.memory import DeviceMemory
    from mapveil_client.randomness.random import Randomness

    terms = terms_of("distributed")
    place = Whereabouts(np.array([-73.97]), np.array([40.77]))
    alterer, record, begun = Alterer(3), announced_of(terms).to_record(), 0
    for each in range(600):
        try:
            asked = RoundAnnouncement.decode(alterer.alter(record))
        except InputError:
            continue
        memory = DeviceMemory.open(rng=Randomness(each))
        certified(memory)
        device = Participation(memory, POLICY, terms, place, Randomness(each))
        device.join()
        try:
            assigned = (0, 3) if each % 4 else (alterer.below(3) - 1, alterer.below(30) - 2)
            assert device.begin(asked, *assigned)
            begun += 1
        except DeviceRefusal:
            assert not device.running
            assert any(line.event == "refused" for line in device.memory.log.lines)
        assert all(line.text.isprintable() and len(line.text) <= 300 for line in device.memory.log.lines)
        assert device.memory.account.spent == 0
    assert begun > 5
