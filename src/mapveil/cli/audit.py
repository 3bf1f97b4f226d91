"""``mapveil audit``: is a method's epsilon what it says?"""

from __future__ import annotations

import click

from mapveil.cli.arguments import name_list, read_options
from mapveil.cli.console import Console, console_options
from mapveil.mechanisms.methods import DEFAULT_METHODS, find_method
from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import ParameterError


@click.command("audit")
@click.option("--methods", help="Names separated by commas. [default: that of the trust]")
@click.option("--trust", default="central", show_default=True, help=f"One of {', '.join(DEFAULT_METHODS)}.")
@click.option("--epsilon", default="1", show_default=True, help="The epsilon to test.")
@click.option("--trials", default=4000, show_default=True, help="Runs on each of two neighbouring inputs.")
@click.option("--confidence", default=0.999, show_default=True, help="That an honest method is not refuted.")
@click.option("--option", "options", multiple=True, metavar="K=V", help="An option of the methods.")
@click.option("--seed", type=int, help="The same seed gives the same audit.")
@console_options
def command(
    console: Console,
    methods: str | None,
    trust: str,
    epsilon: str,
    trials: int,
    confidence: float,
    options: tuple[str, ...],
    seed: int | None,
) -> int:
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
      mapveil audit --trust local --methods olh-h,grr
    """
    from mapveil.attacks.epsilon_audit import (
        NO_EPSILON,
        audit_epsilon,
        worst_neighbours,
        worst_replacements,
    )
    from mapveil.geo.quadtree import Quadtree
    from mapveil.geo.region import Region

    find_method(None, trust)
    rows = name_list(methods or DEFAULT_METHODS[trust], "--methods")
    claim, given = as_epsilon(epsilon), read_options(options)
    found = [find_method(name, trust) for name in rows]
    for method in found:
        if not method.has_budget:
            raise ParameterError(NO_EPSILON.format(method.name))
    mechanisms = [method.make(claim, given) for method in found]
    tiling = Quadtree(Region.without_georeference(4, 4), depth=2)
    pairs = worst_replacements(tiling) if trust == "local" else worst_neighbours(tiling)
    reports = []
    with console.progress() as progress:
        for done, mechanism in enumerate(mechanisms):
            progress("audit", done / len(mechanisms))
            reports.append(audit_epsilon(mechanism, pairs, trials=trials, confidence=confidence, rng=seed))
        progress("audit", 1.0)
    records = [
        {"method": name, **report._asdict(), "holds": report.holds}
        for name, report in zip(rows, reports, strict=True)
    ]
    lines = [f"{name}: {report!r}" for name, report in zip(rows, reports, strict=True)]
    console.result("\n".join(lines), records)
    return int(not all(report.holds for report in reports))
