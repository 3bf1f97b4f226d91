"""Table 1 and Figures 12 and 13 of Zong et al. (2023), on the cuts of check-ins that are at hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reproductions.driver import Section
from reproductions.report import Claim, Picture, Report, Table, joint_verdict, judged_values, maps_figure
from reproductions.zong.data import CITIES, City
from reproductions.zong.pictures import Line, TradeOff, lines_figure, trade_off_figure
from reproductions.zong.runs import Job
from reproductions.zong.sections import (
    AGAINST_EXACT,
    AGAINST_TRUTH,
    CITY_EPSILONS,
    ERROR,
    EXACT,
    FEATURES,
    NOISE,
    PROJECTION,
    SILENCE,
    Plan,
    Results,
    settings,
)
from reproductions.zong.synthetic import synthetic_jobs

_LARGE: Final = tuple(city.name for city in CITIES if not city.name.startswith("Brightkite"))
"""Cuts of about as many check-ins as the paper's; those of Brightkite are as small as Figure 14."""

SHOWN: Final = ("Gowalla, New York", "Foursquare, Los Angeles")
"""Cuts whose surfaces are drawn."""

_SYNTHETIC: Final = {"a": "Nine Gaussians", "b": "Octagon"}
_CROWD: Final = 20_000
"""People of the synthetic sets in Figure 13."""

_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6b6b6b")


def few_bands(bands: int, side: float, bandwidth: float) -> float:
    r"""Lemma 3 the other way: how probable fewer than so many bands are, in a square.

    .. math:: C(\gamma) = 1 - e^{-\gamma / 2}, \qquad \gamma = (2 \pi j h / l)^2

    where: j is ``bands``, h is ``bandwidth`` and l is ``side``.

    Examples
    --------
    >>> round(few_bands(2, side=11_790, bandwidth=778), 2)
    0.29
    """
    return -math.expm1(-((2 * math.pi * bands * bandwidth / side) ** 2) / 2)


def city_jobs(plan: Plan, shared: Path, seed: int) -> Sequence[Job]:
    """Every trial of every cut; people of the first are searched for maxima."""

    def job(city: City, trial: int) -> Job:
        scored, drawn = (plan.scored, city.name in SHOWN) if trial == 0 else (0, False)
        return Job(city.name, None, trial, FEATURES, CITY_EPSILONS, scored, shared, seed, drawn)

    return [job(city, trial) for city in CITIES for trial in range(plan.city_trials)]


def _users(results: Results, name: str) -> int:
    return int(next(row.users for row in results.rows if row.source == name))


def _silent(results: Results, name: str) -> float:
    return results.of("score", source=name, method=SILENCE).mean


def _projection(results: Results, name: str, metric: str, level: float) -> float:
    return results.of(metric, source=name, method=PROJECTION, level=level).mean


def _report_1(results: Results) -> Report:
    rows = []
    for city in CITIES:
        h, _, degree = _sizes(results, city)
        box = f"{city.box[3]:.3f}, {city.box[0]:.3f}; {city.box[1]:.3f}, {city.box[2]:.3f}"
        chances = [f"{_few(results, city, bands):.0%}" for bands in (2, 3)]
        where = "Table 1" if city.degrees is not None else "k = 500"
        rows.append(
            [
                city.name,
                box,
                f"{_users(results, city.name):,} {city.what}",
                f"{h / degree:.1e}",
                f"{h:,.0f}",
                where,
                *chances,
                f"{results.of('below noise', source=city.name).mean:.0%}",
            ]
        )
    header = [
        "cut",
        "box",
        "people",
        "h, degrees",
        "h, m",
        "h from",
        "fewer than 2 bands",
        "than 3",
        "below noise",
    ]
    note = (
        "The paper's own cuts (18,000 to 60,000 check-ins of Los Angeles, London, Tokyo and Chicago) cannot be had; "
        "its box of Tokyo, where it has Brightkite, is here of Foursquare. Every check-in counts as a person, as in "
        "the paper. Fewer bands: Lemma 3 the other way, how probable it is that a device's frequency has so few in the "
        "region at this bandwidth. Below noise: the fraction of the box where the exact KDE is below the standard "
        "error of one feature each. Mapveil's devices refuse more than 5 % for three bands by default: they would "
        "answer none of these queries."
    )
    by_name = {city.name: row for city, row in zip(CITIES, rows, strict=True)}
    refused = [_few(results, city, 3) for city in CITIES]
    angeles = by_name["Foursquare, Los Angeles"]
    claim = Claim(
        "Any statistically reasonable bandwidth is enough for privacy (read as: at Table 1's, or the rule's, Lemma 3 "
        "leaves fewer than two bands with a probability of at most 5 %)",
        joint_verdict([_few(results, city, 2) <= 0.05 for city in CITIES]),
        f"Los Angeles at Table 1's bandwidth: fewer than two bands with {angeles[-3]}, than three with {angeles[-2]}; "
        f"of all cuts the least for three is {min(refused):.0%}",
    )
    return Report([Table("Table 1: the cuts", header, rows, note)], [], [claim])


