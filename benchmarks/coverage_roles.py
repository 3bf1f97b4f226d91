"""Errors of every map on the sets of each role: the command ``roles`` of :mod:`benchmarks.coverage_plane`."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from benchmarks.signal_intervals import TABLE, read_set
from mapveil.attacks.signal_adversary import BlindGuess
from mapveil.evaluation.collection_trials import (
    PILOT_ONLY,
    PUBLIC_ONLY,
    RAW,
    REFERENCES,
    CollectionTask,
    run_collection_task,
)
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.coverage_trials import SUMS, SUMS_EPSILONS, sums_unit
from mapveil.evaluation.signal_tradeoff import KNOBS
from mapveil.geo.collection_roles import collection_roles
from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.privatizer import Privatizer, find_privatizer
from mapveil_client.arrays import FloatArray
from mapveil_client.randomness.random import Randomness

_SEED: Final = 0
_GAP: Final = (0.4,)  # values of rho: a training for each
_JUDGED: Final = ("places_db", "later_db")

# Fraction of the rows on the pilot's days, where it is not 0.3. At 0.3 and 0.4 collection_roles refuses every trial of
# cork-late: phones stand in one square on all days between, so reports or held-out places have no row. At 0.2 two
# further days lie between.
_PILOT: Final = {"cork-late": 0.2}

_HEAD: Final = """# Coverage: maps by role

Error at true rows, dB, of one model of the place alone, of the pilot and of what was collected. *Same period*: rows of
everybody on the reporting days, at places of which no map has a row. *Later*: rows of everybody on the last days. The
pilot is half of the users of the first days. A gain is what a map is better than the better of the pilot's map and its
mean everywhere, trial by trial: mean and 95 % interval (Student's) over the trials. Each trial draws its own rows,
pilot and places, by seed {seed} and its number. Privatizers see place and strength only, which favours them, and answer
rows unlike the pilot by null codes where they prove nothing; GAP is trained by {gap_steps} steps. Epsilon of sums is
about one unit; that of `local-gaussian` and `truncated-laplacian` about one row.

Gains on later days whose interval is above 0, of all lines below: {gains}. Intervals are not corrected for the number
of lines: by chance alone one in forty is above 0.

Sets and roles are those of `benchmarks/signal_sets.csv`. No constant of sums or of a privatizer was chosen on a set of
role *test*; one setting of the comparison was. Of `cork-late` the pilot's days hold about 20 % of the rows. At 30 %, as
elsewhere, and at 40 % there is no trial to judge: on the days between, phones stand in one place, so that no row is
left for reports or for held-out places. What is found on `cork-late` rests on that choice. Made by
`python -m benchmarks.coverage_plane roles --rows {rows} --trials {trials} --gap-steps {gap_steps} --shared FOLDER`.
"""


def measure_roles(folder: Path, shared: Path, rows: int, trials: int, gap_steps: int) -> str:
    """Measure the trials that ``folder`` lacks, one file each, and return the page of all."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        sets = list(csv.DictReader(file))
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"rows": rows, "gap_steps": gap_steps}
    for trial in range(trials):
        for row in sets:
            path = folder / f"{row['name']}-{trial}.json"
            if path.exists() and json.loads(path.read_text()).get("settings") == settings:
                continue
            made = _trial(read_set(row, shared), row["name"], trial, rows, gap_steps)
            path.write_text(json.dumps(made | {"settings": settings}, indent=1))
            click.echo(f"{row['name']}, trial {trial}", err=True)
    measured = [
        [json.loads((folder / f"{row['name']}-{trial}.json").read_text()) for trial in range(trials)]
        for row in sets
    ]
    head = _HEAD.format(seed=_SEED, trials=trials, gains=_gains(sets, measured), **settings)
    return head + "".join(_section(row, found) for row, found in zip(sets, measured, strict=True))


def _gains(sets: list[dict[str, str]], measured: list[list[dict[str, Any]]]) -> str:
    """Numbers of gains on later days with an interval above 0, and their sets, by family of lines."""
    families = {"coverage by sums": SUMS, "privatizers": KNOBS, "raw reports": (RAW,)}
    above: dict[str, list[str]] = {family: [] for family in families}
    lines = dict.fromkeys(families, 0)
    for row, found in zip(sets, measured, strict=True):
        errors, ways, nothing = _errors(found)
        for at, (name, _, _) in enumerate(ways):
            for family in (each for each, names in families.items() if name in names):
                _, low, _ = interval_of_mean((nothing[:, 1] - errors[:, at, 1]).tolist())
                above[family] += [row["name"]] * bool(np.isfinite(low) and low > 0)
                lines[family] += 1
    return "; ".join(
        f"{family} {len(names)} of {lines[family]}"
        + (f" ({', '.join(dict.fromkeys(names))})" if names else "")
        for family, names in above.items()
    )


