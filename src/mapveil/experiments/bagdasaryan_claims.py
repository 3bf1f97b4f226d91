"""What Bagdasaryan et al. (2022) say of their tables, and what Mapveil must reach, each judged by the rows."""

from __future__ import annotations

import numpy as np

from mapveil.experiments.bagdasaryan_sections import Claim, Results, Shown, joint_verdict, within

__all__ = ["BASELINES", "BUDGETS", "rounds_claim", "table_1_claims", "table_2_claims", "table_3_claims"]

BASELINES = ("flat", "hierarchical", "CM sketch", "adaptive grid", "spatial decomposition")
OURS = "multiscale (ours)"
ADAPTIVE = "Algorithm 2"
SMALL, LARGE, DROPPING = (
    "table 1, 10k users",
    "table 1, 100k users",
    "table 1, 100k users, 10 % drop out",
)
_GROUPS = {"10k": SMALL, "100k": LARGE, "100k, 10 % drop out": DROPPING}

BUDGETS = {SMALL: (0.0113, 0.0453, 0.181, 0.763), LARGE: (0.0036, 0.0143, 0.0572, 0.226, 0.699)}
"""Epsilons of the rounds of the authors' own code."""

NON_PRIVATE_PART = 0.02
ADAPTIVE_PART = 0.03
_FEWER = 10  # times: the paper's "orders of magnitude" at its least


def _near(results: Results, group: str, label: str, target: float, part: float, who: str) -> Claim:
    found = results.of(group=group, label=label)
    users = group.removeprefix("table 1, ")
    return Claim(
        f"{who}, {users}: within {part:.0%} of the paper's {target}e-13",
        within(found.mean * 1e13, target, part),
        f"{Shown(digits=3)(found)}e-13, {found.mean * 1e13 / target - 1:+.1%}, over {found.trials} seeds",
    )


def table_1_claims(results: Results) -> list[Claim]:
    """The figures that must come out, and what section 6.2 says of Table 1."""
    label = "non-private"
    claims = [
        _near(results, SMALL, label, 7.75, NON_PRIVATE_PART, "Non-private"),
        _near(results, LARGE, label, 6.19, NON_PRIVATE_PART, "Non-private"),
        _near(results, SMALL, ADAPTIVE, 7.88, ADAPTIVE_PART, ADAPTIVE),
        _near(results, LARGE, ADAPTIVE, 6.99, ADAPTIVE_PART, ADAPTIVE),
        _near(results, DROPPING, ADAPTIVE, 7.02, ADAPTIVE_PART, ADAPTIVE),
    ]
    claims.append(rounds_claim(results))
    held, words = [], []
    for name, group in _GROUPS.items():
        ours = results.of(group=group, label=ADAPTIVE).mean
        others = {other: results.of(group=group, label=other).mean for other in BASELINES}
        held += [ours < value for value in others.values()]
        nearest = min(others, key=lambda other: others[other])
        words.append(f"{name}: {ours * 1e13:.2f}e-13 against {others[nearest] * 1e13:.2f}e-13 of {nearest}")
    claims.append(
        Claim(f"{ADAPTIVE} has less error than every baseline", joint_verdict(held), "; ".join(words))
    )
    held, words = [], []
    for name, group in _GROUPS.items():
        ours = results.of(group=group, label=ADAPTIVE).length
        lengths = [
            results.of(group=group, label=other).length for other in BASELINES if other != "adaptive grid"
        ]
        held.append(ours * _FEWER <= min(lengths))
        words.append(f"{name}: {ours:,.0f} against {min(lengths):,.0f} and more")
    claims.append(
        Claim(
            f"{ADAPTIVE} sends orders of magnitude less than the baselines but the adaptive grid "
            f"(read as: at most 1/{_FEWER})",
            joint_verdict(held),
            "; ".join(words),
        )
    )
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
    held, words = [], []
    for name, group in _GROUPS.items():
        ours, theirs = (results.of(group=group, label=each).mean for each in (OURS, ADAPTIVE))
        held.append(ours < theirs)
        words.append(f"{name}: {ours * 1e13:.2f}e-13 against {theirs * 1e13:.2f}e-13")
    claims.append(
        Claim(f"Mapveil's default has less error than {ADAPTIVE}", joint_verdict(held), "; ".join(words))
    )
    return claims


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


