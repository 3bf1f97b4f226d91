"""Figures 8 and 9 of Zhang et al. (2022): what runs of one user's measurements give to either side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from mapveil.evaluation.html_report import Curve, Panel, curves_figure
from mapveil.evaluation.signal_trials import SignalTask, SignalTrial
from mapveil.obfuscation.privatizers.gap import Gap
from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict
from reproductions.zhang.planes import against
from reproductions.zhang.sections import PAPER_USER, Plan, split_of, trials_of

_CASES: Final = ("only the adversary", "only the privatizer", "both")
_RHOS: Final = (0.3, 0.6)


def _tasks(plan: Plan, shared: Path, seed: int) -> list[SignalTask]:
    tasks = []
    for trial in range(min(plan.trials, 2)):
        for case in _CASES:
            for length in plan.sequences:
                # One split by whole runs for all three cases, so that only who looks at runs differs.
                split = split_of("chania", plan, shared, seed, trial, length=max(plan.sequences))
                theirs = 1 if case == "only the privatizer" else length
                ours = 1 if case == "only the adversary" else length
                for rho in _RHOS[:: plan.every]:
                    # Noise makes GAP worth attacking with runs: a fixed function gives the same row twice.
                    made = Gap(rho=rho, sequence=ours, steps=plan.gap_steps, batch=plan.gap_batch)
                    about = trial, seed, plan.adversaries(), theirs
                    tasks.append(SignalTask(f"{case}, {length}", split, made, "rho", rho, *about))
    return tasks


def _curves(trials: Sequence[SignalTrial], case: str, measure: str) -> list[Curve]:
    curves = []
    for length in sorted({_length(each) for each in trials}):
        own = [each for each in trials if each.group == f"{case}, {length}"]
        rhos = sorted({each.value for each in own})
        x = [float(np.mean([each.distortion for each in own if each.value == rho])) for rho in rhos]
        y = [float(np.mean([getattr(each, measure) for each in own if each.value == rho])) for rho in rhos]
        order = np.argsort(x)
        means = [y[at] for at in order]
        curves.append(Curve(f"length {length}", [x[at] for at in order], means, means, means))
    return curves


def _words(case: str) -> str:
    return f"{case} {'see' if case == 'both' else 'sees'} runs"


def _length(trial: SignalTrial) -> int:
    return int(trial.group.rsplit(", ", 1)[1])


def _figure(measure: str, words: str, number: int) -> Section:
    def report(tasks: Sequence[SignalTask], answers: Sequence[SignalTrial]) -> Report:
        trials = against([each for each in trials_of(answers) if each.group.startswith(_CASES)], PAPER_USER)
        panels = [Panel(f"{case} sees runs", "distortion", _curves(trials, case, measure)) for case in _CASES]
        ticks = [float(tick) for tick in range(8)]
        picture = curves_figure([panel._replace(ticks=ticks) for panel in panels])
        lengths = sorted({_length(each) for each in trials})
        rows, claims = [], []
        for case in _CASES:
            own = {
                length: [each for each in trials if each.group == f"{case}, {length}"] for length in lengths
            }
            means, spent = (
                {length: float(np.mean([getattr(each, name) for each in own[length]])) for length in lengths}
                for name in (measure, "distortion")
            )
            rows.append([case, *(f"{means[length]:.2f} ({spent[length]:.2f})" for length in lengths)])
            wanted = -1.0 if case == _CASES[0] else 1.0
            steps = [wanted * (means[b] - means[a]) > 0 for a, b in itertools.pairwise(lengths)]
            claims.append(
                Claim(
                    f"Chania, {_words(case)}: longer runs {'lower' if wanted < 0 else 'raise'} the {words} "
                    f"(Figure {number})",
                    joint_verdict(steps),
                    f"mean {words} over rho at lengths {', '.join(map(str, lengths))}: "
                    + ", ".join(f"{means[length]:.2f}" for length in lengths),
                )
            )
        table = Table(
            f"{words} (and distortion) by length of runs, mean over rho (Figure {number})",
            ["who sees runs", *(f"length {length}" for length in lengths)],
            rows,
            "Against the paper's network. A run is one user's measurements in order of time.",
        )
        caption = f"Figure {number}. Chania, GAP with noise: {words} against distortion, for runs of several lengths"
        return Report([table], [Picture.of(f"figure-{number}", picture, caption)], claims)

    return Section(f"figure {number}", _tasks, report)


FIGURE_8: Final = _figure("p1", "user error", 8)
FIGURE_9: Final = _figure("p2", "location error", 9)
