"""Every sentence on a phone or a console about the strength of privacy is the typed guarantee's, not prose."""

from __future__ import annotations

import math
import re
import runpy
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import pytest

import mapveil as mv
from mapveil.privacy.numerals import factor
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.trust.two_operators import TwoOperators
from tests.node import MODULES as DEVICE
from tests.node import run_in_node

EPSILONS = (
    "1/1000",
    "1/20",
    "1/3",
    "1/2",
    "1.1",
    "1",
    "2",
    "1.234567",
    "1048577/1048576",
    "1/8192",
    "5/2",
    "4",
    "12",
)
JITTERS = (0, 25, 100, 12.5)
CONSOLE = DEVICE.parent / "console" / "assets"
PACK = DEVICE.parents[3] / "packaging" / "npm" / "pack.py"
OVERCLAIMS = re.compile(
    r"which it cannot be|cannot be (known|learnt|traced)|very little|nobody (can|learns|sees|knows)|need not know|"
    r"never learns?|hidden among|anonym|"
    r"impossib|\bsafe(ly)?\b|protects? you|stays (here|private|hidden)|without telling|completely|perfect",
    re.IGNORECASE,
)
CLAIM = re.compile(r"\b(factor|at most [\d.]+ %|equally likely|differential privacy|times better)\b")


@pytest.fixture(scope="module")
def said() -> dict[str, list[str]]:
    """The page's sentences about epsilons, offsets, and all reports together."""
    script = """
const { Fraction } = await load("fraction");
const { RULES } = await load("policy");
const { learningWords, limitWords } = await load("words");
const query = { bandwidth: [400, 400] };
const epsilons = given.epsilons.map(Fraction.read);
const local = epsilons.map((epsilon) => learningWords({ epsilon }, { kind: "local" }));
const operators = given.epsilons.map(Fraction.read).map((epsilon) => learningWords({ epsilon }, { kind: "operators" }));
const phases = given.jitters.map((jitter) => learningWords({}, { kind: "random-features", jitter, query }));
console.log(JSON.stringify({ local, operators, phases, limit: [limitWords(RULES)] }));
"""
    found: dict[str, list[str]] = run_in_node(script, {"epsilons": EPSILONS, "jitters": JITTERS})
    return found


def test_a_randomized_report_is_described_by_its_guarantee(said: dict[str, list[str]]) -> None:
    for epsilon, text in zip(EPSILONS, said["local"], strict=True):
        guarantee = mv.mechanisms.GeneralizedRandomizedResponse(epsilon=epsilon).guarantee()
        unit, changed, belief, adversary, *_ = guarantee.promise.sentences
        assert unit == "Protected unit: one user."
        assert text == f"{changed} {belief} {adversary}", epsilon


def test_shares_for_two_operators_are_described_by_their_guarantee(said: dict[str, list[str]]) -> None:
    within_the_rules = [each for each in EPSILONS if Fraction(each) <= 4]
    for epsilon, text in zip(within_the_rules, said["operators"], strict=False):
        guarantee = TwoOperators().guarantee(Fraction(epsilon), (), seeded=False)
        _, changed, belief, adversary, assumptions, *_ = guarantee.promise.sentences
        assert text.startswith(f"{changed} {belief} {adversary} Assumptions: "), epsilon
        protected, _, _ = assumptions.partition("; not protected: ")
        assert text.partition(f"{adversary} ")[2] == f"{protected}."


def test_the_page_says_that_it_assumes_its_own_code_and_the_package_does_not() -> None:
    """A malicious leader that serves the page can change it; an app brings its own code."""
    card, package = prose(DEVICE / "collection_card.mjs"), runpy.run_path(str(PACK))["contents"]()
    assert "The first operator serves the code of this page unchanged." in card
    assert not any(b"code of this page" in each for each in package.values())


def test_a_projection_is_described_by_its_guarantee(said: dict[str, list[str]]) -> None:
    for jitter, text in zip(JITTERS, said["phases"], strict=True):
        promise = FourierKde(features=1, jitter_m=jitter).guarantee().promise
        _, plain, adversary, assumptions, _, reveals, hidden = promise.sentences
        assert text.startswith(f"{plain} {reveals} {hidden} ")
        assert text.endswith(f" {adversary}")
        sites = re.search(r"Assumptions: (.*?)\. Adversary", text)
        assert sites is not None
        assert sites[1] in assumptions
        assert CLAIM.findall(text) == ["differential privacy", "factor"]


def test_the_limit_of_all_reports_is_that_of_the_rules(said: dict[str, list[str]]) -> None:
    (text,) = said["limit"]
    assert f"factor of at most {factor(Fraction(4))} (e^epsilon, epsilon = 4)" in text
    assert math.exp(4) < 54.6 < 54.7
    assert "Phases of random features have no epsilon; this phone sends at most 8." in text


class Texts(HTMLParser):
    """The texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def prose(path: Path) -> str:
    """The texts that a page or a module may show: of markup, and strings of a script."""
    source = path.read_text("utf-8")
    if path.suffix == ".html":
        return " ".join(" ".join(Texts(source).found).split())
    code = re.sub(r"(?m)^\s*//[^\n]*$|/\*.*?\*/", "", source, flags=re.DOTALL)
    return " ".join(part for parts in re.findall(r'"([^"\n]*)"|`([^`]*)`', code) for part in parts if part)


PAGES = sorted(
    [*DEVICE.glob("*.html"), *DEVICE.glob("*.mjs"), *CONSOLE.glob("*.js"), *CONSOLE.parent.rglob("*.html")]
)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_page_claims_in_prose(path: Path) -> None:
    text = prose(path)
    assert not OVERCLAIMS.search(text), OVERCLAIMS.search(text)
    if path.name not in ("words.mjs", "guarantee.js", "trust_picker.js"):  # which render an epsilon
        assert not CLAIM.search(text), CLAIM.search(text)
