"""The expected error and traffic of a collection, from one synthetic city, before any device is asked."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.collector.rounds.offer import offer
from mapveil.geo.counts import Counts
from mapveil.geo.tiling import Tiling
from mapveil.local.reported_cells import cells_of_users
from mapveil.metrics.misplaced import finest_cell, misplaced_fractions
from mapveil.secure_sum.drivers import IdealSum
from mapveil.synthetic import city
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.message import write_reports
from mapveil_client.local.randomizer import Reports
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms

_MOST_DRAWN: Final = 50_000
"""Devices of a synthetic city that are drawn for a forecast; above them the form waits too long for one."""

_MOST_CELLS: Final = 1 << 16
"""Cells of a map whose error is predicted; that of a finer map is dominated by blocks larger than a cell."""

_SEED: Final = 0  # the city and its noise are public: the same terms give the same forecast


class Forecast(NamedTuple):
    """The expectation of one collection. Based on no real data; None where nothing is predicted."""

    error: float | None  # users per cell, root mean square over the cells
    mean: float | None  # users per cell
    finest_m: float | None  # side of the finest useful cell, metres
    bytes_up: int | None  # the most that one device sends in all messages
    bytes_down: int | None  # the most that one device receives in all messages but the terms
    messages: int  # in which one device takes part, the rounds of secure sums
    note: str
    refused: bool = False  # whether such a collection cannot be created; the note says why

    @classmethod
    def refusal(cls, reason: str) -> Forecast:
        """The forecast of a collection that cannot be created."""
        return cls(None, None, None, None, None, 0, reason, True)


def forecast(terms: CollectionTerms) -> Forecast:
    r"""Release a synthetic city with the terms' own mechanism, and measure the map. Costs no privacy.

    Per cell, the error is :math:`\left(\tfrac{1}{C}\sum_c (\hat{s}_c - s_c)^2\right)^{1/2}`, where :math:`s` and
    :math:`\hat{s}` are true and released users in the :math:`C` cells. Run by: the collector, without any device.
    CPU-heavy.

    Parameters
    ----------
    terms : CollectionTerms
        Of a collection that was checked (:func:`~mapveil.collector.rounds.specification.read_specification`).
    """
    tiling = offer(terms).tiling
    mean = terms.devices / tiling.size
    if terms.trust == "random-features":
        _, meaning = offer(terms).features.predicted_signal(tiling, terms.devices)
        return Forecast(None, mean, None, None, None, 1, meaning)
    up = _report_bytes(terms)
    if terms.series is not None:
        windows = terms.series.count
        told = f"each window has about 1 in {windows} devices"
        if terms.trust != "local":
            told = f"each device counts 1 over all {windows} windows together"
        note = f"The error is not predicted for a series; {told}."
        return Forecast(None, mean, None, up, 0, 1, note)
    for what, found, most in (
        ("devices", terms.devices, _MOST_DRAWN),
        ("cells", tiling.size, _MOST_CELLS),
    ):
        if found > most:
            note = f"The error is not predicted for more than {most:,} {what}."
            return Forecast(None, mean, None, up, None if up is None else 0, 1, note)
    truth = _synthetic(terms.devices, tiling)
    try:
        how: dict[str, Any] = (
            {"secure_sum": IdealSum(active=terms.active)} if terms.trust == "distributed" else {}
        )
        made = offer(terms).mechanism.release(truth, tiling, account=None, rng=Randomness(_SEED), **how)
    except (InputError, ParameterError) as refused:
        return Forecast(None, mean, None, up, None, 1, f"The error cannot be predicted: {refused}")
    released, people = made.values, truth.values.astype(np.float64)
    error = math.sqrt(float(np.mean((released - people) ** 2)))
    finest = finest_cell(misplaced_fractions(people, released, tiling.lattice()), tiling)
    down = 0
    if up is None:
        up, down = (
            sum(sum(each.values()) for each in sent)
            for sent in ([each.bytes_up for each in made.rounds], [each.bytes_down for each in made.rounds])
        )
    rounds = len(made.rounds) if terms.trust == "distributed" else 1
    return Forecast(error, mean, finest.side_m, up, down, rounds, "From one synthetic city; no data is read.")


def _synthetic(devices: int, tiling: Tiling) -> Counts:
    """A city's people, each at their most frequent location."""
    people = city(devices, _SEED, region=tiling.region)
    cells = cells_of_users(people, Domain(tiling), "most-visited", "nearest", Randomness(_SEED))
    return Counts(np.bincount(cells, minlength=tiling.size).astype(np.int64), tiling, "synthetic city")


def _report_bytes(terms: CollectionTerms) -> int | None:
    """Bytes of a device's one report; None in secure sums, which have several messages."""
    rng = Randomness(_SEED)
    if terms.trust == "local":
        randomizer = terms.randomizer
        made = randomizer.randomize([0], rng)
        about = None if terms.series is None else np.array([terms.series.count - 1])
        return len(write_reports(Reports(made.values, about), randomizer)[0])
    if terms.trust == "operators":
        from mapveil_client.two_operators.sharding import ReportRandomness, make_report

        sharding, (leader, helper) = terms.sharding, terms.configs
        nowhere = np.zeros(sharding.sites, dtype=np.int64)
        drawn = ReportRandomness.draw(sharding, rng)
        return len(make_report(sharding, nowhere, (leader, helper), 0, drawn).encode())
    return None