def table_2_claims(results: Results) -> list[Claim]:
    """What section 6.2 says of Table 2, and that the exact rounding is the better one."""
    mean = {row: results.of(label=row, against="visits").mean * 1e7 for row in _labels(results)}
    fine, finest = mean[_multi(1e4, 32)], mean[_multi(1e6, 32)]
    coarse = {gamma: mean[_multi(gamma, 16 if gamma == 1 else 32)] for gamma in (1, 100)}
    clipped = mean[_multi(100, 16)]
    exact = [
        mean[_multi(gamma, bits, "largest-remainder")] < mean[_multi(gamma, bits)]
        for gamma, bits in ((1, 16), (100, 32), (1e4, 32), (1e6, 32))
    ]
    single = mean["single location"]
    ours, deep = mean[OURS], mean["multiscale at the grid's depth (ours)"]
    twice = mean["multiscale, two rounds (ours)"]
    papers = min(value for row, value in mean.items() if row.startswith("multi-location, stochastic"))
    return [
        Claim(
            "A larger scale improves the multi-location map",
            joint_verdict([fine < coarse[100], coarse[100] < coarse[1]]),
            f"stochastic rounding: {coarse[1]:.1f}, {coarse[100]:.1f}, {fine:.1f}, {finest:.1f}e-7 "
            "at scale 1, 1e2, 1e4, 1e6",
        ),
        Claim(
            "Sums that overflow their bits cost accuracy (scale 100, 16 bits against 32)",
            joint_verdict([clipped > coarse[100]]),
            f"{clipped:.1f}e-7 against {coarse[100]:.1f}e-7",
        ),
        Claim(
            "Several places per user, finely scaled, beat the single most visited one",
            joint_verdict([min(fine, finest) < single]),
            f"{min(fine, finest):.1f}e-7 against {single:.1f}e-7, both against all visits",
        ),
        Claim(
            "Largest-remainder rounding, of sensitivity scale and not scale + d, has less error than stochastic",
            joint_verdict(exact),
            "; ".join(
                f"scale {gamma:g}: {mean[_multi(gamma, bits, 'largest-remainder')]:.1f} against "
                f"{mean[_multi(gamma, bits)]:.1f}e-7"
                for gamma, bits in ((1, 16), (100, 32), (1e4, 32), (1e6, 32))
            ),
        ),
        Claim(
            "Multiscale, with two rounds or at the grid's own depth, has less error than every multi-location row of "
            "the paper's method",
            joint_verdict([twice < papers, deep < papers]),
            f"{twice:.1f} and {deep:.1f}e-7 against {papers:.1f}e-7 at best; one round, at the depth that the "
            f"number of users alone suggests: {ours:.1f}e-7",
        ),
    ]


def _labels(results: Results) -> list[str]:
    return list(dict.fromkeys(row.label for row in results.rows))


def table_3_claims(results: Results) -> list[Claim]:
    """What appendix A says of the parts of the algorithm, and A.1 of the other measures."""
    plain, fixed, scheduled, whole = (
        "no noise, T = 10",
        "fixed ε, T = 10",
        "scheduled ε, T = 10",
        "scheduled ε, adaptive T",
    )
    mean = {row: results.of(label=row).mean for row in (plain, fixed, scheduled, whole, OURS)}
    paired = results.values("value", label=scheduled), results.values("value", label=whole)
    ahead = float(np.mean(np.subtract(*paired)))
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
            joint_verdict([ahead > 0]),
            f"{mean[scheduled] * 1e13:.3f} against {mean[whole] * 1e13:.3f}e-13",
        ),
    ]
    words, held = [], []
    for metric, name, papers in (
        ("l1", "L1 over all cells", 1.019),
        ("floored_mape", "MAPE", 1.11),
        ("smape", "sMAPE", 1.087),
        ("maape", "MAAPE", 1.0),
    ):
        ratio = results.of(metric, label=whole).mean / results.of(metric, label=plain).mean
        words.append(f"{name} {ratio - 1:+.1%} (paper {papers - 1:+.1%})")
        held.append(ratio <= 1.15)
    claims.append(
        Claim(
            "The algorithm is close to the map without noise on every measure of A.1 (read as: within 15 %)",
            joint_verdict(held),
            ", ".join(words),
        )
    )
    return claims
