"""Figures 4, 5 and 7 of Zhang et al. (2022): what privatized measurements look like, and the maps made of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mapveil.attacks.signal_attack import signal_adversaries
from mapveil.attacks.signal_network import SignalNetwork
from mapveil.evaluation.signal_trials import privatize_split
from mapveil.geo.measurements import LAT, LON, RSS, MeasurementSplit
from mapveil.obfuscation.privatizers.gaussian_noise import GaussianNoise
from mapveil.obfuscation.privatizers.privatizer import Privatizer
from mapveil.obfuscation.utility import linear_parameters
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import require
from mapveil_client.randomness.random import Randomness
from reproductions.driver import Section
from reproductions.report import Picture, Report
from reproductions.zhang.beyond import Contender
from reproductions.zhang.sections import Plan, contenders, split_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_SHOWN: Final = 1_500
_CELLS: Final = 24
_REACH: Final = 2.5  # deviations, to the edge of a picture


class LookTask(NamedTuple):
    """One privatizer to look at: of several values, the one whose P is nearest to a target."""

    key: str
    title: str
    split: MeasurementSplit
    choices: tuple[tuple[float, Privatizer | None], ...]
    target: float | None  # P against the quick network; None takes the only choice
    seed: int


class Look(NamedTuple):
    """Normalised places and signal strengths before, after, and as an adversary guesses."""

    key: str
    title: str
    value: float
    p: float
    before: FloatArray  # (rows, features)
    after: FloatArray
    guess: FloatArray  # (rows, 2)


def run_look(task: LookTask) -> Look:
    """Privatize, train the paper's network, and keep what is nearest to the target."""
    best: tuple[float, Look] | None = None
    for value, privatizer in task.choices:
        rng = Randomness(task.seed).child(f"look {task.title} {value}")
        made = privatize_split(task.split, privatizer, rng)
        network = next(each for each in signal_adversaries(quick=True) if isinstance(each, SignalNetwork))
        guess = network.train(made.known, rng.child("network"), lambda step, part: None)(
            made.held_out.observed
        )
        wrong = float((guess.users.argmax(axis=1) != made.held_out.users).mean())
        p = wrong + float(np.hypot(*np.moveaxis(guess.places - made.held_out.places, -1, 0)).mean())
        order = task.split.held_out.sequences(1)[:, 0]
        before = made.normalisation.apply(task.split.held_out.rows)[order]
        look = Look(task.key, task.title, value, p, before, made.held_out.observed[:, 0], guess.places[:, 0])
        off = abs(p - task.target) if task.target is not None else 0.0
        if best is None or off < best[0]:
            best = (off, look)
    if best is None:
        raise AssertionError("a look without a choice")
    return best[1]


def _noise_tasks(sigma: float) -> Section:
    number = 4 if sigma < 0.5 else 5

    def tasks(plan: Plan, shared: Path, seed: int) -> list[LookTask]:
        split = split_of("chania", plan, shared, seed, 0)
        key = f"figure {number}"
        return [
            LookTask(key, f"noise of {sigma:g}", split, ((sigma, GaussianNoise(sigma=sigma)),), None, seed)
        ]

    def report(tasks: Sequence[LookTask], answers: Sequence[Look]) -> Report:
        caption = f"Figure {number}. Chania, noise of {sigma:g}: places, and the linear maps fitted before and after"
        return Report([], [Picture.of(f"figure-{number}", _places_figure(answers[0]), caption)])

    return Section(f"figure {number}", tasks, report)


