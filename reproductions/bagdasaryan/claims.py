"""What Bagdasaryan et al. (2022) say of their tables, and what Mapveil must reach, each judged by the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reproductions.bagdasaryan.sections import Shown, within
from reproductions.data import printed_figures
from reproductions.report import Claim, joint_verdict, judged
from reproductions.results import Results

BASELINES = ("flat", "hierarchical", "CM sketch", "adaptive grid", "spatial decomposition")
OURS = "multiscale (ours)"
ADAPTIVE = "Algorithm 2"
SMALL, LARGE, DROPPING = ("table 1, 10k users", "table 1, 100k users", "table 1, 100k users, 10 % drop out")
_GROUPS = {"10k": SMALL, "100k": LARGE, "100k, 10 % drop out": DROPPING}

_PRINTED = printed_figures("bagdasaryan")
BUDGETS = {
    group: tuple(
        value
        for (table, row, _), value in _PRINTED.items()
        if (table, f"table 1, {row}") == ("rounds of the authors' code", group)
    )
    for group in (SMALL, LARGE)
}
"""Epsilons of the rounds of the authors' own code."""

NON_PRIVATE_PART = 0.02
ADAPTIVE_PART = 0.03
_FEWER = 10  # times: the paper's "orders of magnitude" at its least


def _near(results: Results, group: str, label: str, part: float) -> Claim:
    found = results.of(group=group, label=label)
    users = group.removeprefix("table 1, ")
    target = _PRINTED["table 1", label, f"{users}: MSE"]
    return Claim(
        f"{label.capitalize()}, {users}: within {part:.0%} of the paper's {target}e-13",
        within(found.mean * 1e13, target, part),
        f"{Shown(digits=3)(found)}e-13, {found.mean * 1e13 / target - 1:+.1%}, over {found.trials} seeds",
    )


def table_1_claims(results: Results) -> list[Claim]:
    """The figures that must come out, and what section 6.2 says of Table 1."""
    label = "non-private"
    claims = [
        *(_near(results, group, label, NON_PRIVATE_PART) for group in (SMALL, LARGE)),
        *(_near(results, group, ADAPTIVE, ADAPTIVE_PART) for group in (SMALL, LARGE, DROPPING)),
    ]
    claims.append(rounds_claim(results))
    held, words, short = [], [], []
    for name, group in _GROUPS.items():
        ours = results.of(group=group, label=ADAPTIVE)
        others = {other: results.of(group=group, label=other) for other in BASELINES}
        held += [ours.mean < found.mean for found in others.values()]
        nearest = min(others, key=lambda other: others[other].mean)
        best = others[nearest].mean
        words.append(f"{name}: {ours.mean * 1e13:.2f}e-13 against {best * 1e13:.2f}e-13 of {nearest}")
        least = min(found.length for other, found in others.items() if other != "adaptive grid")
        evidence = f"{name}: {ours.length:,.0f} against {least:,.0f} and more"
        short.append((ours.length * _FEWER <= least, evidence))
    claims += [
        Claim(f"{ADAPTIVE} has less error than every baseline", joint_verdict(held), "; ".join(words)),
        judged(
            f"{ADAPTIVE} sends orders of magnitude less than the baselines but the adaptive grid "
            f"(read as: at most 1/{_FEWER})",
            short,
        ),
    ]
    sampling, private = (results.of(group=SMALL, label=name).mean for name in (label, ADAPTIVE))
    claims.append(
        Claim(
            f"With 10k users {ADAPTIVE}'s error is about 1.7 % above the sampling error (read as: at most 3 %)",
            "holds" if private <= 1.03 * sampling else "does not hold",
            f"{private / sampling - 1:+.1%}",
        )
    )
    small, large = (results.of(group=group, label="adaptive grid").mean for group in (SMALL, LARGE))
    claims.append(
        Claim(
            "The adaptive grid does not improve with more users",
            "holds" if large >= small else "does not hold",
            f"{small * 1e13:.2f}e-13 with 10k, {large * 1e13:.2f}e-13 with 100k",
        )
    )
    cases = []
    for name, group in _GROUPS.items():
        mine, theirs = (results.of(group=group, label=each).mean for each in (OURS, ADAPTIVE))
        cases.append((mine < theirs, f"{name}: {mine * 1e13:.2f}e-13 against {theirs * 1e13:.2f}e-13"))
    return [*claims, judged(f"Mapveil's default has less error than {ADAPTIVE}", cases)]


def rounds_claim(results: Results) -> Claim:
    """Whether the rounds of Table 1's runs cost what :data:`BUDGETS` says."""
    held, words = [], []
    for group, target in BUDGETS.items():
        spent = [
            [float(each) for each in text.split()]
            for text in results.values("epsilons", group=group, label=ADAPTIVE)
        ]
        kept = [each for each in spent if len(each) == len(target)]
        mean = np.mean(kept, axis=0) if kept else np.zeros(len(target))
        held += [2 * len(kept) > len(spent), bool((np.abs(mean / target - 1) <= NON_PRIVATE_PART).all())]
        words.append(f"{', '.join(f'{each:.3g}' for each in mean)} in {len(kept)} of {len(spent)} runs")
    return Claim(
        f"{ADAPTIVE}'s rounds cost what those of the authors' code do, on average (read as: within 2 %, and as many "
        "rounds in most runs)",
        joint_verdict(held),
        "; ".join(words),
    )