def _errors(found: list[dict[str, Any]]) -> tuple[FloatArray, list[list[Any]], FloatArray]:
    """Errors, shape (trials, ways, judged); the ways; the errors if nothing is collected, shape (trials, judged)."""
    ways = [each[:3] for each in found[0]["errors"]]
    errors = np.array([[each[3:] for each in one["errors"]] for one in found], dtype=np.float64)
    nothing = [at for at, each in enumerate(ways) if each[0] in (PILOT_ONLY, PUBLIC_ONLY)]
    return errors, ways, errors[:, nothing].min(axis=1)


def _range(numbers: Sequence[int]) -> str:
    ends = sorted({min(numbers), max(numbers)})
    return " to ".join(f"{each:,}" for each in ends)


def _ways(gap_steps: int) -> list[tuple[str, Privatizer | None, str, float]]:
    ways: list[tuple[str, Privatizer | None, str, float]] = [(name, None, "", 0.0) for name in REFERENCES]
    ways += [(name, None, "epsilon", epsilon) for name in SUMS for epsilon in SUMS_EPSILONS]
    for name, knob in KNOBS.items():
        more: dict[str, Any] = {"steps": gap_steps} if name == "gap" else {}
        for value in _GAP if name == "gap" else knob.values[::2]:
            ways.append((name, find_privatizer(name).make({**more, knob.name: value}), knob.name, value))
    return ways


def _trial(every: Measurements, name: str, trial: int, rows: int, gap_steps: int) -> dict[str, Any]:
    """Errors of every way to collect in one trial."""
    rng = Randomness(_SEED).child(f"{name} trial {trial}")
    sample = every.sample(rows, rng.child("rows"))
    parts = collection_roles(
        sample.take(np.argsort(sample.positions)), rng.child("roles"), pilot=_pilot(name)
    )
    errors = []
    for way in _ways(gap_steps):
        made = run_collection_task(CollectionTask(name, parts, *way, trial, _SEED, (BlindGuess(),)))
        errors.append([way[0], way[2], way[3], *(getattr(made, each) for each in _JUDGED)])
    counts = {
        each: [len(part), len(np.unique(part.users))]
        for each, part in zip(parts._fields, parts[:4], strict=False)
    }
    return {"errors": errors, "counts": counts, "unit": sums_unit(parts.held_out).value}


def _pilot(name: str) -> float:
    return _PILOT.get(name, 0.3)


def _section(row: dict[str, str], found: list[dict[str, Any]]) -> str:
    errors, ways, nothing = _errors(found)
    counts = {
        name: [_range(ends) for ends in zip(*(one["counts"][name] for one in found), strict=True)]
        for name in found[0]["counts"]
    }
    said = "; ".join(
        f"{name.replace('held_out', 'reports')} {of[0]} rows of {of[1]} users" for name, of in counts.items()
    )
    lines = [
        f"\n## {row['name']} ({row['role']})\n",
        f"`{row['file']}`, {row['first']} to {row['last']}, {len(found)} trials, "
        f"pilot from the first {_pilot(row['name']):.0%} of the "
        f"rows: {said}. Sums of one "
        f"{found[0]['unit']}.\n",
        "| way to collect | set | same period, dB | later, dB | gain, same period | gain, later |",
        "|---|---|---|---|---|---|",
    ]
    for at, (name, knob, value) in enumerate(ways):
        means = [f"{errors[:, at, judged].mean():.2f}" for judged in range(2)]
        gains = [_gain(nothing[:, judged] - errors[:, at, judged]) for judged in range(2)]
        lines.append("| " + " | ".join([name, f"{knob} {value:g}" if knob else "", *means, *gains]) + " |")
    return "\n".join(lines) + "\n"


def _gain(values: FloatArray) -> str:
    mean, low, high = interval_of_mean(values.tolist())
    return f"{mean:.2f} ({low:.2f} to {high:.2f})" if np.isfinite(low + high) else f"{mean:.2f}"
