"""What the paper's score leaves out: a server that knows how people are distributed, as it will from its own map."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict, judged
from reproductions.zong.cities import city_jobs
from reproductions.zong.data import CITIES
from reproductions.zong.pictures import TradeOff, trade_off_figure
from reproductions.zong.runs import Job, PriorJob
from reproductions.zong.sections import (
    AGAINST_EXACT,
    CITY_EPSILONS,
    NOISE,
    PLAIN_EPSILONS,
    PROJECTION,
    SILENCE,
    Plan,
    Results,
    at_same_privacy,
)
from reproductions.zong.synthetic import synthetic_jobs

_ERROR: Final = "posterior error"
_PLACES: Final = "places left"
_SOURCES: Final = ("a", "b", *(city.name for city in CITIES if not city.name.startswith("Brightkite")))
_FEATURES: Final = (1, 2, 3, 5, 8)
_PEOPLE: Final = 20_000
_FEW: Final = 10.0  # places


def _epsilons(source: str) -> tuple[float, ...]:
    """The paper's, and as many smaller ones as it takes to leave as much error as one feature does."""
    return (0.1, 0.2, 0.4, *PLAIN_EPSILONS) if _plain(source) else (1.0, 2.0, 5.0, *CITY_EPSILONS)


def _plain(source: str) -> bool:
    return source in ("a", "b")


def _jobs(plan: Plan, shared: Path, seed: int) -> Sequence[Job | PriorJob]:
    jobs: list[Job | PriorJob] = [
        PriorJob(source, _FEATURES, _epsilons(source), plan.devices, shared, seed) for source in _SOURCES
    ]
    for source in ("a", "b"):
        jobs += synthetic_jobs(source, [_PEOPLE], plan, shared, seed)
    jobs += [job for job in city_jobs(plan, shared, seed) if job.source in _SOURCES]
    for source in _SOURCES:
        users, trials = (_PEOPLE, plan.trials) if _plain(source) else (None, plan.city_trials)
        jobs += [
            Job(source, users, trial, (), _epsilons(source)[:3], 0, shared, seed) for trial in range(trials)
        ]
    return jobs


def _report(results: Results) -> Report:
    def of(metric: str, source: str, level: float, method: str = PROJECTION) -> float:
        return results.of(metric, source=source, method=method, level=level).mean

    silent = {source: of(_ERROR, source, 0, SILENCE) for source in _SOURCES}
    rows = []
    for source in _SOURCES:
        unit = 1.0 if _plain(source) else 1000.0
        row = [f"set ({source})" if unit == 1 else f"{source}, km", f"{silent[source] / unit:.2f}"]
        row += [
            f"{of('score', source, level) / unit:.2f}; {of(_ERROR, source, level) / unit:.2f}; "
            f"{of(_PLACES, source, level):.0f}"
            for level in (1, 2, 3, 5)
        ]
        rows.append(row)
    header = ["people", "no report", *(f"B = {level}" for level in (1, 2, 3, 5))]
    note = (
        "For each number of features: the paper's score; the expected error of a server that knows the density (64 x "
        "64 boxes, the device anywhere in one) and the device's features exactly; how many equally likely boxes it is "
        "left with. No report: that server's error by the density alone."
    )
    table = Table("Beyond: the score and a server with a prior", header, rows, note)
    two, three = ([of(_PLACES, source, level) for source in _SOURCES] for level in (2, 3))
    found = [of(_ERROR, source, 3) < 0.01 * silent[source] for source in _SOURCES]
    scored = [of("score", source, 3) / of("score", source, 0, SILENCE) for source in _SOURCES]
    kept = [of(_ERROR, source, 1) / silent[source] for source in _SOURCES]
    ahead = []
    for source in _SOURCES:
        noise = results.points(source, NOISE, AGAINST_EXACT, privacy=_ERROR)
        rival = at_same_privacy(noise, of(_ERROR, source, 1))
        own = of(AGAINST_EXACT, source, 1)
        ahead.append((own > rival, f"{source} {own:.3f} against {rival:.3f}"))
    claims = [
        Claim(
            "One feature leaves most of the error of no report at all (read as: at least two thirds)",
            joint_verdict([value >= 2 / 3 for value in kept]),
            f"{min(kept):.0%} to {max(kept):.0%}",
        ),
        Claim(
            "Against the paper's 2 to 3 features in practice: two leave hardly a place, three none (read as: at most "
            f"{_FEW:g} places with two, and an error of less than 1 % of no report's with three)",
            joint_verdict([*(value <= _FEW for value in two), *found]),
            f"{min(two):.1f} to {max(two):.1f} places with two, {max(three):.1f} with three, where the score says "
            f"{min(scored):.0%} to {max(scored):.0%} of that of 0 features",
        ),
        judged("One feature is ahead of GeoInd at the same posterior error", ahead, ", "),
    ]
    panels = []
    for source in _SOURCES:
        points = {
            PROJECTION: [
                point._replace(privacy=of(_ERROR, source, point.level))
                for point in results.points(source, PROJECTION, AGAINST_EXACT, privacy="score")
                if point.level in _FEATURES
            ],
            NOISE: results.points(source, NOISE, AGAINST_EXACT, privacy=_ERROR),
        }
        title = f"set ({source}), N = {_PEOPLE:,}" if _plain(source) else source
        panels.append(TradeOff(title, "posterior error", points, silent[source]))
    caption = (
        "What Figures 10 to 12 become against a server that knows the density: the expected error of its best guess "
        "(metres in cities). Three features and more are at 0."
    )
    figure = trade_off_figure(panels, AGAINST_EXACT)
    return Report([table], [Picture.of("posterior", figure, caption)], claims)


POSTERIOR: Final = Section("table posterior", _jobs, _report)