def _multi(gamma: float, bits: int, rounding: str = "stochastic") -> str:
    return f"multi-location, {rounding}, scale {gamma:g}, {bits} bits"


def _compared(results: Results, claim: str, pairs: Sequence[tuple[str, str]]) -> Claim:
    """Whether the first row of each pair has clearly less error than the second, against all visits."""
    cases = []
    for better, worse in pairs:
        ahead = results.ahead(better, worse, against="visits")
        mean = {label: results.of(label=label, against="visits").mean * 1e7 for label in (better, worse)}
        doubt = "" if ahead.clear or ahead.high < 0 else " (no clear difference)"
        cases.append((ahead.clear, f"{better} {mean[better]:.1f}e-7 against {mean[worse]:.1f}e-7{doubt}"))
    return judged(claim, cases)


def table_2_claims(results: Results) -> list[Claim]:
    """What section 6.2 says of Table 2, and that the exact rounding is the better one."""
    coarsest, coarse, fine, finest = _multi(1, 16), _multi(100, 32), _multi(1e4, 32), _multi(1e6, 32)
    exact = {
        _multi(gamma, bits, "largest-remainder"): _multi(gamma, bits)
        for gamma, bits in ((1, 16), (100, 32), (1e4, 32), (1e6, 32))
    }
    rows = dict.fromkeys(row.label for row in results.rows)
    means = {row: results.of(label=row, against="visits").mean for row in rows}
    best = min((row for row in means if row.startswith("multi-location")), key=lambda row: means[row])
    compared: tuple[tuple[str, Sequence[tuple[str, str]]], ...] = (
        (
            "A larger scale improves the multi-location map (1 to 1e2, 1e2 to 1e4)",
            [(coarse, coarsest), (fine, coarse)],
        ),
        (
            "Sums that overflow their bits cost accuracy (scale 100, 16 bits against 32)",
            [(coarse, _multi(100, 16))],
        ),
        (
            "Several places per user, finely scaled, beat the single most visited one",
            [(fine, "single location"), (finest, "single location")],
        ),
        (
            "Largest-remainder rounding, of sensitivity scale and not scale + d, has less error than stochastic",
            list(exact.items()),
        ),
        (
            "Multiscale, with two rounds or at the grid's own depth, has less error than every multi-location row of "
            "the paper's method",
            [("multiscale, two rounds (ours)", best), ("multiscale at the grid's depth (ours)", best)],
        ),
        (
            "So has multiscale with one round, at the depth that the number of users alone suggests",
            [(OURS, best)],
        ),
    )
    return [_compared(results, claim, pairs) for claim, pairs in compared]


def table_3_claims(results: Results) -> list[Claim]:
    """What appendix A says of the parts of the algorithm, and A.1 of the other measures."""
    plain, fixed, scheduled, whole = (
        "no noise, T = 10",
        "fixed ε, T = 10",
        "scheduled ε, T = 10",
        "scheduled ε, adaptive T",
    )
    mean = {row: results.of(label=row).mean for row in (plain, fixed, scheduled, whole, OURS)}
    ahead = results.ahead(whole, scheduled)
    claims = [
        Claim(
            "Without noise the hierarchy reaches the error of the non-interactive baseline, 7.75e-13, to 2 %",
            within(mean[plain] * 1e13, 7.75, NON_PRIVATE_PART),
            f"{mean[plain] * 1e13:.3f}e-13",
        ),
        Claim(
            "A fixed schedule is worse in error and in communication than the calibrated one",
            joint_verdict(
                [
                    mean[fixed] > mean[scheduled],
                    results.of(label=fixed).length > results.of(label=scheduled).length,
                ]
            ),
            f"{mean[fixed] * 1e13:.2f}e-13 at {results.of(label=fixed).length:,.0f} against "
            f"{mean[scheduled] * 1e13:.2f}e-13 at {results.of(label=scheduled).length:,.0f}",
        ),
        Claim(
            "The threshold that adapts to the noise improves on T = 10",
            joint_verdict([ahead.clear]),
            f"{mean[whole] * 1e13:.3f} against {mean[scheduled] * 1e13:.3f}e-13, by {ahead.mean * 1e13:.3f} "
            f"({ahead.low * 1e13:.3f} to {ahead.high * 1e13:.3f}) over the same people",
        ),
    ]
    cases = []
    for metric, name, papers in (
        ("l1", "L1 over all cells", 1.019),
        ("floored_mape", "MAPE", 1.11),
        ("smape", "sMAPE", 1.087),
        ("maape", "MAAPE", 1.0),
    ):
        ratio = results.of(metric, label=whole).mean / results.of(metric, label=plain).mean
        cases.append((ratio <= 1.15, f"{name} {ratio - 1:+.1%} (paper {papers - 1:+.1%})"))
    close = "The algorithm is close to the map without noise on every measure of A.1 (read as: within 15 %)"
    return [*claims, judged(close, cases, ", ")]
