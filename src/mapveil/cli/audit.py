"""``mapveil audit``: an empirical test of a method's epsilon."""

from typing import Any

import click

from mapveil.cli.console import Console, console_options
from mapveil.cli.options import epsilon_option, method_options, names_option
from mapveil.mechanisms.methods import DEFAULT_METHODS, find_method


@click.command("audit")
@names_option("--methods", None, "Methods, separated by commas.", shown="that of the trust model")
@click.option(
    "--trust", help=f"One of {', '.join(DEFAULT_METHODS)}. [default: the first that has the method]"
)
@epsilon_option("Epsilon to test. [default: 1]")
@click.option(
    "--trials", default=4000, show_default=True, help="Runs on each of two neighbouring inputs, about."
)
@click.option(
    "--confidence", default=0.999, show_default=True, help="Probability that an honest method passes."
)
@method_options(of="methods")
@click.option("--seed", "rng", type=int, help="The same seed gives the same audit.")
@console_options
def command(console: Console, methods: list[str] | None, trust: str | None, **parameters: Any) -> int:
    """Test a method's epsilon by running it on worst-case neighbours. Uses invented data only.

    A curator's method runs with and without one user; so does a method over secure sums, under the least noise
    that its claim allows. A local method reports from one cell or from another. Exits with 1 when a claim is
    refuted. A claim that stands is not thereby proven: the proof is in the method's file, the audit looks for
    mistakes in it.

    \b
    Examples:
      mapveil audit --methods laplace,emd
      mapveil audit --methods privtree --epsilon 0.5 --trials 20000
      mapveil audit --trust distributed --methods adaptive,uniform
      mapveil audit --methods olh-h,grr,private-fourier-kde
    """
    from mapveil.attacks.audit import audit

    names = methods or [find_method(None, trust or "central").name]
    reports = {}
    with console.progress() as progress:
        for done, name in enumerate(names):
            progress("audit", done / len(names))
            reports[name] = audit(name, trust=trust, **parameters)
        progress("audit", 1.0)
    records = [
        {"method": name, **report._asdict(), "holds": report.holds} for name, report in reports.items()
    ]
    console.result("\n".join(f"{name}: {report!r}" for name, report in reports.items()), records)
    return int(not all(report.holds for report in reports.values()))
