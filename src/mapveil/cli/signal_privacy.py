"""``mapveil signal attack``, ``tradeoff`` and ``choose``: privacy against utility, measured on true data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.arguments import name_list, read_options
from mapveil.cli.console import Console, console_options, gathered, save_all
from mapveil.cli.options import Parsed, column_option, seed_option
from mapveil.cli.outputs import outputs
from mapveil_client.errors import InputError, PromiseError

if TYPE_CHECKING:
    from mapveil.geo.measurements import Measurements

signal_columns = gathered(
    lambda features, categories, **named: {
        "columns": {"features": features or None, "categories": categories or None, **named}
    },
    *(column_option(name) for name in ("user", "lat", "lon", "rss")),
    click.option(
        "--feature",
        "features",
        multiple=True,
        help="A further column to privatize. Repeatable. [default: all numbers that vary, but no identifiers]",
    ),
    click.option(
        "--category",
        "categories",
        multiple=True,
        help="A feature whose values are names, such as network_mode. Repeatable. [default: inferred from its name]",
    ),
    click.option("--fill", type=float, help="Value of a missing feature, such as -105."),
    column_option("time"),
)
"""Add the options that name columns of measurements; the command receives one mapping, ``columns``."""

pilot_options = gathered(
    dict,
    click.option("--pilot", default=0.7, show_default=True, help="Fraction of the rows that is the pilot."),
    click.option(
        "--split",
        default="random",
        show_default=True,
        help="Division into pilot and rest: random, time or user.",
    ),
)
"""Add the division into a pilot and the rest."""


def read_signal(console: Console, source: str, columns: Mapping[str, Any], **more: Any) -> Measurements:
    """Read a table of measurements, and note what was left out."""
    from mapveil.geo.read_measurements import read_measurements

    read = read_measurements(source, **columns, **more)
    for note in read.notes:
        console.note(f"note: {read.source}: {note}")
    return read


@click.command("attack")
@click.argument("private", metavar="PRIVATE")
@click.option("--truth", required=True, help="The measurements before they were privatized, row for row.")
@pilot_options
@click.option(
    "--sequence", default=1, show_default=True, help="Number of measurements of a user seen together."
)
@click.option("--quick", is_flag=True, help="A tenth of the work: privacy looks higher than it is.")
@click.option("--no-network", is_flag=True, help="Leave out the adversary that needs PyTorch.")
@outputs((".html", ".png", ".json"), ".html .png .json", required=False)
@seed_option("report")
@signal_columns
@console_options
def attack(
    console: Console,
    private: str,
    truth: str,
    columns: dict[str, Any],
    no_network: bool,
    outputs: tuple[Path, ...],
    **parameters: Any,
) -> None:
    """Train adversaries on a part of a privatized file and see what they learn from the rest.

    PRIVATE is what 'signal privatize' wrote. Each adversary is given the users and locations of the pilot part and
    guesses those of the rest; the strongest is what counts. The report reads true locations: it is NOT private.

    \b
    Examples:
      mapveil signal attack private.parquet --truth measurements.parquet
      mapveil signal attack private.parquet --truth measurements.parquet --sequence 10 -o attack.html
    """
    from mapveil.attacks.signal_attack import attack_measurements
    from mapveil.evaluation.html_report import text_table
    from mapveil.evaluation.signal_report import attack_rows, write_attack
    from mapveil.obfuscation.privatized_file import privatized_names, privatized_texts

    with console.progress() as progress:
        progress("read", 0.0)
        measured = read_signal(
            console, truth, columns, names=privatized_names(private), texts=privatized_texts(private)
        )
        progress("read", 1.0)
        result, cost = attack_measurements(
            private, measured, network=not no_network, progress=progress, **parameters
        )
        save_all(outputs, lambda path: write_attack(result, path), progress)
    console.warn_of_truth("an attack")
    strongest = result.strongest
    text = (
        f"Adversaries (*: the strongest)\n{text_table(*attack_rows(result))}\n"
        f"strongest: {strongest.adversary}: wrong about {strongest.p1:.1%} of the users, {strongest.p2_m:.0f} m from "
        f"the location on average; utility U {cost.total:.3g}"
    )
    console.result(text, {"utility": cost._asdict(), **result.to_dict()}, outputs)


def _options_by_name(pairs: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Read ``name:key=value``."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        name, colon, option = pair.partition(":")
        if not colon:
            raise InputError(f"--option must be NAME:key=value, such as gap:steps=2000, got {pair!r}")
        found.setdefault(name, []).append(option)
    return {name: read_options(tuple(given)) for name, given in found.items()}


def _asked(**given: Any) -> dict[str, Any]:
    if given["privatizers"] is None:
        del given["privatizers"]
    return {"parameters": {**given, "rows": given["rows"] or None}}


tradeoff_options = gathered(
    _asked,
    click.option(
        "--privatizers",
        type=Parsed("names", lambda text: name_list(text, "--privatizers")),
        help="Names separated by commas. [default: all]",
    ),
    click.option(
        "--option",
        "options",
        multiple=True,
        metavar="NAME:K=V",
        callback=lambda _context, _parameter, pairs: _options_by_name(pairs),
        help="Set an option of a privatizer, such as gap:steps=2000. Repeatable.",
    ),
    click.option(
        "--trials", default=3, show_default=True, help="Number of splits, fits and attacks of each value."
    ),
    click.option(
        "--rows",
        type=click.IntRange(0),
        default=30_000,
        show_default=True,
        help="Number of rows of a trial; 0 takes all.",
    ),
    click.option(
        "--pilot",
        default=0.3,
        show_default=True,
        help="Fraction of the rows on the first days, half of whose users are the pilot.",
    ),
    click.option("--later", default=0.3, show_default=True, help="Fraction of the rows on the last days."),
    click.option(
        "--sequence",
        "length",
        default=1,
        show_default=True,
        help="Number of measurements of a user that adversaries see together.",
    ),
    click.option(
        "--quick",
        is_flag=True,
        help="One trial, fewer values, weaker adversaries, short training.",
    ),
    click.option("--workers", default=1, show_default=True, help="Number of processes."),
    seed_option("figures"),
)
"""Add the parameters of a trade-off; the command receives one mapping, ``parameters``."""


@click.command("tradeoff")
@click.argument("source", metavar="INPUT")
@click.option(
    "-o",
    "--output",
    "output",
    type=click.Path(path_type=Path),
    help="Folder to write curves, tables and a page to; or a file of the plane of errors, .png or .html.",
)
@tradeoff_options
@signal_columns
@console_options
def tradeoff(
    console: Console, source: str, output: Path | None, columns: dict[str, Any], parameters: dict[str, Any]
) -> None:
    """Measure privacy against a map's gain over not collecting, for every way to collect.

    Some users of the first days are the pilot; everybody reports on the days between; maps are judged at held-out
    places and on the last days. Adversaries are given users and locations of a part of the reports, and are judged on
    those of other users and of later days. Beside the privatizers stand the pilot alone, a flat map, raw reports, and
    coverage by sums. The report is NOT private.

    \b
    Examples:
      mapveil signal tradeoff measurements.parquet -o tradeoff/
      mapveil signal tradeoff measurements.parquet --quick --json
      mapveil signal tradeoff measurements.parquet -o plane.png
      mapveil signal tradeoff measurements.parquet --privatizers gap,codebook --trials 5 --workers 2 -o tradeoff/
    """
    from mapveil.evaluation.coverage_report import curve_rows
    from mapveil.evaluation.coverage_trials import CURVE_SUMS
    from mapveil.evaluation.html_report import text_table
    from mapveil.evaluation.signal_choice import unbounded_verdict
    from mapveil.evaluation.signal_report import points_rows, write_tradeoff
    from mapveil.evaluation.signal_tradeoff import epsilon_words, tradeoff

    one_file = output is not None and output.suffix.lower() in (".png", ".html")
    if output is not None and output.exists() and output.is_dir() == one_file:
        raise InputError(
            f"-o {output}: must be a folder, or a file that ends in .png or .html; got the other kind"
        )
    measurements = read_signal(console, source, columns)
    with console.progress() as progress:
        result = tradeoff(measurements, **parameters, progress=progress)
    written = [] if output is None else write_tradeoff(result, output)
    console.warn_of_truth("a trade-off")
    if notes := result.settings.get("notes"):
        console.note(f"note: {notes}")
    unit, said = str(result.settings["unit of sums"]), unbounded_verdict(result.points)
    curve = text_table(*curve_rows(result.curve, unit))
    text = (
        f"Trade-off (against the strongest adversary)\n{text_table(*points_rows(result.points))}\n"
        f"{said}\n{epsilon_words(unit)}\n"
        f"{CURVE_SUMS.capitalize()}, {result.settings['curve of sums']}, by number of units\n{curve}"
    )
    console.result(text, {**result.to_dict(), "verdict": said}, written)


_BOUND = click.FloatRange(min=0)


@click.command("choose")
@click.argument("source", metavar="TRADEOFF|INPUT")
@click.option("--distortion-at-most", type=_BOUND, help="Maximum distortion (-U1), normalised units.")
@click.option("--map-error-at-most", type=_BOUND, help="Maximum error of the linear map's parameters (-U2).")
@click.option("--rmse-at-most", type=_BOUND, help="Maximum error of the linear map at held-out rows, dBm.")
@click.option(
    "--user-error-at-least",
    type=_BOUND,
    help="Minimum fraction of the users that the strongest adversary gets wrong.",
)
@click.option(
    "--location-error-at-least",
    type=_BOUND,
    help="Minimum distance of the adversary's location from the true one, metres.",
)
@click.option("--gain-at-least", type=_BOUND, help="Minimum gain over not collecting, dB.")
@click.option(
    "--epsilon-at-most",
    type=_BOUND,
    help="Maximum epsilon of the worst case of a report; of sums, of a whole unit.",
)
@tradeoff_options
@signal_columns
@console_options
def choose(
    console: Console, source: str, columns: dict[str, Any], parameters: dict[str, Any], **bounds: float | None
) -> None:
    """Choose each privatizer's parameter under constraints, from a measured trade-off.

    TRADEOFF is the folder that 'signal tradeoff' wrote; with a table of measurements instead the trade-off is
    measured first. Where utility is constrained the most private value is taken, where only privacy is, the one with
    the largest gain; between measured values the curves are interpolated. Where no gain is told from zero, as the best
    of all values tried, the answer is "do not collect".

    \b
    Examples:
      mapveil signal choose tradeoff/ --distortion-at-most 3
      mapveil signal choose measurements.parquet --quick --location-error-at-least 300
    """
    from mapveil.evaluation.html_report import text_table
    from mapveil.evaluation.signal_choice import Constraint, choose_parameters, unmeasured, verdict
    from mapveil.evaluation.signal_report import choices_rows
    from mapveil.evaluation.signal_tradeoff import plain_numbers, read_points_table, tradeoff

    constraints = [Constraint.named(name, bound) for name, bound in bounds.items() if bound is not None]
    if not constraints:
        raise InputError(
            "at least one constraint is needed, such as --distortion-at-most 3; got no constraint"
        )
    if Path(source).is_dir():
        points = read_points_table(Path(source) / "points.csv")
    elif source != "-" and not any(sign in source for sign in ".*?[ ") and not Path(source).exists():
        raise InputError(
            f"{source}: no such folder; expected one that 'mapveil signal tradeoff' wrote, or a table of measurements"
        )
    else:
        measurements = read_signal(console, source, columns)
        with console.progress() as progress:
            points = tradeoff(measurements, **parameters, progress=progress).points
    for each in unmeasured(points, constraints):
        why = ": no judged user is among those that adversaries know" if each.measure == "p1" else ""
        raise InputError(f"{each.words} cannot be judged on this data{why}")
    choices = choose_parameters(points, constraints)
    words = ", ".join(each.words for each in constraints)
    if not any(choice.keeps for choice in choices):
        raise PromiseError(f"nothing keeps {words} at any value tried; looser constraints may")
    said = verdict(points, choices)
    record = {
        "constraints": [each._asdict() for each in constraints],
        "collect": any(choice.told for choice in choices),
        "verdict": said,
        "choices": plain_numbers([choice.to_dict() for choice in choices]),
    }
    text = f"{said}\nUnder {words} (the best first)\n{text_table(*choices_rows(choices, points))}"
    console.result(text, record)
