"""The page's odds: Bayes' rule as the promise words it, rounded outward, and none where nothing is bounded."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import mapveil as mv
from mapveil.pictures.scene_record import odds_record
from mapveil.privacy.numerals import belief
from tests.node import run_in_node

ASSETS = Path(__file__).parents[2] / "src/mapveil/pictures/shared/assets"


def test_beliefs_are_those_of_the_promise_and_bayes() -> None:
    script = f"""
        import {{ beliefAfter, beliefWords }} from "{(ASSETS / "odds_card.js").as_uri()}";
        console.log(JSON.stringify({{
            even: given.epsilons.map((epsilon) => beliefWords(50, epsilon)),
            after: given.pairs.map(([before, epsilon]) => beliefAfter(before, epsilon)),
        }}));"""
    epsilons = ["0.1", "0.5", "1", "2", "3", "5", "10", "900"]
    pairs = [[before, epsilon] for before in (1, 37, 99) for epsilon in (0.1, 1.0, 6.0)]
    found = run_in_node(script, {"epsilons": [float(each) for each in epsilons], "pairs": pairs})
    for said, epsilon in zip(found["even"], epsilons, strict=True):
        upper = said.split(" to ")[1].replace("\u00a0", " ")
        assert upper == belief(Fraction(epsilon)).removeprefix("at most ")
    for (low, high), (before, epsilon) in zip(found["after"], pairs, strict=True):
        odds = before / (100 - before)
        most = 100 * odds * math.exp(epsilon) / (1 + odds * math.exp(epsilon))
        least = 100 * odds * math.exp(-epsilon) / (1 + odds * math.exp(-epsilon))
        assert most <= high <= most + 0.0101
        assert least - 0.0101 <= low <= least


def test_a_release_has_the_pairs_of_its_neighbouring_relation() -> None:
    city = mv.synthetic.city(users=40, seed=1)
    tiling = mv.Quadtree(city.region, depth=2)
    heat = mv.release(city, tiling, epsilon="1/2", account=None)
    assert odds_record(heat.guarantee) == [
        {"between": "Presence and absence of one user", "epsilon": 0.5},
        {"between": "Two possible locations", "epsilon": 1.0},
    ]
    local = mv.release(city, tiling, epsilon=2, trust="local", account=None)
    assert [each["epsilon"] for each in odds_record(local.guarantee)] == [2.0]
    assert odds_record(replace(heat.guarantee, seeded=True)) == []
