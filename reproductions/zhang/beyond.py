"""Beyond Zhang et al. (2022): every privatizer against the strongest attacker, at equal utility, on three data sets."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mapveil.attacks.signal_score import SignalAttack
from mapveil.evaluation.html_report import Curve, Panel
from mapveil.obfuscation.privatizers.privatizer import Privatizer, find_privatizer
from mapveil.obfuscation.utility import Utility
from reproductions.report import Claim, Picture, Report, Table, counted_verdict
from reproductions.zhang.funnel import Funnel

OWN: Final = "funnel"
"""The retired privatizer of Mapveil, as the tables call it."""

TARGETS: Final = (-4.0, -3.5, -3.0, -2.5, -2.0, -1.5)
"""Composite utilities that privacy is compared at; -2.5 is the paper's (Table 6)."""


_POINT_HEADER: Final = ("U1", "U2", "U", "P1 (strongest)", "P2 (strongest)", "P2, m", "P", "P of each")
_LEAST_SHOWN: Final = -6.0  # utilities of chance alone; beyond, a picture would show little else


class Contender(NamedTuple):
    """One privatizer, and the values of the parameter that trades privacy for utility."""

    label: str
    privatizer: str
    parameter: str
    values: tuple[float, ...]
    fixed: Mapping[str, Any]

    def make(self, value: float) -> Privatizer:
        """The privatizer at one value."""
        options = {**self.fixed, self.parameter: value}
        return (
            Funnel(**options)
            if self.privatizer == Funnel.name
            else find_privatizer(self.privatizer).make(options)
        )


CONTENDERS: Final = (
    Contender("noise", "gaussian-noise", "sigma", (0.1, 0.25, 0.5, 0.75, 1.0, 1.5), {}),
    Contender("GAP, the paper's", "gap", "rho", (0.2, 0.4, 0.6, 0.8, 0.9), {"noise": 0}),
    Contender("GAP with noise", "gap", "rho", (0.2, 0.4, 0.6, 0.8, 0.9), {}),
    Contender("IT, the paper's", "codebook", "mu", (0.1, 0.3, 0.5, 0.7, 1.0), {"raw": True, "batch": 1024}),
    Contender("IT by the row", "codebook", "mu", (0.5, 1.0, 2.0, 4.0, 8.0), {}),
    Contender(OWN, "funnel", "rho", (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8), {}),
)
"""Who is compared. The paper's GAP is deterministic; the paper's codebook has the raw batch among its codes."""


class BeyondRow(NamedTuple):
    """One privatizer at one value on one set."""

    dataset: str
    label: str
    parameter: str
    value: float
    utility: Utility
    attack: SignalAttack

    @property
    def privacy(self) -> float:
        """P against the strongest attacker: the best for the user with the best for the place."""
        return self.attack.floor


def at_equal_utility(rows: Iterable[BeyondRow], target: float) -> float | None:
    """The most privacy of one privatizer on one set where its utility U is at least the target.

    Of what was measured at that utility or a better one, and of the lines between values next to each other whose
    utilities enclose it. None where nothing measured is as useful.
    """
    known = [(each.utility.total, each.privacy) for each in sorted(rows, key=lambda each: each.value)]
    found = [p for u, p in known if u >= target]
    for (u, p), (v, q) in itertools.pairwise(known):
        low, high = min(u, v), max(u, v)
        if low <= target <= high:
            part = 0.5 if high == low else (target - u) / (v - u)
            found.append(p + part * (q - p))
    return max(found, default=None)


def report_beyond(rows: Sequence[BeyondRow]) -> Report:
    """Privacy at equal utility, every measured point, the curves, and whether the funnel is at least as good."""
    names = list(dict.fromkeys(each.dataset for each in rows))
    labels = list(dict.fromkeys(each.label for each in rows))
    table, panels, claims = [], [], []
    for name in names:
        mine = {
            label: [each for each in rows if (each.dataset, each.label) == (name, label)] for label in labels
        }
        ahead, compared, evidence = 0, 0, []
        for target in TARGETS:
            found = {label: at_equal_utility(each, target) for label, each in mine.items()}
            best = max((value for value in found.values() if value is not None), default=None)
            table.append(
                [f"{name}, U = {target:g}"]
                + [
                    "-" if value is None else f"{'*' * (value == best)}{value:.2f}"
                    for value in found.values()
                ]
            )
            rivals = [value for label, value in found.items() if label != OWN and value is not None]
            own = found.get(OWN)
            if own is not None and rivals:
                compared += 1
                ahead += own >= max(rivals)
                evidence.append(f"{own:.2f} against {max(rivals):.2f} at {target:g}")
        claims.append(
            Claim(
                f"{name}: the funnel leaves at least as much privacy as every other against the strongest attacker, at "
                "equal utility",
                counted_verdict(ahead, compared),
                "P " + "; ".join(evidence),
            )
        )
        panels.append(
            Panel(
                f"P: {name}",
                "utility U",
                [_curve(label, shown) for label, each in mine.items() if (shown := _in_sight(each))],
                ticks=tuple(range(-20, 1, 2)),
            )
        )
    points = [
        [
            f"{each.dataset}: {each.label}, {each.parameter} {each.value:g}",
            *(f"{value:.2f}" for value in each.utility),
            f"{each.attack.strongest_by('p1').p1:.3f} ({each.attack.strongest_by('p1').adversary})",
            f"{each.attack.strongest_by('p2').p2:.3f} ({each.attack.strongest_by('p2').adversary})",
            f"{each.attack.strongest_by('p2').p2_m:,.0f}",
            f"{each.privacy:.2f}",
            ", ".join(f"{score.adversary} {score.p:.2f}" for score in each.attack.scores),
        ]
        for each in rows
    ]
    caption = "Privacy against the strongest attacker and utility; the further up and to the right the better"
    return Report(
        [
            Table(
                "Privacy P against the strongest attacker at equal utility",
                ["set and utility", *labels],
                table,
                "P = P1 + P2, the strongest for each, at that utility or a better one; linear between measured points; "
                "- where nothing measured was as useful. * is the best.",
            ),
            Table("Every measured point", ["set and privatizer", *_POINT_HEADER], points),
        ],
        [Picture.curves("beyond", panels, caption)],
        claims,
    )


def _in_sight(rows: Sequence[BeyondRow]) -> list[BeyondRow]:
    return [each for each in rows if each.utility.total >= _LEAST_SHOWN]


def _curve(label: str, rows: Sequence[BeyondRow]) -> Curve:
    ordered = sorted(rows, key=lambda each: each.utility.total)
    privacy = [each.privacy for each in ordered]
    return Curve(label, [each.utility.total for each in ordered], privacy, privacy, privacy)
