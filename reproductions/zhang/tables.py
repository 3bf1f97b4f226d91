"""Tables 3 to 6 of Zhang et al. (2022): utility for reference, mechanisms of LDP, the fitted map, adversaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.attacks.signal_adversary import SignalCodes
from mapveil.attacks.signal_attack import attack_signal, signal_adversaries
from mapveil.attacks.signal_network import SignalNetwork
from mapveil.attacks.signal_score import AdversaryScore
from mapveil.evaluation.signal_trials import SignalTask, privatize_split
from mapveil.geo.measurements import MeasurementSplit
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.obfuscation.privatizers.privatizer import Privatizer
from mapveil.obfuscation.utility import utility
from mapveil_client.randomness.random import Randomness
from reproductions.data import printed_figures
from reproductions.driver import Section
from reproductions.report import Claim, Report, Table, joint_verdict
from reproductions.zhang.beyond import Contender
from reproductions.zhang.common_adversaries import attack_with_others
from reproductions.zhang.planes import against
from reproductions.zhang.sections import (
    PAPER_USER,
    Plan,
    at_level,
    contenders,
    plane_tasks,
    shown,
    split_of,
    trials_of,
)

_LDP: Final = (1.0, 10.0, 100.0)
_PRINTED: Final = printed_figures("zhang")
_KINDS: Final = ("own", "unobfuscated", "aggregate", "v = 0.8, 0.2", "v = 0.2, 0.8")
_COMMON: Final[Mapping[str, tuple[float, ...]]] = {
    "noise": (0.1, 0.2, 0.35),
    "GAP, the paper's": (0.2, 0.4, 0.7),
    "IT, the paper's": (0.2, 0.4, 0.8),
    "GAP with noise": (0.2, 0.4, 0.7),
    "funnel": (0.35, 0.5, 0.7),
}
_TARGET: Final = -2.5


class ReferenceTask(NamedTuple):
    """A release that has nothing to do with the data."""

    split: MeasurementSplit
    seed: int


class CommonTask(NamedTuple):
    """One value of every privatizer, attacked by adversaries in common."""

    split: MeasurementSplit
    chosen: tuple[tuple[str, float, Privatizer], ...]  # label, value of its parameter
    trial: int
    seed: int
    quick: bool


class CommonAnswer(NamedTuple):
    """What each adversary leaves of one privatizer at one value."""

    label: str
    value: float
    trial: int
    u: float
    p: Mapping[str, float]  # by kind of training
    strongest: float


def run_reference(task: ReferenceTask) -> tuple[float, float]:
    """U1 and U2 of standard normal rows."""
    rows = Normalisation.learn(task.split.pilot).apply(task.split.held_out.rows)
    drawn = Randomness(task.seed).child("random data").generator().normal(size=rows.shape)
    return utility(rows, drawn)[:2]


def run_common(task: CommonTask) -> tuple[CommonAnswer, ...]:
    """Train the paper's networks on own, unobfuscated and everybody's data, and with other loss weights."""
    rng = Randomness(task.seed).child(f"common {task.trial} {[value for _, value, _ in task.chosen]}")
    made = {
        label: privatize_split(task.split, privatizer, rng.child(label))
        for label, _, privatizer in task.chosen
    }
    network = SignalNetwork(most_runs=20_000, epochs=15) if task.quick else SignalNetwork()
    raw = privatize_split(task.split, None, rng.child("raw"))
    others = attack_with_others(
        {label: (each.known, each.held_out) for label, each in made.items()},
        raw.known,
        [network],
        rng.child("common"),
    )
    weighted = [replace(network, weights=pair) for pair in ((0.8, 0.2), (0.2, 0.8))]
    answers = []
    for label, value, _ in task.chosen:
        own = attack_signal(
            made[label].known,
            made[label].held_out,
            adversaries=[
                network,
                *weighted,
                *signal_adversaries(quick=task.quick, network=False, as_reported=False),
            ],
            rng=rng.child(f"own {label}"),
        )
        found = {_kind(score): score.p for score in (*own.scores, *others[label].scores)}
        answers.append(CommonAnswer(label, value, task.trial, made[label].utility.total, found, own.floor))
    return tuple(answers)


def _kind(score: AdversaryScore) -> str:
    """The column of Table 6 a score belongs to; other adversaries keep their names."""
    if score.trained_on != "own":
        return score.trained_on
    return "own" if score.adversary == PAPER_USER else score.adversary.removeprefix("network, ")


def _printed(table: str, row: str, column: str, form: str = "{:g} | ") -> str:
    value = _PRINTED.get((table, row, column))
    return "" if value is None else form.format(value)


def _table_3_tasks(plan: Plan, shared: Path, seed: int) -> list[ReferenceTask]:
    return [
        ReferenceTask(split_of("chania", plan, shared, seed, trial), seed + trial)
        for trial in range(plan.trials)
    ]


def _table_3(tasks: Sequence[ReferenceTask], answers: Sequence[tuple[float, float]]) -> Report:
    width = tasks[0].split.pilot.features
    rows = [
        [
            name,
            "0",
            "0",
            _printed("table 3", "random data", name, "{:g}"),
            shown([-each[at] for each in answers]),
        ]
        for at, name in enumerate(("distortion", "map error"))
    ]
    header = ["metric", "no obfuscation, paper", "here", "random data, paper", "here"]
    note = (
        f"Normal rows of {width} features against normalised ones: near the square root of twice {width}. The paper's "
        "5.74 is that of about 17 features; the public data have fewer."
    )
    return Report([Table("Utility for reference (Table 3)", header, rows, note)])


def _ldp() -> tuple[Contender, ...]:
    kinds = (("GLDP", "local-gaussian"), ("LLDP", "truncated-laplacian"))
    return tuple(
        Contender(f"{label}, {how}", name, "epsilon", _LDP, {"delta": 1e-5, "calibration": how})
        for label, name in kinds
        for how in ("paper", "exact")
    )


def _table_4_tasks(plan: Plan, shared: Path, seed: int) -> list[SignalTask]:
    return plane_tasks(["chania"], plan, shared, seed, _ldp())


def _table_4(tasks: Sequence[SignalTask], answers: Sequence[Any]) -> Report:
    trials = against(trials_of(answers), PAPER_USER)
    promised = {
        (task.label, task.value): task.privatizer.fit(task.split.pilot, rng=0).guarantee(seeded=False)
        for task in tasks
        if task.privatizer is not None and task.trial == 0
    }
    rows, privacy = [], {}
    for (label, value), guarantee in promised.items():
        own = [each for each in trials if (each.privatizer, each.value) == (label, value)]
        theirs = label[:4] if label.endswith("paper") else ""
        found = [[each.p1 for each in own], [each.p2 for each in own]]
        found += [[-each.u1 for each in own], [-each.u2 for each in own]]
        privacy[label, value] = float(np.mean([each.p for each in own]))
        held = guarantee.epsilon
        epsilon = "none" if held is None else f"{float(held):.3g}, {float(guarantee.delta):.1g}"
        cells = [
            f"{_printed('table 4', theirs, f'{value:g} {column}')}{shown(each)}"
            for column, each in zip(("P1", "P2", "distortion", "map error"), found, strict=True)
        ]
        rows.append([f"{label}, claimed {value:g}", epsilon, *cells])
    table = Table(
        "Local differential privacy on Chania (Table 4)",
        ["mechanism", "epsilon, delta that hold", "P1", "P2", "distortion", "map error"],
        rows,
        "Paper | here, against the paper's network. 'paper' calibrates to half the sensitivity (and the Laplacian to "
        "the L2 radius in every feature); 'exact' is Mapveil's default.",
    )
    pairs = [(privacy["GLDP, paper", value], privacy["LLDP, paper", value], value) for value in _LDP]
    claim = Claim(
        "Chania: the Gaussian mechanism leaves at least as much privacy as the truncated Laplacian at the same claim "
        "(Table 4)",
        joint_verdict([gaussian >= laplacian - 0.02 for gaussian, laplacian, _ in pairs]),
        "P " + "; ".join(f"{gaussian:.2f} and {laplacian:.2f} at {v:g}" for gaussian, laplacian, v in pairs),
    )
    return Report([table], [], [claim])


def _table_5_tasks(plan: Plan, shared: Path, seed: int) -> list[SignalTask]:
    split = split_of("chania", plan, shared, seed, 0)
    none = SignalTask("chania", split, None, "", 0.0, 0, seed, (SignalCodes(),), label="none")
    return [*plane_tasks(["chania"], plan, shared, seed), none]


def _table_5(tasks: Sequence[SignalTask], answers: Sequence[Any]) -> Report:
    every = trials_of(answers)
    none = next(trial for trial in every if trial.privatizer == "none")
    trials = [trial for trial in every if trial.privatizer != "none"]
    by_network = at_level(against(trials, PAPER_USER), lambda point: point.means["p"], 1.0)
    by_strongest = at_level(trials, lambda point: point.means["floor"], 1.0)
    names = list(dict.fromkeys(trial.privatizer for trial in trials))
    rows = [["none", _printed("table 5", "none", "RMSE", "{:.2f}"), *[f"{none.rmse_dbm:.2f}"] * 2]]
    for name in names:
        cells = [
            f"{found[name]['rmse_dbm']:.2f}" if name in found else "-" for found in (by_network, by_strongest)
        ]
        rows.append([name, _printed("table 5", name, "RMSE", "{:.2f}"), *cells])
    table = Table(
        "RMSE in dBm of the map fitted to privatized measurements at P = 1 (Table 5)",
        ["privatizer", "the paper's", "P = 1 against its network", "P = 1 against the strongest"],
        rows,
        "A linear model of signal strength fitted to the privatized pilot, judged at held-out rows as they were; "
        "- where P = 1 lies outside what was measured.",
    )
    claims = []
    for words, found in (("its network", by_network), ("the strongest adversary", by_strongest)):
        if "noise" not in found:
            continue
        rivals = {name: found.get(name) for name in ("GAP, the paper's", "IT, the paper's")}
        told = [
            f"{name} {'measured nowhere near P = 1' if each is None else format(each['rmse_dbm'], '.2f')}"
            for name, each in rivals.items()
        ]
        better = [
            each is not None and each["rmse_dbm"] < found["noise"]["rmse_dbm"] for each in rivals.values()
        ]
        claims.append(
            Claim(
                f"Chania, P = 1 against {words}: maps from GAP and IT are better than from noise (Table 5)",
                joint_verdict(better),
                f"RMSE {', '.join(told)} against {found['noise']['rmse_dbm']:.2f} dBm",
            )
        )
    return Report([table], [], claims)


def _table_6_tasks(plan: Plan, shared: Path, seed: int) -> list[CommonTask]:
    named = {each.label: each for each in contenders(plan)}
    return [
        CommonTask(
            split_of("chania", plan, shared, seed, trial),
            tuple((label, values[at], named[label].make(values[at])) for label, values in _COMMON.items()),
            trial,
            seed,
            plan.quick,
        )
        for trial in range(plan.trials)
        for at in range(3)
    ]


def _table_6(tasks: Sequence[CommonTask], answers: Sequence[tuple[CommonAnswer, ...]]) -> Report:
    rows, at_target = [], {}
    for label in _COMMON:
        own = [each for answer in answers for each in answer if each.label == label]
        values = sorted({each.value for each in own})
        utilities = [float(np.mean([each.u for each in own if each.value == value])) for value in values]
        order = np.argsort(utilities)

        def reached(kind: str, own: list[CommonAnswer] = own, values: list[float] = values) -> list[float]:
            def of(each: CommonAnswer) -> float:
                return each.strongest if kind == "strongest" else each.p[kind]

            return [float(np.mean([of(each) for each in own if each.value == value])) for value in values]

        inside = min(utilities) <= _TARGET <= max(utilities)
        found = {
            kind: float(np.interp(_TARGET, np.array(utilities)[order], np.array(reached(kind))[order]))
            for kind in (*_KINDS, "strongest")
        }
        value = float(np.interp(_TARGET, np.array(utilities)[order], np.array(values)[order]))
        at_target[label] = found
        cells = [f"{_printed('table 6', label, kind)}{found[kind]:.2f}" for kind in _KINDS]
        note = "" if inside else " (nearest measured)"
        rows.append([f"{label} at {value:.2g}{note}", *cells, f"{found['strongest']:.2f}"])
    table = Table(
        f"Privacy P at utility {_TARGET:g} against adversaries in common (Table 6)",
        ["privatizer", *_KINDS, "the strongest of all"],
        rows,
        "Paper | here; Chania, linear between three measured values. The last column is the best of trees, neighbours, "
        "codes and networks trained on the privatizer's own output, for the user and for the place.",
    )
    claims = []
    for kind in (*_KINDS, "strongest"):
        gap = at_target["GAP, the paper's"][kind]
        rivals = {name: at_target[name][kind] for name in ("noise", "IT, the paper's")}
        claims.append(
            Claim(
                f"Chania, U = {_TARGET:g}: GAP leaves more privacy than noise and IT against {_words(kind)} (Table 6)",
                joint_verdict([gap > each for each in rivals.values()]),
                f"P {gap:.2f} against " + ", ".join(f"{name} {each:.2f}" for name, each in rivals.items()),
            )
        )
    return Report([table], [], claims)


def _words(kind: str) -> str:
    return {
        "own": "a network trained on its own output",
        "unobfuscated": "one trained on what was not privatized",
        "aggregate": "one trained on everybody's output",
        "strongest": "the strongest adversary",
    }.get(kind, f"a network with {kind}")


TABLE_3: Final = Section("table 3", _table_3_tasks, _table_3)
TABLE_4: Final = Section("table 4", _table_4_tasks, _table_4)
TABLE_5: Final = Section("table 5", _table_5_tasks, _table_5)
TABLE_6: Final = Section("table 6", _table_6_tasks, _table_6)