def _places_figure(look: Look) -> Figure:
    figure_module = require("matplotlib.figure", "viz")
    figure: Figure = figure_module.Figure(figsize=(10.4, 6.6), layout="constrained")
    shown = np.linspace(0, len(look.before) - 1, min(_SHOWN, len(look.before))).astype(int)
    for at, (title, places) in enumerate(
        (
            ("measured", look.before[:, [LON, LAT]]),
            ("privatized", look.after[:, [LON, LAT]]),
            ("the adversary's guess", look.guess[:, ::-1]),
        )
    ):
        axes = figure.add_subplot(2, 3, at + 1)
        axes.scatter(places[shown, 0], places[shown, 1], s=2, alpha=0.5, color="#0072B2", linewidths=0)
        _frame(axes, title)
    vmin, vmax = np.quantile(look.before[:, RSS], [0.02, 0.98])
    grid = np.linspace(-_REACH, _REACH, 60)
    lon, lat = np.meshgrid(grid, grid)
    for at, (title, rows) in enumerate((("map before", look.before), ("map after", look.after))):
        axes = figure.add_subplot(2, 3, at + 4)
        # The map over places: every other feature at its mean, which is 0.
        alpha = linear_parameters(rows)
        drawn = alpha[0] + alpha[1 + LAT] * lat + alpha[1 + LON] * lon
        picture = axes.imshow(
            drawn,
            origin="lower",
            extent=(-_REACH, _REACH, -_REACH, _REACH),
            vmin=vmin,
            vmax=vmax,
            cmap="cividis",
        )
        _frame(axes, title)
    empty = figure.add_subplot(2, 3, 6)
    empty.axis("off")
    figure.colorbar(picture, ax=empty, location="left", fraction=0.1, label="signal strength, deviations")
    return figure


def _frame(axes: Axes, title: str) -> None:
    axes.set_xlim(-_REACH, _REACH)
    axes.set_ylim(-_REACH, _REACH)
    axes.set_aspect("equal")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("longitude, deviations", fontsize=8)
    axes.set_ylabel("latitude, deviations", fontsize=8)
    axes.tick_params(labelsize=7)


def _figure_7_tasks(plan: Plan, shared: Path, seed: int) -> list[LookTask]:
    split = split_of("chania", plan, shared, seed, 0)
    wanted = ("noise", "GAP, the paper's", "GAP with noise", "IT, the paper's", "funnel")

    def choices(each: Contender) -> tuple[tuple[float, Privatizer | None], ...]:
        values = each.values[:: 2 if plan.quick else 1]
        return tuple((float(value), each.make(value)) for value in values)

    looks = [
        LookTask("figure 7", each.label, split, choices(each), 1.0, seed)
        for each in contenders(plan)
        if each.label in wanted
    ]
    return [LookTask("figure 7", "none", split, ((0.0, None),), None, seed), *looks]


def _figure_7(tasks: Sequence[LookTask], answers: Sequence[Look]) -> Report:
    figure_module = require("matplotlib.figure", "viz")
    rows = -(-len(answers) // 3)
    figure: Figure = figure_module.Figure(figsize=(10.4, 3.3 * rows), layout="constrained")
    scale = np.quantile(answers[0].before[:, RSS], [0.05, 0.95])
    edges = np.linspace(-_REACH, _REACH, _CELLS + 1)
    for at, look in enumerate(answers):
        axes = figure.add_subplot(rows, 3, at + 1)
        lon, lat = look.after[:, LON], look.after[:, LAT]
        count = np.histogram2d(lat, lon, [edges, edges])[0]
        total = np.histogram2d(lat, lon, [edges, edges], weights=look.after[:, RSS])[0]
        mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        picture = axes.imshow(
            mean,
            origin="lower",
            extent=(-_REACH, _REACH, -_REACH, _REACH),
            vmin=scale[0],
            vmax=scale[1],
            cmap="cividis",
        )
        setting = "" if look.title == "none" else f" at {look.value:g}, P {look.p:.2f}"
        _frame(axes, f"{look.title}{setting}")
    figure.colorbar(picture, ax=figure.axes, shrink=0.6, label="mean signal strength, deviations")
    caption = (
        "Figure 7. Chania: mean signal strength by place of privatized measurements, each privatizer at the measured "
        "value whose P against the paper's network is nearest to 1"
    )
    return Report([], [Picture.of("figure-7", figure, caption)])


FIGURE_4: Final = _noise_tasks(0.1)
FIGURE_5: Final = _noise_tasks(0.9)
FIGURE_7: Final = Section("figure 7", _figure_7_tasks, _figure_7)
