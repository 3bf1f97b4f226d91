"""``mapveil signal choose``: the parameter that meets a constraint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.console import Console, console_options
from mapveil.cli.signal_columns import SignalColumns, signal_columns
from mapveil.cli.signal_tradeoff import measure, tradeoff_options
from mapveil_client.errors import InputError, PromiseError

if TYPE_CHECKING:
    from mapveil.evaluation.signal_tradeoff import Choice, Constraint

_BOUND = click.FloatRange(min=0)


@click.command("choose")
@click.argument("source", metavar="TRADEOFF|INPUT")
@click.option("--distortion-at-most", type=_BOUND, help="Largest distortion (-U1), normalised units.")
@click.option("--map-error-at-most", type=_BOUND, help="Largest error of the linear map's parameters (-U2).")
@click.option("--rmse-at-most", type=_BOUND, help="Largest error of the linear map at held-out places, dBm.")
@click.option(
    "--user-error-at-least", type=_BOUND, help="Least part of users the strongest adversary gets wrong."
)
@click.option(
    "--location-error-at-least", type=_BOUND, help="Least distance of its place from the true one, m."
)
@tradeoff_options
@signal_columns
@console_options
def command(
    console: Console,
    source: str,
    columns: SignalColumns,
    distortion_at_most: float | None,
    map_error_at_most: float | None,
    rmse_at_most: float | None,
    user_error_at_least: float | None,
    location_error_at_least: float | None,
    **asked: Any,
) -> None:
    """Choose each privatizer's parameter under constraints, from a measured trade-off.

    TRADEOFF is the folder that 'signal tradeoff' wrote; with a table of measurements instead the trade-off is
    measured first. Where utility is constrained the most private value is taken, where only privacy is, the most
    useful one; between measured values the curves are interpolated.

    \b
    Examples:
      mapveil signal choose tradeoff/ --distortion-at-most 3
      mapveil signal choose measurements.parquet --quick --location-error-at-least 300
    """
    from mapveil.evaluation.signal_tradeoff import Constraint, choose_parameters, read_points_table

    bounds = (
        ("u1", _negative(distortion_at_most), False, "distortion at most"),
        ("u2", _negative(map_error_at_most), False, "map error at most"),
        ("rmse_dbm", rmse_at_most, True, "RMSE at most"),
        ("p1", user_error_at_least, False, "user error at least"),
        ("p2_m", location_error_at_least, False, "location error at least"),
    )
    constraints = [
        Constraint(measure, bound, at_most, f"{words} {abs(bound):g}")
        for measure, bound, at_most, words in bounds
        if bound is not None
    ]
    if not constraints:
        raise InputError("no constraint; at least one, such as --distortion-at-most 3, is needed")
    if Path(source).is_dir():
        points = read_points_table(Path(source) / "points.csv")
    else:
        points = tuple(measure(console, source, columns, **asked)[1])
    choices = choose_parameters(points, constraints)
    if not any(choice.value is not None for choice in choices):
        told = ", ".join(each.words for each in constraints)
        raise PromiseError(f"no privatizer keeps {told} at any value tried; looser constraints may")
    record = {
        "constraints": [each._asdict() for each in constraints],
        "choices": [choice.to_dict() for choice in choices],
    }
    console.result(_text(choices, constraints), record)


def _negative(bound: float | None) -> float | None:
    return None if bound is None else -bound


def _text(choices: tuple[Choice, ...], constraints: list[Constraint]) -> str:
    from mapveil.evaluation.html_report import text_table

    header = [
        "privatizer",
        "set",
        "U",
        "distortion",
        "map error",
        "RMSE dBm",
        "P",
        "user error",
        "place error m",
    ]
    rows = []
    for choice in choices:
        if choice.value is None:
            rows.append([choice.privatizer, "none keeps it", *[""] * 7])
            continue
        told = choice.expected
        numbers = [told["u"], -told["u1"], -told["u2"], told["rmse_dbm"], told["p"], told["p1"]]
        cells = [f"{value:.3g}" for value in numbers]
        setting = f"{choice.knob}={choice.value:.3g}"
        rows.append([choice.privatizer, setting, *cells, f"{told['p2_m']:.0f}"])
    heading = f"Under {', '.join(each.words for each in constraints)} (the best first)"
    return f"{heading}\n{text_table(header, rows)}"
