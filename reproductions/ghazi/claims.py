"""The claims of Ghazi et al. (2023), section 4.1, and Mapveil's own, each judged by the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from mapveil.evaluation.comparison import Comparison, interval_of_mean
from mapveil.evaluation.scoring import higher_is_better
from reproductions.ghazi.experiments import BASELINES, EMD_METHOD, OURS, PEERS
from reproductions.report import Claim, counted_verdict
from reproductions.results import Ahead

FLAT: Final = 0.10
"""A metric is flat where its mean changes by at most this part between the ends of a sweep."""

AVERAGED_EPSILONS: Final = (0.5, 1.0, 2.0)
RANKED_METRICS: Final = ("kl", "similarity", "emd")


class Sweep(NamedTuple):
    """Comparisons along one variable. Not private."""

    variable: str
    results: dict[float, Comparison]


def lead(comparison: Comparison, method: str, other: str, metric: str, epsilon: float) -> Ahead:
    """Paired difference of two methods over the trials of one comparison, 95 % interval."""
    sign = 1.0 if higher_is_better(metric) else -1.0
    ahead = comparison.values(method, metric, epsilon) - comparison.values(other, metric, epsilon)
    return Ahead(*interval_of_mean(sign * ahead))


def mean_over(comparison: Comparison, method: str, metric: str, epsilons: Sequence[float]) -> float:
    """The mean of a metric over the trials and some epsilons."""
    values = [np.mean(comparison.values(method, metric, epsilon)) for epsilon in epsilons]
    return float(np.mean(values))


def _better(metric: str, value: float, than: float) -> bool:
    return value > than if higher_is_better(metric) else value < than


def epsilon_claims(first: Comparison) -> list[Claim]:
    """Judge what section 4.1 of the paper says of experiment 1, and Mapveil's own claim."""
    return [
        *_ahead_of_baselines(first),
        _poor_baseline(first),
        _thresholding_helps(first),
        ours_against_peers("Experiment 1 (cells of check-ins)", {"": first}),
    ]


def users_claims(users: Sweep) -> list[Claim]:
    """Judge what it says of experiment 2."""
    return [_grows_with_users(users), _thresholding_unpredictable(users)]


def resolution_claims(resolution: Sweep) -> list[Claim]:
    """Judge what it says of experiment 3."""
    return [_flat_in_resolution(resolution), _baseline_suffers(resolution)]


def _ahead_of_baselines(first: Comparison) -> list[Claim]:
    claims = []
    middle = [epsilon for epsilon in first.epsilons if 0.2 <= epsilon <= 5]
    for family, others in (
        ("the plain Laplace baseline", BASELINES[:1]),
        ("every thresholded variant", BASELINES[1:]),
    ):
        ahead, clear, lost = 0, 0, []
        for epsilon in middle:
            for metric in first.metrics:
                for other in others:
                    found = lead(first, EMD_METHOD, other, metric, epsilon)
                    ahead += found.mean > 0
                    clear += found.clear
                    if found.mean <= 0:
                        lost.append(f"{metric} at ε = {epsilon:g} against {other}")
        total = len(middle) * len(first.metrics) * len(others)
        evidence = (
            f"ahead in {ahead} of {total} means (metric x epsilon x variant), "
            f"{clear} of them clearly (95 % interval of the paired difference)"
        )
        if lost:
            evidence += "; behind on " + ", ".join(lost)
        claims.append(
            Claim(
                f"The EMD method is ahead of {family} for 0.2 ≤ ε ≤ 5 on all four metrics",
                counted_verdict(ahead, total),
                evidence,
            )
        )
    return claims


def _poor_baseline(first: Comparison) -> Claim:
    last = first.epsilons[-1]
    base, ours = {}, {}
    for metric in first.metrics:
        base[metric] = mean_over(first, BASELINES[0], metric, [last])
        ours[metric] = mean_over(first, EMD_METHOD, metric, [1.0])
    held = sum(_better(metric, ours[metric], base[metric]) for metric in first.metrics)
    evidence = ", ".join(
        f"{metric} {base[metric]:.3g} against {ours[metric]:.3g}" for metric in first.metrics
    )
    return Claim(
        "The plain baseline is poor on all metrics even at the largest ε "
        "(read as: worse at ε = 10 than the EMD method at ε = 1)",
        counted_verdict(held, len(first.metrics)),
        f"laplace at ε = {last:g} against emd at ε = 1: {evidence}",
    )


def _thresholding_helps(first: Comparison) -> Claim:
    held, total, lost = 0, 0, []
    for epsilon in first.epsilons:
        for metric in first.metrics:
            best = max(lead(first, other, BASELINES[0], metric, epsilon).mean for other in BASELINES[1:])
            total += 1
            held += best > 0
            if best <= 0:
                lost.append(f"{metric} at ε = {epsilon:g}")
    evidence = f"the best variant improves {held} of {total} means"
    if lost:
        evidence += "; not " + ", ".join(lost)
    return Claim("Thresholding improves the baseline significantly", counted_verdict(held, total), evidence)