def _sizes(results: Results, city: City) -> tuple[float, float, float]:
    """Bandwidth, shorter side and the paper's unit of a cut, metres."""
    h, side, unit = (results.of(name, source=city.name).mean for name in ("bandwidth", "side", "unit"))
    return h, side, unit


def _few(results: Results, city: City, bands: int) -> float:
    h, side, _ = _sizes(results, city)
    return few_bands(bands, side, h)


def _report_12(results: Results) -> Report:
    names = [city.name for city in CITIES]
    performance = [_performance_table(results, names, metric) for metric in (AGAINST_EXACT, ERROR)]
    score = _score_table(results, names)
    held, words = _ahead(results, names, AGAINST_EXACT)
    closer, errors = _ahead(results, names, ERROR)
    three = {name: _projection(results, name, AGAINST_EXACT, 3) for name in _LARGE}
    one = {name: _projection(results, name, "score", 1) / _silent(results, name) for name in names}
    five = {name: _projection(results, name, "score", 5) for name in names}
    beyond = {
        name: max(point.privacy for point in results.points(name, NOISE, AGAINST_EXACT))
        > _silent(results, name)
        for name in names
    }
    claims = [
        judged_values(
            "The rank correlation with the exact KDE is high with few features (read as: at least 0.9 with three, on "
            "the cuts of thousands)",
            three,
            lambda value: value >= 0.9,
            "{:.3f}",
        ),
        judged_values(
            "The score of one feature is close to that of 0 features (read as: at least 95 % of it)",
            one,
            lambda value: value >= 0.95,
            "{:.1%}",
        ),
        judged_values(
            "With 3 to 5 features the score is still several hundred metres (read as: at least 300 with five)",
            five,
            lambda value: value >= 300,
            "{:,.0f} m",
        ),
        Claim(
            "GeoInd is typically below the projection but where little is private (read as: at the scores of 1 to 4 "
            "features)",
            joint_verdict(held),
            "ahead of it at: " + ", ".join(words),
        ),
        Claim(
            "By the error of the density itself the projection is ahead at all those scores: rank correlation counts "
            "places where nobody is as much as those where everybody is",
            joint_verdict(closer),
            "ahead of it at: " + ", ".join(errors),
        ),
        Claim(
            "Some scores of GeoInd exceed that of 0 features: noise beyond the region",
            "holds" if any(beyond.values()) else "does not hold",
            f"in {sum(beyond.values())} of {len(names)} cuts, at ε = {CITY_EPSILONS[0]:g} per degree",
        ),
    ]
    panels = []
    for name in names:
        points = {method: results.points(name, method, AGAINST_EXACT) for method in (PROJECTION, NOISE)}
        panels.append(
            TradeOff(f"{name}, N = {_users(results, name):,}", "score: m", points, _silent(results, name))
        )
    figure = trade_off_figure(panels, AGAINST_EXACT)
    caption = "As Figure 12: cuts of cities, against the exact KDE of everybody. Epsilons are per degree."
    pictures = [Picture.of("figure_12", figure, caption), _maps(results)]
    return Report([*performance, score], pictures, claims)


def _ahead(results: Results, names: Sequence[str], metric: str) -> tuple[list[bool], list[str]]:
    """Whether the projection is ahead of GeoInd at the scores of 1 to 4 features, by any measure."""
    held, words = [], []
    sign = -1 if metric == ERROR else 1
    for name in names:
        found = results.rivals(name, metric, FEATURES[:4])
        won = [sign * (point.performance - rival) > 0 for point, rival in found]
        held += won
        words.append(f"{name} {sum(won)} of {len(won)}")
    return held, words


def _performance_table(results: Results, names: Sequence[str], metric: str) -> Table:
    rows = [
        [label, *(results.of(metric, source=name, method=method, level=level).shown() for name in names)]
        for method, level, label in settings(CITY_EPSILONS)
    ]
    return Table(f"Figure 12: {metric}", ["answer", *names], rows)


def _score_table(results: Results, names: Sequence[str]) -> Table:
    rows = [
        [
            label,
            *(f"{results.of('score', source=name, method=method, level=level).mean:,.0f}" for name in names),
        ]
        for method, level, label in [*settings(CITY_EPSILONS), (EXACT, 0, EXACT), (SILENCE, 0, SILENCE)]
    ]
    return Table("Figure 12: the paper's score, metres (as its text describes it)", ["answer", *names], rows)


