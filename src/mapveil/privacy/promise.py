"""The one renderer of privacy claims: a layperson's sentences, an expert's line, rows of a table.

Always in this order: unit, neighbouring relation, (epsilon, delta), adversary, assumptions. Belief bounds follow from
Bayes' rule: a factor f between two hypotheses held for equally likely leaves at most f / (1 + f) for either. Bounds
are rounded up.
"""

import math
from fractions import Fraction
from typing import NamedTuple

from mapveil.privacy.claim import (
    WARNED_EPSILON,
    Assumes,
    Claim,
    Clause,
    ContributionBound,
    Disclosure,
    Neighbouring,
    Norm,
    Reveals,
    Unit,
)
from mapveil.privacy.numerals import MANY, belief, exact_or_up, factor, three_digits, up
from mapveil.privacy.promise_words import (
    ADVERSARIES,
    ASSUMPTIONS,
    MODELS,
    NEIGHBOURS,
    PAIRS,
    RAW,
    SEEDED,
    SIMULATION,
    UNKNOWN_TRUST,
)
from mapveil_client.epsilon import readable


class Promise(NamedTuple):
    """A rendered claim."""

    label: str  # for titles and tags, the marks among it
    title: str  # unit, neighbouring relation and (epsilon, delta), without their definitions
    headline: str  # the factor, or why there is none
    sentences: tuple[str, ...]  # for a layperson
    line: str  # for an expert
    rows: tuple[tuple[str, str], ...]  # of a table: name, text
    marks: tuple[str, ...]  # a few words for each warning
    stamps: tuple[str, ...]  # for pictures cut out of pages: the marks, and that nothing was charged
    warnings: tuple[str, ...]  # that it is a simulation, must not be released, promises little

    @property
    def listing(self) -> str:
        """Several lines of a terminal."""
        return "\n".join((f"Guarantee: {self.title}", *(f"  {name:<13} {text}" for name, text in self.rows)))


def render(claim: Claim) -> Promise:
    """Put a claim into words."""
    parameters = _parameters(claim)
    assumptions = tuple(_assumption(each, claim.unit) for each in claim.assumptions)
    large = claim.epsilon is not None and claim.epsilon > WARNED_EPSILON
    raw = None if claim.disclosure is None else RAW.get(claim.disclosure.kind)
    marked = [
        *((("simulation", SIMULATION),) * claim.simulated),
        *((("seeded: not for release", SEEDED),) * claim.seeded),
        *filter(None, (raw,)),
        *((("large epsilon: little protection", _large(claim)),) if large else ()),
    ]
    marks, warnings = (tuple(each[part] for each in marked) for part in (0, 1))
    reveals, hidden = ("", "") if claim.disclosure is None else _disclosure(claim.disclosure)
    if hidden and any(each.kind is Assumes.KEPT_COLUMNS for each in claim.assumptions):
        reveals, hidden = (
            f"{reveals}, beside the kept columns",
            f"{hidden}, where the kept columns do not tell it",
        )
    measured = tuple(
        f"{each.quantity} {three_digits(each.value)} {each.unit} against {each.against}"
        for each in claim.measured
    )
    documented = claim.disclosure is None or claim.disclosure.kind is not Reveals.UNDOCUMENTED
    trust = MODELS[claim.model] if documented else UNKNOWN_TRUST
    adversary, relation = ADVERSARIES[claim.adversary], _relation(claim)
    line = [f"{claim.unit}-level", relation, parameters, f"adversary: {adversary}"]
    if assumptions:
        line.append("assumptions: " + ", ".join(assumptions))
    rows = [
        ("unit", f"one {claim.unit}"),
        ("neighbours", relation),
        ("(ε, δ)", parameters),
        ("adversary", adversary),
        *(("assumes", text) for text in assumptions),
        ("trust", trust),
        ("contribution", "" if claim.bound is None else _bound(claim.bound, claim.unit)),
        ("reveals", reveals),
        ("hidden", hidden),
        *(("measured", text) for text in measured),
        *(("spent", f"{readable(share.epsilon)} on {share.purpose}") for share in claim.shares),
        ("account", _account(claim)),
        *(("warning", text) for text in marks),
    ]
    sentences = [*_statement(claim), f"Adversary: {adversary}."]
    if assumptions:
        sentences.append(f"Assumptions: {'; '.join(assumptions)}.")
    sentences.append(f"Trust model: {trust}.")
    if claim.bound is not None:
        sentences.append(f"Contribution bound: {_bound(claim.bound, claim.unit)}.")
    if reveals:
        sentences += [f"Each report: {reveals}.", f"Hidden: {hidden}."]
    if measured:
        sentences.append(f"Measured: {'; '.join(measured)}.")
    free = claim.epsilon is not None and claim.account is None and not claim.seeded
    called = (
        "not differentially private" if claim.epsilon is None else f"epsilon {exact_or_up(claim.epsilon)}"
    )
    return Promise(
        label=", ".join((called, *marks)),
        title=", ".join((f"{claim.unit}-level", *filter(None, (claim.neighbours,)), parameters, *marks)),
        headline=_headline(claim),
        sentences=tuple(sentences),
        line="; ".join((*line, *marks)),
        rows=tuple((name, text) for name, text in rows if text),
        marks=marks,
        stamps=tuple(mark.upper() for mark in (*marks, *("not accounted",) * free)),
        warnings=warnings,
    )