def _ends(sweep: Sweep, method: str, metric: str) -> tuple[float, float]:
    places = sorted(sweep.results)
    first, last = (
        float(np.mean(sweep.results[place].values(method, metric))) for place in (places[0], places[-1])
    )
    return first, last


def _grows_with_users(users: Sweep) -> Claim:
    held, words = 0, []
    metrics = next(iter(users.results.values())).metrics
    methods = (EMD_METHOD, BASELINES[0])
    for method in methods:
        for metric in metrics:
            first, last = _ends(users, method, metric)
            held += _better(metric, last, first)
            words.append(f"{method} {metric} {first:.3g} → {last:.3g}")
    places = sorted(users.results)
    return Claim(
        "The EMD method and the plain baseline improve with the number of users",
        counted_verdict(held, len(methods) * len(metrics)),
        f"from {places[0]:g} to {places[-1]:g} users: " + ", ".join(words),
    )


def _thresholding_unpredictable(users: Sweep) -> Claim:
    places = sorted(users.results)
    metrics = users.results[places[0]].metrics
    worse = []
    for method in BASELINES[1:]:
        for metric in metrics:
            means = [float(np.mean(users.results[place].values(method, metric))) for place in places]
            worse += [
                f"{method} {metric} {before:.3g} → {after:.3g} at {place:g}"
                for before, after, place in zip(means[:-1], means[1:], places[1:], strict=True)
                if _better(metric, before, after)
            ]
    steps = len(BASELINES[1:]) * len(metrics) * (len(places) - 1)
    return Claim(
        "Thresholded variants sometimes get worse with more users",
        "holds" if worse else "does not hold",
        f"{len(worse)} of {steps} steps between means go the wrong way"
        + (": " + ", ".join(worse[:6]) + (" ..." if len(worse) > 6 else "") if worse else ""),
    )


def _flat_in_resolution(resolution: Sweep) -> Claim:
    places = sorted(resolution.results)
    coarsest, finest = resolution.results[places[0]], resolution.results[places[-1]]
    held, words = 0, []
    for metric in coarsest.metrics:
        means = [float(np.mean(resolution.results[place].values(EMD_METHOD, metric))) for place in places]
        change = (max(means) - min(means)) / abs(means[0])
        # The trials draw the same users at every resolution, so the ends are paired.
        ends = finest.values(EMD_METHOD, metric) - coarsest.values(EMD_METHOD, metric)
        _, low, high = interval_of_mean(ends)
        noise = low <= 0 <= high
        held += change <= FLAT or noise
        listed = ", ".join(f"{mean:.3g}" for mean in means)
        words.append(f"{metric} {listed} ({change:.0%}{', within noise' if noise else ''})")
    return Claim(
        f"The EMD method's utility is nearly constant in the resolution (read as: means within {FLAT:.0%}, "
        "or no clear difference between the ends)",
        counted_verdict(held, len(coarsest.metrics)),
        f"at {', '.join(f'{place:g}' for place in places)}: " + "; ".join(words),
    )


def _baseline_suffers(resolution: Sweep) -> Claim:
    metrics = next(iter(resolution.results.values())).metrics
    held, words = 0, []
    for metric in metrics:
        first, last = _ends(resolution, BASELINES[0], metric)
        held += _better(metric, first, last)
        words.append(f"{metric} {first:.3g} → {last:.3g}")
    places = sorted(resolution.results)
    return Claim(
        "The plain baseline suffers on all metrics as the resolution grows",
        counted_verdict(held, len(metrics)),
        f"from {places[0]:g} to {places[-1]:g}: " + ", ".join(words),
    )


def ours_against_peers(name: str, comparisons: Mapping[str, Comparison]) -> Claim:
    """Whether Mapveil's default is ahead of the EMD method and the peers, averaged over epsilon and comparisons."""
    held, words, total = 0, [], 0
    for metric in RANKED_METRICS:
        means = {}
        for method in (OURS, EMD_METHOD, *PEERS):
            found = [
                mean_over(item, method, metric, [e for e in AVERAGED_EPSILONS if e in item.epsilons])
                for item in comparisons.values()
            ]
            means[method] = float(np.mean(found))
        for method in (EMD_METHOD, *PEERS):
            total += 1
            held += _better(metric, means[OURS], means[method])
        listed = ", ".join(f"{method} {value:.3g}" for method, value in means.items())
        words.append(f"{metric}: {listed}")
    return Claim(
        f"{name}: multiscale is ahead of the EMD method and the peers on KL, similarity and EMD, "
        "averaged over ε in {0.5, 1, 2}",
        counted_verdict(held, total),
        "; ".join(words),
    )
