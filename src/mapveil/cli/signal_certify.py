"""``mapveil signal certify`` and ``drift``: what adversaries learn from today's reports, and whether these changed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from mapveil.cli.console import Console, console_options, counted, save_all
from mapveil.cli.options import seed_option
from mapveil.cli.outputs import outputs
from mapveil.cli.signal_privacy import read_signal, signal_columns


@click.command("certify")
@click.argument("privatizer", type=click.Path(path_type=Path))
@click.argument("source", metavar="TRUTH")
@click.option("--quick", is_flag=True, help="A tenth of the work: privacy looks higher than it is.")
@click.option("--no-network", is_flag=True, help="Leave out the adversary that needs PyTorch.")
@outputs((".json",), ".json", required=False)
@seed_option("certificate")
@signal_columns
@console_options
def certify_(
    console: Console,
    privatizer: Path,
    source: str,
    columns: dict[str, Any],
    quick: bool,
    no_network: bool,
    outputs: tuple[Path, ...],
    seed: int,
) -> None:
    """Certify what adversaries learn from a privatizer's reports of one period.

    PRIVATIZER is what 'signal fit' wrote (.mapveil); TRUTH holds raw measurements of people who opted in during the
    reporting period, with times. They are privatized as phones would; adversaries are given the users and locations of
    some, and are judged on other users and on later days. The file is about this privatizer and this period, and
    'signal map --certificate' states it for such reports only.

    \b
    Examples:
      mapveil signal certify gap.mapveil opted-in.parquet -o certificate.json
    """
    import mapveil as mv
    from mapveil.attacks.signal_attack import signal_adversaries
    from mapveil.evaluation.html_report import text_table

    fitted = mv.read_privatizer(privatizer)
    for given in ("features", "categories"):
        columns.pop(given)  # the privatizer's
    with console.progress() as progress:
        progress("read", 0.0)
        measured = read_signal(console, source, columns, names=fitted.names, texts=fitted.texts)
        progress("read", 1.0)
        made = mv.certify(
            fitted,
            measured,
            adversaries=signal_adversaries(quick=quick, network=not no_network),
            rng=seed,
            progress=progress,
        )
        save_all(outputs, lambda path: mv.write_certificate(made, path), progress)
    if quick:
        console.warn_of_truth("a certificate")
        console.warn("made with --quick: no map states it")
    else:
        console.warn(
            "figures of true rows, not differentially private: 'signal map --certificate' publishes them, so only "
            "certify with people who agreed to that"
        )
    header = [
        "judged on",
        "reports",
        "users",
        "user error",
        "95 % by user",
        "by",
        "location error m",
        "by",
        "blind guess m",
    ]
    rows = [
        [
            each.part,
            f"{each.runs:,}",
            f"{each.users:,}",
            "" if each.user_error is None else f"{each.user_error:.3f}",
            "" if each.user_error_interval is None else "{:.3f} to {:.3f}".format(*each.user_error_interval),
            each.user_adversary or "",
            f"{each.location_error_m:.0f}",
            each.location_adversary,
            f"{each.blind_location_error_m:.0f}",
        ]
        for each in made.judged
    ]
    worst = "none bounds it" if math.isinf(made.worst_epsilon) else f"{made.worst_epsilon:.3g}"
    text = (
        f"Reports of {made.first} to {made.last} (rows on {made.days} of these days), privatizer "
        f"{made.fingerprint[:12]}; adversaries are given {made.labelled_reports:,} reports of "
        f"{made.labelled_users:,} users\n{text_table(header, rows)}\n"
        f"epsilon of the worst case of one report: {worst}; {made.empty:.1%} of the reports are empty"
    )
    if made.left_out:
        text += f"\nnote: {counted(made.left_out, 'row')} far before or after them left out"
    console.result(text, made.to_dict(), outputs)


@click.command("drift")
@click.argument("today", type=click.Path(path_type=Path))
@click.option(
    "--before",
    "before",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="Reports of one of the days before, a file each. Repeatable.",
)
@click.option(
    "--false-alarm",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Maximum rate at which ordinary days are taken for drifted.",
)
@seed_option("result", name="rng")
@console_options
def drift_(console: Console, today: Path, before: tuple[Path, ...], false_alarm: float, rng: int) -> None:
    """Test whether a day's reports are like those of the days before.

    TODAY and each file of --before hold one day's reports, as 'signal privatize' wrote them. Every report is a code,
    and an empty one is a row unlike the pilot. Days that are exchangeable are taken for drifted at most at the rate
    of --false-alarm, which needs 19 days before for 5 %. A drifted day needs a new pilot, privatizer and certificate.

    \b
    Examples:
      mapveil signal drift today.parquet --before monday.parquet --before tuesday.parquet --false-alarm 0.34
    """
    import mapveil as mv
    from mapveil.geo.files import check_repeated

    days = [mv.read_reports(path) for path in (today, *before)]
    check_repeated((today, *before))
    found = mv.drift(days[0], days[1:], false_alarm=false_alarm, rng=rng)
    said = "drifted" if found.drifted else "no drift is shown"
    text = (
        f"{said}: p = {found.p_value:.3g} (an alarm at {false_alarm:g}); distance {found.distance:.3g}, usually "
        f"{found.usual:.3g}; {found.empty:.1%} of today's reports are empty"
    )
    console.result(text, found.to_dict())