def _headline(claim: Claim) -> str:
    if claim.epsilon is None:
        return "Not differential privacy"
    if claim.seeded:
        return "No bound for whoever knows the seed"
    replaced = claim.neighbours is Neighbouring.REPLACE_ONE
    changed = f"Whatever one {claim.unit}'s data are" if replaced else f"With or without one {claim.unit}"
    slack = ", leaving delta aside" if claim.delta else ""
    return f"{changed}, any outcome is at most {factor(claim.epsilon)} times as likely{slack}"


def _assumption(term: Clause[Assumes], unit: Unit) -> str:
    shares = {f"{name}_percent": 100 * value for name, value in term.parameters if not isinstance(value, str)}
    return ASSUMPTIONS[term.kind].format(unit=unit, **dict(term.parameters), **shares)


def _parameters(claim: Claim) -> str:
    if claim.epsilon is None:
        return "NOT differential privacy: no epsilon"
    return f"({exact_or_up(claim.epsilon)}, {up(claim.delta)})-DP" + ("" if claim.delta else ", pure")


def _relation(claim: Claim) -> str:
    if claim.neighbours is None:
        return "no neighbouring relation"
    return f"{claim.neighbours}: {NEIGHBOURS[claim.neighbours].format(unit=claim.unit)}"


def _statement(claim: Claim) -> list[str]:
    """Sentences on the factor between neighbouring inputs, and on the largest belief."""
    if claim.epsilon is None:
        return [
            f"Protected unit: one {claim.unit}.",
            f"This is NOT differential privacy: no factor bounds what can be learnt of one {claim.unit}.",
        ]
    assert claim.neighbours is not None
    changed = NEIGHBOURS[claim.neighbours].format(unit=claim.unit)
    slack = f", plus at most {up(claim.delta)} (delta)" if claim.delta else ""
    others = " who does not know the seed" if claim.seeded else ""
    aside = f"Leaving delta aside, somebody{others}" if claim.delta else f"Somebody{others}"
    told = [
        f"Protected unit: one {claim.unit}.",
        f"{'For whoever does not know the seed, if' if claim.seeded else 'If'} {changed}, the probability of any "
        f"outcome changes by a factor of at most {factor(claim.epsilon)} "
        f"(e^epsilon, epsilon = {exact_or_up(claim.epsilon)}){slack}.",
    ]
    either = f"{belief(claim.epsilon)} sure of either"
    held = " and" if claim.seeded else ""
    further = "".join(
        f"; between {pair}, {belief(power)} (factor e^(2 epsilon) = {factor(power)})"
        for pair, power in hypotheses(claim)[1:]
    )
    return [
        *told,
        f"{aside}{held} who holds {_pair(claim)} for equally likely can become {either}{further}.",
    ]


def hypotheses(claim: Claim) -> tuple[tuple[str, Fraction], ...]:
    """Pairs of hypotheses about one unit, each with the logarithm of the largest factor between them.

    There are none without epsilon. Under replace-one neighbours two locations are one pair, otherwise a pair of their
    own: e^epsilon from either to absence makes e^(2 epsilon).
    """
    if claim.epsilon is None:
        return ()
    first = (_pair(claim), claim.epsilon)
    if claim.neighbours is Neighbouring.REPLACE_ONE:
        return (first,)
    return (first, ("two possible locations", 2 * claim.epsilon))


def _pair(claim: Claim) -> str:
    """The two hypotheses that neighbouring inputs stand for."""
    assert claim.neighbours is not None
    return PAIRS[claim.neighbours].format(unit=claim.unit)


def _large(claim: Claim) -> str:
    """The warning of a large epsilon: in odds, and with its delta."""
    assert claim.epsilon is not None
    odds = factor(claim.epsilon) if claim.epsilon < math.log(MANY) else "more than a million"
    slack = f", leaving delta aside, which adds at most {up(claim.delta)} to the probability of any outcome"
    if claim.delta == 1:
        slack = "; delta is 1, so that this guarantee limits nothing"
    return (
        f"LARGE EPSILON: little protection. At epsilon = {exact_or_up(claim.epsilon)}, even odds between "
        f"{_pair(claim)} can become {odds} to 1{slack if claim.delta else ''}."
    )