def _maps(results: Results) -> Picture:
    shown = [EXACT, f"{PROJECTION} 1", f"{PROJECTION} 3", f"{PROJECTION} 50", f"{NOISE} 1000", f"{NOISE} 50"]
    titles = {EXACT: "exact KDE", f"{NOISE} 1000": "GeoInd, ε = 1000", f"{NOISE} 50": "GeoInd, ε = 50"}
    rows = []
    for name in SHOWN:
        maps = [
            (titles.get(label, label.replace(f"{PROJECTION} ", "B = ")), results.maps[name, label])
            for label in shown
        ]
        rows.append((name.removeprefix("Foursquare, ").removeprefix("Gowalla, "), maps))
    caption = "The surfaces themselves, each on its own scale; negative densities are drawn as 0."
    return Picture.of("surfaces", maps_figure(rows), caption)


def _gains(results: Results, name: str) -> dict[int, float]:
    """Performance gained per unit of privacy lost, over one feature, in parts of the 0-feature score."""
    metric, crowd = AGAINST_EXACT, dict[str, object]()
    if name in _SYNTHETIC:
        metric, crowd = AGAINST_TRUTH, {"users": _CROWD}
    wanted: dict[str, object] = {"source": name, **crowd}
    silent = results.of("score", method=SILENCE, **wanted).mean
    performance, score = (
        {level: results.of(what, method=PROJECTION, level=level, **wanted).mean for level in FEATURES}
        for what in (metric, "score")
    )
    made = {}
    for level in FEATURES[1:-1]:
        lost = (score[1] - score[level]) / silent
        made[level] = (performance[level] - performance[1]) / lost if lost > 0 else math.nan
    return made


def _jobs_13(plan: Plan, shared: Path, seed: int) -> Sequence[Job]:
    made = list(city_jobs(plan, shared, seed))
    for source in _SYNTHETIC:
        made += synthetic_jobs(source, [_CROWD], plan, shared, seed)
    return made


def _report_13(results: Results) -> Report:
    gains = {name: _gains(results, name) for name in (*_LARGE, *_SYNTHETIC)}
    named = {name: f"{_SYNTHETIC[name]}, N = {_CROWD:,}" if name in _SYNTHETIC else name for name in gains}
    rows = [[named[name], *(f"{value:.3f}" for value in found.values())] for name, found in gains.items()]
    header = ["people", *(f"B = {level}" for level in FEATURES[1:-1])]
    cities = [gains[name] for name in _LARGE]
    past_second = [found[2] > found[3] for found in cities]
    past_fourth = [found[5] < 0.5 * found[2] for found in cities]
    claims = [
        Claim(
            "Strongly diminishing returns past the 2nd feature, little beyond the 3rd or 4th (read as: B = 2 gains "
            "more per privacy than B = 3, and more than twice as much as B = 5)",
            joint_verdict([*past_second, *past_fourth]),
            ", ".join(
                f"{name} {gains[name][2]:.2f}, {gains[name][3]:.2f}, {gains[name][5]:.2f} at B = 2, 3, 5"
                for name in _LARGE
            ),
        ),
        Claim(
            "Little beyond the 2nd for the synthetic sets (read as: B = 3 gains less per privacy than B = 2, and "
            "B = 4 less than half as much)",
            joint_verdict(
                [gains[name][3] < gains[name][2] for name in _SYNTHETIC]
                + [gains[name][4] < 0.5 * gains[name][2] for name in _SYNTHETIC]
            ),
            ", ".join(
                f"{named[name]} {gains[name][2]:.3f}, {gains[name][3]:.3f}, {gains[name][4]:.3f} at B = 2, 3, 4"
                for name in _SYNTHETIC
            ),
        ),
    ]
    lines = [
        Line(named[name], list(found), list(found.values()), _COLOURS[place])
        for place, (name, found) in enumerate(gains.items())
    ]
    split = len(_LARGE)
    figure = lines_figure(
        [("cities", lines[:split]), ("synthetic sets", lines[split:])],
        x_label="features",
        y_label="gain per privacy lost",
    )
    caption = (
        "As Figure 13: rank correlation gained over one feature (with the exact KDE; of the synthetic sets with the "
        "truth), per part of the 0-feature score that is lost."
    )
    table = Table("Figure 13: performance gained per privacy lost", header, rows)
    return Report([table], [Picture.of("figure_13", figure, caption)], claims)


TABLE_1: Final = Section("table 1", city_jobs, _report_1)
FIGURE_12: Final = Section("figure 12", city_jobs, _report_12)
FIGURE_13: Final = Section("figure 13", _jobs_13, _report_13)
