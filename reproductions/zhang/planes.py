"""The trade-off planes and curves of Zhang et al. (2022): Figures 6, 10, 11 and 12, and what goes beyond."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from mapveil.attacks.signal_score import AdversaryScore, SignalAttack
from mapveil.evaluation.signal_report import PLANES, parameter_figure, plane_figure
from mapveil.evaluation.signal_tradeoff import points_of
from mapveil.evaluation.signal_trials import SignalTask, SignalTrial
from mapveil.obfuscation.utility import Utility
from reproductions.data import printed_figures
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, counted_verdict, joint_verdict
from reproductions.zhang.beyond import BeyondRow, report_beyond
from reproductions.zhang.data import SIGNAL_SETS
from reproductions.zhang.sections import GAUSSIAN_DP, PAPER_USER, Plan, at_level, plane_tasks, trials_of

_PAPERS: Final = ("noise", GAUSSIAN_DP.label, "GAP, the paper's", "IT, the paper's")
_PRINTED: Final = printed_figures("zhang")
_LEVELS: Final = (-4.0, -3.5, -3.0, -2.5, -2.0, -1.5, -1.0)


def against(trials: Sequence[SignalTrial], adversary: str) -> list[SignalTrial]:
    """The same trials with the privacy that one kind of adversary leaves."""
    made = []
    for trial in trials:
        score = next(each for each in trial.attack.scores if each.adversary == adversary)
        made.append(
            trial._replace(
                p1=score.p1, p2=score.p2, p2_m=score.p2_m, p=score.p, floor=score.p, strongest=adversary
            )
        )
    return made


def _chania(plan: Plan, shared: Path, seed: int) -> list[SignalTask]:
    return plane_tasks(["chania"], plan, shared, seed)


def _all(plan: Plan, shared: Path, seed: int) -> list[SignalTask]:
    return plane_tasks(tuple(SIGNAL_SETS), plan, shared, seed)


def _figure_6(tasks: Sequence[Any], answers: Sequence[Any]) -> Report:
    trials = [
        trial for trial in against(trials_of(answers, "chania"), PAPER_USER) if trial.privatizer in _PAPERS
    ]
    picture = parameter_figure(
        points_of(trials),
        {
            "user error P1": lambda means: means["p1"],
            "location error P2": lambda means: means["p2"],
            "distortion": lambda means: -means["u1"],
            "map error": lambda means: -means["u2"],
        },
    )
    claims = []
    for name in _PAPERS:
        points = sorted(
            (each for each in points_of(trials) if each.privatizer == name), key=lambda each: each.value
        )
        if len(points) < 2:
            continue
        less = (
            -1.0 if name == "noise" else 1.0
        )  # a larger sigma is more private, a larger anything else is less
        falls = [less * (points[-1].means[key] - points[0].means[key]) < 0 for key in ("p1", "p2")]
        falls += [less * (points[-1].means["u1"] - points[0].means["u1"]) > 0]
        claims.append(
            Claim(
                f"{name}: privacy and distortion grow together over {points[0].knob} (Figure 6)",
                joint_verdict(falls),
                f"at {points[0].value:g} and {points[-1].value:g}: "
                + "; ".join(
                    f"{words} {abs(points[0].means[key]):.2f}, {abs(points[-1].means[key]):.2f}"
                    for key, words in (("p1", "P1"), ("p2", "P2"), ("u1", "distortion"))
                ),
            )
        )
    caption = "Figure 6. Chania: privacy against the paper's network, and what it costs, over each parameter"
    return Report([], [Picture.of("figure-6", picture, caption)], claims)


def _figure_10(tasks: Sequence[Any], answers: Sequence[Any]) -> Report:
    panels, claims, rows = [], [], []
    for name in SIGNAL_SETS:
        trials = trials_of(answers, name)
        paper = [trial for trial in against(trials, PAPER_USER) if trial.privatizer in _PAPERS]
        network = PLANES["P-U"]._replace(x_label="privacy P against the network")
        panels.append((f"{name}, the paper's network", network, points_of(paper)))
        panels.append((f"{name}, the strongest adversary", PLANES["P-U"], points_of(_strongest(trials))))
        claims += [
            _ordering(name, "the paper's network", paper),
            _ordering(name, "the strongest adversary", _strongest(trials)),
        ]
        rows += _level_rows(name, "network", paper) + _level_rows(name, "strongest", _strongest(trials))
    picture = Picture.of(
        "figure-10",
        plane_figure(panels),
        "Figure 10. Composite privacy and utility; top right is best. Left as in the paper, right against whoever "
        "leaves least",
    )
    header = ["set, adversary, U", *_PAPERS, "GAP with noise", "IT by the row", "funnel"]
    note = (
        "P at equal U, linear between measured points; - where a privatizer was not measured on both sides."
    )
    return Report([Table("Privacy P at equal utility U (Figure 10)", header, rows, note)], [picture], claims)


def _strongest(trials: Sequence[SignalTrial]) -> list[SignalTrial]:
    """The best adversary for the user with the best for the place."""
    made = []
    for trial in trials:
        user, place = trial.attack.strongest_by("p1"), trial.attack.strongest_by("p2")
        made.append(trial._replace(p1=user.p1, p2=place.p2, p2_m=place.p2_m, p=trial.floor))
    return made


def _level_rows(name: str, adversary: str, trials: Sequence[SignalTrial]) -> list[list[str]]:
    rows = []
    for level in _LEVELS:
        found = at_level(trials, lambda point: point.means["u"], level)
        named = (*_PAPERS, "GAP with noise", "IT by the row", "funnel")
        best = max((each["p"] for each in found.values()), default=np.nan)
        cells = [
            "-" if key not in found else f"{'*' if found[key]['p'] == best else ''}{found[key]['p']:.2f}"
            for key in named
        ]
        rows.append([f"{name}, {adversary}, {level:g}", *cells])
    return rows


def _ordering(name: str, adversary: str, trials: Sequence[SignalTrial]) -> Claim:
    """Whether GAP and IT lie above Noise and GLDP wherever they can be compared."""
    ahead, compared, told = 0, 0, []
    for level in _LEVELS:
        found = at_level(trials, lambda point: point.means["u"], level)
        ours = [found[key]["p"] for key in _PAPERS[2:] if key in found]
        others = [found[key]["p"] for key in _PAPERS[:2] if key in found]
        if ours and others:
            compared += len(ours)
            ahead += sum(each > max(others) for each in ours)
            told.append(
                f"{', '.join(f'{each:.2f}' for each in ours)} against {max(others):.2f} at U = {level:g}"
            )
    return Claim(
        f"{name}, {adversary}: GAP and IT lie above Noise and GLDP in the trade-off plane (Figure 10)",
        counted_verdict(ahead, compared),
        "P of GAP, IT " + "; ".join(told) if told else "no utility at which they could be compared",
    )


def _figure_11(tasks: Sequence[Any], answers: Sequence[Any]) -> Report:
    trials = [
        trial for trial in against(trials_of(answers, "chania"), PAPER_USER) if trial.privatizer in _PAPERS
    ]
    points = points_of(trials)
    planes = [(key, PLANES[key], points) for key in ("P1-U1", "P1-U2", "P2-U1", "P2-U2")]
    caption = "Figure 11. Chania, the paper's network: single measures of privacy and utility"
    return Report([], [Picture.of("figure-11", plane_figure(planes), caption)])


def _figure_12(tasks: Sequence[Any], answers: Sequence[Any]) -> Report:
    points = [
        point for point in points_of(trials_of(answers, "chania")) if point.privatizer != GAUSSIAN_DP.label
    ]
    picture = parameter_figure(points, {"distortion": lambda means: -means["u1"]})
    printed = {row: f"{value:g}" for (table, row, _), value in _PRINTED.items() if table == "figure 12"}
    found = at_level(trials_of(answers, "chania"), lambda point: -point.means["u1"], 3.0)
    rows = [
        [name, printed.get(name, ""), f"{found[name]['value']:.3g}" if name in found else "none measured"]
        for name in dict.fromkeys(point.privatizer for point in points)
    ]
    table = Table(
        "Parameters at a distortion of 3 (Figure 12)",
        ["privatizer", "the paper's", "here"],
        rows,
        "The paper's noise of 0.2 has a distortion of 0.2 times the square root of the features, below 1 for its 17: "
        "its figure shows values that keep the constraint, not those at it.",
    )
    caption = "Figure 12. Chania: distortion over each parameter"
    return Report([table], [Picture.of("figure-12", picture, caption)])


def _beyond(tasks: Sequence[Any], answers: Sequence[Any]) -> Report:
    return report_beyond([row for row in _mean_rows(trials_of(answers)) if row.label != GAUSSIAN_DP.label])


def _mean_rows(trials: Sequence[SignalTrial]) -> list[BeyondRow]:
    """One row per privatizer and value: means over its trials."""
    grouped: dict[tuple[str, str, str, float], list[SignalTrial]] = {}
    for trial in trials:
        grouped.setdefault((trial.group, trial.privatizer, trial.knob, trial.value), []).append(trial)
    rows = []
    for key, found in grouped.items():
        means = Utility(
            *(float(np.mean([getattr(one, each) for one in found])) for each in ("u1", "u2", "u"))
        )
        scores = []
        for same in zip(*(one.attack.scores for one in found), strict=True):
            numbers = {
                each: float(np.mean([getattr(one, each) for one in same]))
                for each in ("p1", "p1_cross_entropy", "p2", "p2_m", "p")
            }
            scores.append(AdversaryScore(**{**same[0]._asdict(), **numbers}))
        rows.append(BeyondRow(*key, means, SignalAttack(tuple(scores), found[0].attack.weights)))
    return rows


FIGURE_6: Final = Section("figure 6", _chania, _figure_6)
FIGURE_10: Final = Section("figure 10", _all, _figure_10)
FIGURE_11: Final = Section("figure 11", _chania, _figure_11)
FIGURE_12: Final = Section("figure 12", _chania, _figure_12)
BEYOND: Final = Section("table beyond", _all, _beyond)
