"""The exact accounting of a series: users in one, two or all windows, each charged once for all of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.geo.zone_order import zone_order
from mapveil.local.local_series import LocalSeries
from mapveil.mechanisms.flow_series import FlowSeries
from mapveil.mechanisms.multiscale_series import MultiscaleSeries
from mapveil.privacy.guarantee import Guarantee
from mapveil.secure_sum.drivers import IdealSum
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Execution, run
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil.trust.two_operators import TwoOperators
from mapveil_client.arrays import IntArray
from mapveil_client.epsilon import power
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

from .exact_checks import EPSILON, losses_of
from .watched_release import watched
from .worlds import TILING, Pair, adversarial_clients

WINDOWS: Final = mv.Windows(by="kind", values=("a", "b", "c"))
WEEKS: Final = mv.Windows(every="1w", start="2026-01-05", until="2026-01-26")
ZONES: Final = mv.Quadtree(TILING.region, depth=2)
"""Zones whose pairs are as many as the cells of the other audits."""

SERIES_AUDITED: Final[dict[str, MultiscaleSeries | FlowSeries]] = {
    f"{name}{kind.name}": kind(epsilon=EPSILON, **given, **also)
    for kind, also in ((MultiscaleSeries, {}), (FlowSeries, {"pair_signal": 1e6}))  # every kind of query
    for name, given in (
        ("central ", {"windows": WINDOWS}),
        ("central windows_per_user=2 ", {"windows": WINDOWS, "windows_per_user": 2}),
        ("distributed ", {"windows": WINDOWS, "trust": SecureAggregation()}),
        ("operators ", {"windows": WINDOWS, "trust": TwoOperators()}),
    )
} | {
    "central per=user-week multiscale-series": MultiscaleSeries(
        epsilon=EPSILON, windows=WEEKS, per="user-week"
    )
}
"""Series whose claims are audited."""


LOCAL_SERIES: Final[dict[str, dict[str, Any]]] = {
    "local olh-h-series": {"windows": WINDOWS},
    "local olh-h-series windows_per_user=2": {"windows": WINDOWS, "windows_per_user": 2},
}
"""Parameters of series of reports whose claims are audited."""


def check_local_series(parameters: dict[str, Any]) -> None:
    """The worst ratio of all reports that a client sends is within the claim, and the windows are any client's."""
    mechanism = LocalSeries(epsilon=EPSILON, **parameters)
    promise = mechanism.guarantee()
    assert promise.bound is not None
    assert promise.epsilon == EPSILON
    ratio = mechanism.of_report.on(Domain(TILING)).worst_ratio()
    assert ratio**promise.bound.value <= power(EPSILON), "the reports together lose more than the claim"


def units(most: int) -> dict[str, IntArray]:
    """Contributions of one unit, shape (windows, cells): 1 divided over windows, or 1 in each of ``most``."""
    made = {}
    for name, windows in (("one", [0]), ("two", [0, 2]), ("all", [0, 1, 2])):
        share = min(UNIT, UNIT * most // len(windows))
        for where, cells in (("one cell", np.array([7])), ("every cell", np.arange(TILING.size))):
            unit = np.zeros((3, TILING.size), dtype=np.int64)
            unit[np.ix_(windows, cells)] = share // cells.size
            made[f"in {name} of the windows, in {where}"] = unit
    return made


def _played(mechanism: MultiscaleSeries | FlowSeries, source: Any, execution: Execution) -> Guarantee:
    """The guarantee of a release about the source: users of cells, or of pairs of zones."""
    if isinstance(mechanism, MultiscaleSeries):
        return mechanism.execute(source, TILING, execution).guarantee
    order = zone_order(ZONES)
    answerer = mechanism.trust.answerer(source, ZONES, mechanism.raster(order), execution)
    run(mechanism.plan(answerer.setting, order), answerer.answer)
    return mechanism.guarantee(tuple(answerer.revealed))


def check_series(mechanism: MultiscaleSeries | FlowSeries) -> tuple[Any, ...]:
    """The exact losses of all queries add up to the claim at most, for every unit; returns the queries."""
    crowd = np.random.default_rng(4).integers(0, 9 * UNIT, (3, TILING.size))
    pairs = [Pair(name, crowd, crowd + unit) for name, unit in units(mechanism.contribution).items()]
    lost: list[list[Fraction]] = []
    queries: list[Any] = []

    def after(answerer: Any, query: Any, reply: Any) -> None:
        queries.append(query)
        lost.append(losses_of(answerer, query, record, pairs))

    curated = isinstance(mechanism.trust, Curator)
    cells = ZONES if isinstance(mechanism, FlowSeries) else TILING
    source: Any = UserSums(crowd, cells) if curated else adversarial_clients(TILING)
    with watched(after) as record:
        transport = None if curated else IdealSum()
        execution = Execution(Randomness(5), before_reveal=record.charge, secure_sum=transport)
        guarantee = _played(mechanism, source, execution)
    for share, each in zip(record.charged, lost, strict=True):
        assert max(each) <= share.epsilon, f"{share.purpose}: loses {max(each)}, charged {share.epsilon}"
    for unit in zip(*lost, strict=True):
        assert sum(unit) <= EPSILON, "the queries together lose more than the claim"
    assert tuple(record.charged) == guarantee.shares
    assert sum(share.epsilon for share in record.charged) <= guarantee.epsilon == EPSILON
    assert max(sum(unit) for unit in zip(*lost, strict=True)) > EPSILON * Fraction(9, 10), "nobody loses"
    return tuple(queries)