def _bound(bound: ContributionBound, unit: Unit) -> str:
    if bound.norm is Norm.REPORTS:
        number = int(bound.value)
        return f"each {unit} sends at most {number} report{'' if number == 1 else 's'}"
    text = f"each {unit}'s contribution has an {bound.norm} norm of at most {up(bound.value)}"
    if bound.step is None:
        return text
    bits = bound.step.denominator.bit_length() - 1
    step = f"2^-{bits}" if bound.step == Fraction(1, 1 << bits) and bits > 1 else str(bound.step)
    return f"{text}, in whole multiples of {step}"


def _account(claim: Claim) -> str:
    if claim.epsilon is None:
        return ""
    if claim.account is None:
        if claim.unit is Unit.USER:
            return "not accounted"
        if claim.unit in (Unit.USER_WEEK, Unit.WINDOW_RUN):
            return f"not accounted: what all {claim.unit}s of one user cost together is in no ledger"
        return f"not accounted: an account adds up epsilon per user, and this one is per {claim.unit}"
    entries, name, before, after, budget = claim.account
    ids = ", ".join(entries)
    if before is None or after is None or budget is None:
        return f"{readable(claim.epsilon)} on each client, charged to its own account, as {ids}"
    of = f" of account {name}" if name else ""
    amounts = f"{readable(before)} spent before, {readable(after)} after, of {readable(budget)}"
    return f"ledger: {ids}{of}; {amounts}"


def _disclosure(disclosure: Disclosure) -> tuple[str, str]:
    """Texts: the content of a report, and what stays hidden."""
    given = {"batch": 1.0, "noise": 0.0, "raw": 0.0, "jitter_m": 0.0, "measurements": 1.0}
    given.update((name, float(value)) for name, value in disclosure.parameters)
    run = "one measurement" if given["measurements"] == 1 else f"{given['measurements']:.0f} measurements"
    average = "average case: user and location, on average over people like the pilot's"
    match disclosure.kind:
        case Reveals.PHASES:
            return _phases(int(given["features"]), given["jitter_m"])
        case Reveals.PLANAR_LAPLACE:
            return (
                "the most visited location with planar Laplace noise (geo-indistinguishability, "
                f"{given['per_m']:.3g} per m): two locations {three_digits(given['radius_m'])} m apart differ by a "
                f"factor of at most {up(Fraction(math.exp(given['level'])))}, two locations twice as far apart by its "
                "square",
                f"the location within about {2 / given['per_m']:.3g} m of the report",
            )
        case Reveals.LOCATION:
            return "a surface whose maximum is the client's location", "nothing"
        case Reveals.PRESENCE:
            return "that the client is in the region", "the location in the region"
        case Reveals.CLIPPED_GAUSSIAN:
            return (
                f"{run} in the pilot's units, clipped, with Gaussian noise of {given['deviation']:.4g} pilot "
                "deviations",
                "up to epsilon and delta, which values the report had",
            )
        case Reveals.CLIPPED_LAPLACIAN:
            return (
                f"{run} in the pilot's units, clipped, with Laplacian noise of scale {given['scale']:.4g} pilot "
                f"deviations, truncated at {given['reach']:.4g}",
                "up to epsilon and delta, which values the report had",
            )
        case Reveals.GAUSSIAN:
            return (
                f"every feature with Gaussian noise of {given['deviation']:g} of its deviation in the pilot, not "
                "clipped",
                average,
            )
        case Reveals.NETWORK:
            fixed = ", a fixed function: an adversary trained on its output can undo it"
            return f"the output of a neural network{'' if given['noise'] else fixed}", average
        case Reveals.CODE:
            raw = f"; the raw row is one of them, with probability at least 1/{given['codes']:.0f}"
            batch = f"; one code for {given['batch']:.0f} runs together"
            return (
                f"one of {given['codes']:.0f} codes{raw * bool(given['raw'])}{batch * (given['batch'] > 1)}",
                average,
            )
        case Reveals.UNDOCUMENTED:
            return (
                "not documented: how the measurements were privatized, or whether they were",
                "nothing known",
            )


def _phases(features: int, jitter_m: float) -> tuple[str, str]:
    one = "one random Fourier feature" if features == 1 else f"{features} random Fourier features"
    if features == 1:
        hidden = "the band of the feature's phase on which the client is, and the location along it"
    elif features == 2:
        hidden = "at which crossing of the two features' bands the client is"
    elif jitter_m:
        hidden = f"the location within about {jitter_m:g} m of the point at which the phases agree"
    else:
        hidden = "nothing: three phases agree at one point, and the server reads the location off them"
    return (
        f"the exact phase of the client's location on {one} of its own, whose frequencies the server knows",
        hidden,
    )
