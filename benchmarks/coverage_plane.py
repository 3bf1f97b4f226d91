"""Coverage on shared signal data: every way to collect in one plane, and how many phones' days sums need.

``python -m benchmarks.coverage_plane run chania`` measures one set (minutes), ``page`` writes what was measured to
docs/reference/coverage-plane.md and docs/_static; ``roles`` measures maps alone on the sets of ``signal_sets.csv`` by
their roles, and writes docs/reference/coverage-roles.md. Uses true data: figures of data that are public already.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from reproductions.zhang.data import SIGNAL_SETS, read_signal

if TYPE_CHECKING:
    from mapveil.evaluation.signal_tradeoff import TradeoffPoint

FOLDER: Final = Path("build/coverage")
PAGE: Final = Path("docs/reference/coverage-plane.md")
ROLES_PAGE: Final = Path("docs/reference/coverage-roles.md")
PICTURES: Final = Path("docs/_static")

_HEAD: Final = """# Coverage: every way to collect

How far off the strongest adversary is, and how far off the map, for every way to collect; and from how many units
coverage by sums gains on later days over what is known if nothing is collected: the better of the pilot's map and of
its mean everywhere. Rows have roles by days, users and
places ([signal maps](../how-to/signal-maps.md)). Made by
`python -m benchmarks.coverage_plane run SET --rows 3000 --trials 3 --shared FOLDER`
and `python -m benchmarks.coverage_plane curve SET --shared FOLDER` for each set, then
`python -m benchmarks.coverage_plane page`; adversaries are trained in full, GAP by 500 steps only. Numbers are means
over the trials, in brackets their 95 % interval (Student's, of three trials).
`mapveil signal tradeoff FILE --json` measures the same of any file.
Cork's table names no users: each of its traces stands for one, and a unit of its sums is a day of a trace.
That baseline is the better of the two on the judged rows, chosen afterwards: nobody knows beforehand which it is, so
that the pilot's map alone may have a negative gain. Maps of reports join raw pilot and reports with equal weight: a
server that knew the law of the noise would make better ones of noisy rows. No adversary of sums is nearer to a unit of
several cells than one place of it: known exactly, a unit leaves an error of some tens of metres in Chania, and of some
hundreds in Cork.
No constant of sums was chosen on these data. [Maps alone, on sets by role](coverage-roles.md).

Epsilon of sums is about one user's day; that of `local-gaussian` and `truncated-laplacian` about one row of the
thousands that a phone sends. Learned privatizers have no epsilon but that of their worst case. The adversary of sums
knows the contributions of all other units and the law of the noise, supposes that a unit measured in one square, and
guesses one place for it; that of local reports computes the posterior of one report. Both know places of labelled
rows; none counts that is worse than a blind guess. No adversary of row reports is told which rows are of one phone.
"""


@click.group()
def command() -> None:
    """Measure coverage on shared data, and write its page."""


@command.command()
@click.argument("name", type=click.Choice(sorted(SIGNAL_SETS)))
@click.option("--rows", default=3_000, show_default=True, help="Rows of a trial.")
@click.option("--trials", default=3, show_default=True, help="Trials of every setting.")
@click.option("--privatizers", help="Names separated by commas. [default: all]")
@click.option("--gap-steps", default=500, show_default=True, help="Steps of GAP's training.")
@click.option("--workers", default=1, show_default=True, help="Number of processes.")
@click.option("--shared", type=click.Path(path_type=Path), default=Path("../shared"), show_default=True)
def run(
    name: str, rows: int, trials: int, privatizers: str | None, gap_steps: int, workers: int, shared: Path
) -> None:
    """Measure the trade-off of one set by full adversaries, at every second value of each parameter."""
    from mapveil.evaluation.signal_tradeoff import KNOBS, tradeoff

    names = privatizers.split(",") if privatizers else tuple(KNOBS)
    made = tradeoff(
        read_signal(name, shared),
        {each: KNOBS[each].values[::2] for each in names},
        options={"gap": {"steps": gap_steps}} if "gap" in names else {},
        rows=rows,
        trials=trials,
        workers=workers,
    )
    FOLDER.mkdir(parents=True, exist_ok=True)
    record = made.to_dict()
    record["settings"]["source"] = SIGNAL_SETS[name]
    (FOLDER / f"{name}.json").write_text(json.dumps(record, indent=1))


@command.command()
@click.argument("name", type=click.Choice(sorted(SIGNAL_SETS)))
@click.option("--rows", default=8_000, show_default=True, help="Rows of a trial.")
@click.option("--trials", default=8, show_default=True, help="Splits by days, users and places.")
@click.option("--shared", type=click.Path(path_type=Path), default=Path("../shared"), show_default=True)
def curve(name: str, rows: int, trials: int, shared: Path) -> None:
    """Measure the curve over the number of units alone, which is cheap: on more rows and trials."""
    from mapveil.evaluation.collection_trials import pilot_map
    from mapveil.evaluation.coverage_trials import curve_gains, curve_of, sums_unit
    from mapveil.geo.collection_roles import collection_roles
    from mapveil_client.randomness.random import Randomness

    measurements, found, unit = read_signal(name, shared), [], ""
    for trial in range(trials):
        rng = Randomness(0).child(f"{measurements.source} trial {trial}")
        sample = measurements.sample(rows, rng.child("rows"))
        roles = collection_roles(sample.take(np.argsort(sample.positions)), rng.child("roles"))
        found.append(curve_gains(roles, pilot_map(roles.pilot, 0), rng.child("curve")))
        unit = sums_unit(roles.held_out).value
    record = {
        "curve": [each._asdict() for each in curve_of(found)],
        "rows": min(rows, len(measurements)),
        "trials": trials,
        "unit": unit,
    }
    (FOLDER / "curves").mkdir(parents=True, exist_ok=True)
    (FOLDER / "curves" / f"{name}.json").write_text(json.dumps(record, indent=1))


@command.command()
@click.option("--rows", default=8_000, show_default=True, help="Rows of a trial.")
@click.option("--trials", default=3, show_default=True, help="Splits by days, users and places of each set.")
@click.option("--gap-steps", default=200, show_default=True, help="Steps of GAP's training.")
@click.option("--shared", type=click.Path(path_type=Path), default=Path("../shared"), show_default=True)
def roles(rows: int, trials: int, gap_steps: int, shared: Path) -> None:
    """Measure every map on the sets of each role, without adversaries, and write its page; trials made are kept."""
    from benchmarks.coverage_roles import measure_roles

    ROLES_PAGE.write_text(measure_roles(FOLDER / "roles", shared, rows, trials, gap_steps))


@command.command()
def page() -> None:
    """Write the page of the sets that were measured."""
    from mapveil.evaluation.coverage_report import error_plane
    from mapveil.evaluation.html_report import not_private_png

    text = _HEAD
    for path in sorted(FOLDER.glob("*.json")):
        record = json.loads(path.read_text())
        longer = FOLDER / "curves" / path.name
        settings = record["settings"]
        of = {
            "rows": settings["rows of a trial"],
            "trials": settings["trials"],
            "unit": settings["unit of sums"],
        }
        record |= of | (json.loads(longer.read_text()) if longer.exists() else {})
        picture = PICTURES / f"coverage_plane_{path.stem}.png"
        picture.write_bytes(not_private_png(error_plane(_points(record))))
        text += _section(path.stem, picture.name, record)
    PAGE.write_text(text)


def _points(record: dict[str, Any]) -> list[TradeoffPoint]:
    """The points of a record of :meth:`Tradeoff.to_dict`, where null is undefined."""
    from mapveil.evaluation.signal_tradeoff import TradeoffPoint

    made = []
    for each in record["points"]:
        own: dict[str, Any] = {key: math.nan if value is None else value for key, value in each.items()}
        group, privatizer, knob, value, trials = (own.pop(key) for key in TradeoffPoint._fields[:5])
        lows, highs = (
            {key[: -len(end)]: own[key] for key in own if key.endswith(end)} for end in ("_low", "_high")
        )
        made.append(TradeoffPoint(group, privatizer, knob, value, trials, own, lows, highs))
    return made


def _section(name: str, picture: str, record: dict[str, Any]) -> str:
    from mapveil.evaluation.coverage_report import NONE_OF_THOSE
    from mapveil.evaluation.coverage_trials import CURVE_SUMS, CurvePoint, units_needed

    settings = record["settings"]
    rows = [
        f"| {each['privatizer']} | {_setting(each)} | {_number(each['p2_m'], 0)} | {_number(each['places_db'])} "
        f"| {_number(each['later_db'])} | {_spread(each)} |"
        for each in record["points"]
    ]
    counts = sorted({each["units"] for each in record["curve"]})
    gains = {(each["units"], each["epsilon"]): each for each in record["curve"]}
    wanted = units_needed([CurvePoint(**each) for each in record["curve"]]).values()
    needed = {
        key: " | ".join(str(getattr(each, key) or NONE_OF_THOSE) for each in wanted)
        for key in ("over_nothing", "over_pilot")
    }

    def curve(*keys: str) -> list[str]:
        return [
            f"| {count} | "
            + " | ".join(
                _spread(gains[count, epsilon], *keys) if (count, epsilon) in gains else ""
                for epsilon in (1, 2, 4)
            )
            + " |"
            for count in counts
        ]

    head = [f"| {record['unit']}s | ε = 1 | ε = 2 | ε = 4 |", "|---|---|---|---|"]
    return "\n".join(
        [
            f"\n## {name.capitalize()}\n",
            f"{settings['rows of a trial']:,} rows, trials: {settings['trials']}, adversaries: "
            f"{settings['adversaries']}; {settings['roles']}; sums of one {settings['unit of sums']}. "
            f"{settings.get('notes', '')}\n",
            f"```{{image}} ../_static/{picture}",
            f":alt: Error of the map against error of the adversary, {name}",
            ":width: 100%\n```\n",
            "| way to collect | set | adversary's error, m | map's error at held-out places, dB | on later days, dB "
            "| gain, dB |",
            "|---|---|---|---|---|---|",
            *rows,
            f"\nGain of {CURVE_SUMS}, over not collecting, on later days (at held-out places where there are none), "
            "dB, means of eight draws of units and noise of each of "
            f"{record['trials']} trials of {record['rows']:,} rows, with 95 % intervals over the trials:\n",
            *head,
            *curve("gain_db", ""),
            f"| its interval above 0 from | {needed['over_nothing']} |\n",
            "The same over the pilot's map alone, dB:\n",
            *head,
            *curve("pilot_gain_db", "pilot_"),
            f"| its interval above 0 from | {needed['over_pilot']} |\n",
        ]
    )


def _setting(point: dict[str, Any]) -> str:
    return f"{point['knob']} {point['value']:g}" if point["knob"] else ""


def _spread(record: dict[str, Any], gain: str = "gain_db", ends: str = "gain_db_") -> str:
    """The mean gain, and its interval where there is one."""
    low, high = record[f"{ends}low"], record[f"{ends}high"]
    mean = _number(record[gain])
    return f"{mean} ({_number(low)} to {_number(high)})" if low is not None and high is not None else mean


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


if __name__ == "__main__":
    command()
