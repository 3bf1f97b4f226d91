"""Figures 10, 11 and 14 of Zong et al. (2023): performance against privacy on the two synthetic sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict
from reproductions.zong.pictures import TradeOff, trade_off_figure
from reproductions.zong.runs import Job
from reproductions.zong.sections import (
    AGAINST_EXACT,
    AGAINST_TRUTH,
    EXACT,
    FEATURES,
    NOISE,
    PLAIN_EPSILONS,
    PROJECTION,
    SILENCE,
    Plan,
    Results,
    at_same_privacy,
    settings,
)

FEW: Final = 100
"""People of Figure 14."""

MANY: Final = (1_000, 5_000, 10_000, 20_000)
"""People of Figures 10 and 11."""

SQUARES: Final = ("b within 4", "b within 5", "b")
"""The octagon on squares of half-side 4, 5 and 6."""

_PRIVATE: Final = (1, 2, 3, 4)  # features that leave privacy by the paper's score
_NAMES: Final = {"a": "Nine Gaussians", "b": "Octagon"}
_CERTAIN: Final = 4.5  # standard errors


def synthetic_jobs(source: str, crowds: Sequence[int], plan: Plan, shared: Path, seed: int) -> list[Job]:
    """Every trial of a synthetic set; people of the first are searched for maxima."""
    return [
        Job(source, users, trial, FEATURES, PLAIN_EPSILONS, plan.scored if trial == 0 else 0, shared, seed)
        for users in crowds
        for trial in range(plan.trials)
    ]


def _jobs_10(plan: Plan, shared: Path, seed: int) -> Sequence[Job]:
    return synthetic_jobs("a", MANY, plan, shared, seed)


def _jobs_11(plan: Plan, shared: Path, seed: int) -> Sequence[Job]:
    jobs = synthetic_jobs("b", MANY, plan, shared, seed) + synthetic_jobs("a", MANY[:1], plan, shared, seed)
    smaller = [
        Job(source, users, trial, (1, 50), (), 0, shared, seed)
        for source in SQUARES[:-1]
        for users in (MANY[0], MANY[-1])
        for trial in range(plan.trials)
    ]
    return jobs + smaller


def _jobs_14(plan: Plan, shared: Path, seed: int) -> Sequence[Job]:
    return synthetic_jobs("a", [FEW], plan, shared, seed) + synthetic_jobs("b", [FEW], plan, shared, seed)


def _table(results: Results, source: str, crowds: Sequence[int], metric: str, figure: str) -> Table:
    header = ["answer", "score", "as printed", *(f"N = {users:,}" for users in crowds)]
    rows = []
    exact = [(EXACT, 0.0, EXACT)] if metric == AGAINST_TRUTH else []
    for method, level, label in [*exact, *settings(PLAIN_EPSILONS)]:
        wanted = {"source": source, "method": method, "level": level}
        score, printed = (results.of(name, **wanted).mean for name in ("score", "score as printed"))
        cells = [results.of(metric, **wanted, users=users).shown() for users in crowds]
        rows.append([label, f"{score:.2f}", f"{printed:.2f}", *cells])
    silent = results.of("score", source=source, method=SILENCE).mean
    rows.append([SILENCE, f"{silent:.2f}", "", *("" for _ in crowds)])
    return Table(f"{figure}: {_NAMES[source]}, {metric}", header, rows)


def _panels(results: Results, source: str, crowds: Sequence[int], metric: str) -> list[TradeOff]:
    silent = results.of("score", source=source, method=SILENCE).mean
    panels = []
    for users in crowds:
        title = f"{_NAMES[source]}, N = {users:,}, against {'the truth' if metric == AGAINST_TRUTH else 'the KDE'}"
        methods = [PROJECTION, NOISE] + ([EXACT] if metric == AGAINST_TRUTH else [])
        points = {method: results.points(source, method, metric, users=users) for method in methods}
        panels.append(TradeOff(title, "score: expected error", points, silent))
    return panels


def _steady(results: Results, source: str) -> Claim:
    """Section 4.2: the score does not depend on the number of people."""
    deviations = []
    for level in _PRIVATE:
        wanted = {"source": source, "method": PROJECTION, "level": level}
        score, error = (
            np.array([results.of(metric, **wanted, users=users).mean for users in MANY])
            for metric in ("score", "standard error of the score")
        )
        deviations.append(np.abs(score - score.mean()) / np.maximum(error, 1e-12))
    largest = float(np.max(deviations))
    return Claim(
        f"{_NAMES[source]}: the score depends on the features and the region, not on N (read as: for 1 "
        f"to 4 features what differs is chance, below {_CERTAIN} standard errors)",
        joint_verdict([largest < _CERTAIN]),
        f"at most {largest:.1f} standard errors, over N = {MANY[0]:,} to {MANY[-1]:,}",
    )


def _ahead(results: Results, source: str, crowds: Sequence[int], metric: str) -> tuple[list[bool], str]:
    """Whether the projection is ahead of GeoInd at the same score, for each few features."""
    held, words = [], []
    for users in crowds:
        found = results.rivals(source, metric, _PRIVATE, users)
        won = [point.performance > rival for point, rival in found]
        held += won
        first, rival = found[0]
        words.append(
            f"N = {users:,}: ahead with {sum(won)} of {len(won)}; B = 1 {first.performance:.3f} against {rival:.3f}"
        )
    return held, "; ".join(words)


def _report_10(results: Results) -> Report:
    source = "a"
    one = {
        users: results.of(AGAINST_TRUTH, source=source, users=users, method=PROJECTION, level=1)
        for users in MANY
    }
    silent = results.of("score", source=source, method=SILENCE).mean
    noise = results.points(source, NOISE, AGAINST_TRUTH, users=MANY[-1])
    blurred = at_same_privacy(noise, silent)
    held, words = _ahead(results, source, MANY[1:], AGAINST_TRUTH)
    claims = [
        Claim(
            "Nine Gaussians: rank correlation above 0.9 with the truth with a single feature",
            joint_verdict([found.mean > 0.9 for found in one.values()]),
            ", ".join(f"{found.mean:.3f} at N = {users:,}" for users, found in one.items()),
        ),
        _steady(results, source),
        Claim(
            "Nine Gaussians: GeoInd costs more privacy for the same performance but for N = 1,000 (read as: it is "
            "behind at the scores of 1 to 4 features)",
            joint_verdict(held),
            words,
        ),
        Claim(
            "Nine Gaussians: GeoInd at the privacy of 0 features still gives a reasonable estimate "
            "(read as: above 0.8)",
            joint_verdict([blurred > 0.8]),
            f"{blurred:.3f} at N = {MANY[-1]:,}",
        ),
    ]
    tables = [_table(results, source, MANY, metric, "Figure 10") for metric in (AGAINST_TRUTH, AGAINST_EXACT)]
    caption = (
        "As Figure 10, against the density that people are drawn from. A point is a number of features or an epsilon; "
        "dotted: an answer that says nothing."
    )
    figure = trade_off_figure(_panels(results, source, MANY, AGAINST_TRUTH), AGAINST_TRUTH, columns=2)
    return Report(tables, [Picture.of("figure_10", figure, caption)], claims)


def _report_11(results: Results) -> Report:
    source, most, least = "b", MANY[-1], MANY[0]

    def found(metric: str, users: int, level: float, method: str = PROJECTION, source: str = source) -> float:
        return results.of(metric, source=source, users=users, method=method, level=level).mean

    def privacy_lost(source: str) -> float:
        silent = results.of("score", source=source, method=SILENCE).mean
        return 1 - results.of("score", source=source, method=PROJECTION, level=1).mean / silent

    one, fifty = found(AGAINST_TRUTH, most, 1), found(AGAINST_TRUTH, least, 50)
    ceiling = found(AGAINST_TRUTH, most, 0, EXACT)
    one_exact, fifty_exact = found(AGAINST_EXACT, most, 1), found(AGAINST_EXACT, least, 50)
    elsewhere = {
        name: (found(AGAINST_EXACT, most, 1, source=name), found(AGAINST_EXACT, least, 50, source=name))
        for name in SQUARES
    }
    near = [abs(value - 0.9) <= 0.05 for value, _ in elsewhere.values()]
    little = [0.88 <= value <= 0.99 for _, value in elsewhere.values()]
    held, words = _ahead(results, source, MANY[1:], AGAINST_TRUTH)
    claims = [
        Claim(
            f"Octagon: rank correlation close to 0.9 with the truth at N = {most:,} with one feature "
            "(read as: at least 0.85)",
            joint_verdict([one >= 0.85]),
            f"{one:.3f}; the exact KDE of the same people has {ceiling:.3f} itself: h = 0.55 is wider than the petals",
        ),
        Claim(
            "The same against the exact KDE (read as: 0.85 to 0.95 on one of the squares it may have mapped)",
            joint_verdict([any(near)]),
            ", ".join(f"{value:.3f} on {_square(name)}" for name, (value, _) in elsewhere.items()),
        ),
        Claim(
            f"Octagon: with N = {least:,} even 50 features are only a little over 0.9",
            joint_verdict([0.88 <= fifty <= 0.95]),
            f"{fifty:.3f} with the truth",
        ),
        Claim(
            "The same against the exact KDE (read as: 0.88 to 0.99 on one of the squares)",
            joint_verdict([any(little)]),
            ", ".join(f"{value:.3f} on {_square(name)}" for name, (_, value) in elsewhere.items()),
        ),
        _steady(results, source),
        Claim(
            "Octagon: GeoInd is significantly worse than the projection where privacy is high (read as: at the scores "
            "of 1 to 4 features, N = 5,000 and more)",
            joint_verdict(held),
            words,
        ),
        Claim(
            "One feature loses more privacy on the nine Gaussians, whose region is smaller beside the bandwidth",
            joint_verdict([privacy_lost("a") > privacy_lost("b")]),
            f"{privacy_lost('a'):.1%} of the 0-feature score against {privacy_lost('b'):.1%}",
        ),
    ]
    here = f"against the exact KDE one feature has {one_exact:.3f}, fifty {fifty_exact:.3f} at N = {least:,}"
    tables = [_table(results, source, MANY, metric, "Figure 11") for metric in (AGAINST_TRUTH, AGAINST_EXACT)]
    tables.append(_squares(results, here))
    caption = "As Figure 11, against the density that people are drawn from (left) and against the exact KDE (right)."
    both = [_panels(results, source, MANY, metric) for metric in (AGAINST_TRUTH, AGAINST_EXACT)]
    panels = [panel for pair in zip(*both, strict=True) for panel in pair]
    figure = trade_off_figure(panels, "rank correlation", columns=2)
    return Report(tables, [Picture.of("figure_11", figure, caption)], claims)


def _square(name: str) -> str:
    half = name.removeprefix("b within ") if name != "b" else "6"
    return f"[-{half}, {half}]²"


def _squares(results: Results, note: str) -> Table:
    rows = []
    for name in SQUARES:
        row = [_square(name)]
        row += [
            results.of(metric, source=name, users=users, method=PROJECTION, level=level).shown()
            for users, level in ((MANY[0], 50), (MANY[-1], 1))
            for metric in (AGAINST_TRUTH, AGAINST_EXACT)
        ]
        row.append(results.of(AGAINST_TRUTH, source=name, users=MANY[-1], method=EXACT).shown())
        rows.append(row)
    header = [
        "mapped square",
        f"N = {MANY[0]:,}, B = 50: truth",
        "exact KDE",
        f"N = {MANY[-1]:,}, B = 1: truth",
        "exact KDE",
        f"N = {MANY[-1]:,}, exact KDE: truth",
    ]
    return Table(
        "Figure 11: the octagon's rank correlations by what is mapped",
        header,
        rows,
        f"The paper does not say which square it maps. On the one used here {note}.",
    )


def _report_14(results: Results) -> Report:
    held, words = [], []
    panels, tables = [], []
    for source in ("a", "b"):
        behind, text = _ahead(results, source, [FEW], AGAINST_TRUTH)
        held += [not each for each in behind]
        words.append(f"{_NAMES[source]}, {text}")
        panels += _panels(results, source, [FEW], AGAINST_TRUTH)
        tables.append(_table(results, source, [FEW], AGAINST_TRUTH, "Figure 14"))
    claim = Claim(
        "With 100 people GeoInd generally performs better (read as: in most of the comparisons at the scores of 1 to 4 "
        "features)",
        "holds" if sum(held) > len(held) / 2 else "does not hold",
        "; ".join(words),
    )
    caption = "As Figure 14: 100 people."
    figure = trade_off_figure(panels, AGAINST_TRUTH)
    return Report(tables, [Picture.of("figure_14", figure, caption)], [claim])


FIGURE_10: Final = Section("figure 10", _jobs_10, _report_10)
FIGURE_11: Final = Section("figure 11", _jobs_11, _report_11)
FIGURE_14: Final = Section("figure 14", _jobs_14, _report_14)
