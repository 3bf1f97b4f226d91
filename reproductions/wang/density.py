"""Where people are: Tables 5 to 14 but 4, Figures 8 and 11, and the neighbours of Figure 9 and Table 3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict
from reproductions.wang.collections import KL, L1, NOISE, Collection
from reproductions.wang.data import MERGED, SETS
from reproductions.wang.sections import (
    MLE,
    NAMES,
    OURS,
    PAPERS,
    PRINTED,
    PUBLISHED,
    SMALL_EPSILONS,
    SRR,
    Curves,
    Plan,
    Results,
    Scheme,
    beside,
    default_scheme,
    first_claim,
    levels_of,
    shown,
)

SCHEMES: Final = (
    *PAPERS,
    Scheme(PUBLISHED, "srr", "simplex", (("thresholds", "published"),)),
    Scheme(f"GRR, {MLE}", "grr", "em"),
    Scheme(f"HR, {MLE}", "hr", "em", (("blocks", 1),)),
    Scheme(f"{SRR}, {MLE}", "srr", "em"),
    default_scheme(),
)
"""The paper's pairs, those of its Figure 11, and Mapveil's own."""

_SHOWN: Final = tuple(scheme.label for scheme in SCHEMES if MLE not in scheme.label)
"""The schemes of Figures 8 and 9."""

_LARGE: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
_SMALL: Final = 3.0
_NMSE: Final = "neighbours' NMSE"


def _epsilons(plan: Plan) -> tuple[float, ...]:
    large = (1.0, 3.0, 5.0, 9.0) if plan.thin else _LARGE
    return tuple(dict.fromkeys((*plan.points(SMALL_EPSILONS), *large)))


def _city_jobs(plan: Plan, shared: Path, seed: int) -> list[Collection]:
    """One collection of all epsilons for each data set and trial; the large domains first."""
    some = _epsilons(plan)
    near = tuple(epsilon for epsilon in some if epsilon >= 1)
    return [
        Collection((data,), trial, SCHEMES, some, near, False, shared, seed)
        for data in SETS
        for trial in range(plan.trials)
    ]


def _merged_jobs(plan: Plan, shared: Path, seed: int) -> list[Collection]:
    asked = (*PAPERS, default_scheme())
    return [
        Collection(MERGED[:number], trial, asked, (1.0,), (), False, shared, seed, "merged")
        for number in (2, 3, 4, 1)
        for trial in range(plan.trials)
    ]


def _small_report(number: int) -> Callable[[Results], Report]:
    """One of Tables 5 to 12."""
    data, metric = SETS[(number - 5) % 4], L1 if number < 9 else KL

    def report(results: Results) -> Report:
        levels = [level for level in SMALL_EPSILONS if level in results.levels(metric)]
        rows, words = [], []
        for scheme in dict.fromkeys(scheme.label for scheme in SCHEMES):
            found = {level: shown(results.of(data.name, scheme, level, metric)) for level in levels}
            cells = (beside(text, f"table {number}", scheme, f"{level:g}") for level, text in found.items())
            rows.append([scheme, *cells])
        title = f"Table {number}: {metric}, {data.name}, {data.paper[0]} sites (the paper's in brackets)"
        won = {level: results.first(NAMES, data.name, level, metric) for level in levels}
        for level, scheme in won.items():
            best, staircase = (results.of(data.name, each, level, metric).mean for each in (scheme, SRR))
            words.append(f"ε = {level:g}: {scheme} {best:.3f}, {SRR} {staircase:.3f}")
        claim = Claim(
            f"Table {number}: {SRR} has the least {metric.split(',')[0]} at every small epsilon ({data.name})",
            joint_verdict([scheme == SRR for scheme in won.values()]),
            "; ".join(words),
        )
        return Report([Table(title, ["pair", *(f"ε = {level:g}" for level in levels)], rows)], [], [claim])

    return report


def _report_8(results: Results) -> Report:
    pictures, tables, claims = [], [], []
    for metric, key in ((L1, "l1"), (KL, "kl")):
        curves = Curves(results, metric, _SHOWN, least=1)
        tables += [
            Table(f"Figure 8: {metric}, {data.name}", curves.header("pair"), curves.rows(data.name))
            for data in SETS
        ]
        panels = [curves.panel(data.name, f"{data.name}: {metric}") for data in SETS]
        caption = f"As Figure 8: {metric} of the estimated distribution."
        pictures.append(Picture.curves(f"figure_8_{key}", panels, caption))
        claim = f"Figure 8: {SRR} has the least {metric.split(',')[0]} at every epsilon on all data sets"
        claims.append(first_claim(claim, {data.name: curves.leaders(data.name) for data in SETS}))
    tables.append(_noise_table(results))
    return Report(tables, pictures, [*claims, _noise_claim(results)])


def _noise_table(results: Results) -> Table:
    rows = []
    levels = results.levels(NOISE)
    for data in SETS:
        for scheme in [*NAMES, PUBLISHED]:
            if results.has(data.name, scheme, levels[0], NOISE):
                found = [results.of(data.name, scheme, level, NOISE).mean for level in levels]
                rows.append([f"{data.name}: {scheme}", *(f"{value:.3g}" for value in found)])
    note = (
        "Standard deviation of the unbiased estimate of a site, over the mean part of a site: exact, from the "
        "randomizer's own law. Where it is above 1 no site of mean size can be told from an empty one."
    )
    header = ["data and pair", *(f"ε = {level:g}" for level in levels)]
    return Table("Why: the noise of one site", header, rows, note)


def _noise_claim(results: Results) -> Claim:
    levels = [level for level in results.levels(NOISE) if level <= _SMALL]
    held, words = [], []
    for data in SETS:
        for level in (levels[0], levels[-1]):
            loud, quiet = (results.of(data.name, scheme, level, NOISE).mean for scheme in (SRR, "PLDP"))
            held.append(loud > quiet)
            words.append(f"{data.name}, ε = {level:g}: {loud:.3g} against {quiet:.3g}")
    return Claim(
        f"Why {SRR} is not first up to ε = {_SMALL:g}: a report that favours neighbours must be told apart from "
        "theirs, so the unbiased estimate of a site has more noise than that of unary encoding",
        joint_verdict(held),
        "; ".join(words),
    )


def _report_11(results: Results) -> Report:
    names = ["GRR", f"GRR, {MLE}", "HR", f"HR, {MLE}", SRR, f"{SRR}, {MLE}", OURS]
    curves = Curves(results, L1, names, least=1)
    won, better = {}, []
    for data in SETS:
        lines = {name: curves.line(data.name, name) for name in names[:-1]}
        won[data.name] = {
            level: min(lines, key=lambda name: lines[name][level].mean) for level in curves.levels
        }
        better += [lines[SRR][level].mean < lines[f"{SRR}, {MLE}"][level].mean for level in curves.levels]
    claims = [
        Claim(
            f"Figure 11: {SRR} with the equations of candidate sets is the best combination",
            joint_verdict([name == SRR for each in won.values() for name in each.values()]),
            "; ".join(f"{name}: {levels_of(each)}" for name, each in won.items()),
        ),
        Claim(
            "Figure 11: for the staircase the equations are better than maximum likelihood",
            joint_verdict(better),
            f"in {sum(better)} of {len(better)} settings",
        ),
    ]
    caption = "As Figure 11: randomizers with the unbiased estimate and with maximum likelihood."
    panels = [curves.panel(data.name, f"{data.name}: {L1}") for data in SETS]
    return Report([], [Picture.curves("figure_11", panels, caption)], claims)


def _report_9(results: Results) -> Report:
    curves = Curves(results, _NMSE, _SHOWN)
    panels = [curves.panel(data.name, f"{data.name}: normalised MSE", log_y=True) for data in SETS]
    claim = first_claim(
        f"Figure 9: {SRR} places everybody's 25 nearest users best",
        {data.name: curves.leaders(data.name) for data in SETS},
    )
    caption = "As Figure 9: squared error of the places of the 25 nearest users, over that of random users."
    return Report([], [Picture.curves("figure_9", panels, caption)], [claim])


def _report_3(results: Results) -> Report:
    names = [*NAMES, OURS]
    levels = results.levels("precision")
    rows = []
    for data in SETS:
        for level in levels:
            cells = []
            for name in names:
                found = [results.of(data.name, name, level, part).mean for part in ("precision", "recall")]
                text = " / ".join(f"{value:.1%}" for value in found)
                paper = [
                    PRINTED.get(("table 3", f"{data.name}: {name}", f"{level:g} {part}"))
                    for part in ("precision", "recall")
                ]
                if None not in paper:
                    text += f" ({paper[0]:g} / {paper[1]:g})"
                cells.append(text)
            rows.append([f"{data.name}, ε = {level:g}", *cells])
    won = {data.name: Curves(results, "precision", names).leaders(data.name, most=True) for data in SETS}
    claim = first_claim(f"Table 3: {SRR} has the highest precision everywhere", won)
    title = "Table 3: precision / recall of the 25 nearest users' places (the paper's in brackets)"
    return Report([Table(title, ["data and ε", *names], rows)], [], [claim])


def _merged_report(number: int) -> Callable[[Results], Report]:
    metric = L1 if number == 13 else KL

    def report(results: Results) -> Report:
        sources = sorted(results.sources(metric, "merged"), key=lambda name: (name != MERGED[0].name, name))
        rows, won = [], []
        for name in [*NAMES, OURS]:
            cells = []
            for place, source in enumerate(sources):
                text = shown(results.of(source, name, 1.0, metric, "merged"))
                cells.append(beside(text, f"table {number}", name, f"{place + 1}"))
            rows.append([name, *cells])
        won = [
            min(NAMES, key=lambda name: results.of(at, name, 1.0, metric, "merged").mean) for at in sources
        ]
        claim = Claim(
            f"Table {number}: {SRR} has the least {metric.split(',')[0]} with one to four cities (ε = 1)",
            joint_verdict([name == SRR for name in won]),
            "first are " + ", ".join(won),
        )
        title = f"Table {number}: {metric} with more cities, ε = 1 (the paper's in brackets)"
        return Report([Table(title, ["pair", *sources], rows)], [], [claim])

    return report


DENSITY: Final = (
    Section("figure 8", _city_jobs, _report_8),
    Section("figure 9", _city_jobs, _report_9),
    Section("figure 11", _city_jobs, _report_11),
    Section("table 3", _city_jobs, _report_3),
    *(Section(f"table {number}", _city_jobs, _small_report(number)) for number in range(5, 13)),
    *(Section(f"table {number}", _merged_jobs, _merged_report(number)) for number in (13, 14)),
)
