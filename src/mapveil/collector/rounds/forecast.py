"""The expected error and traffic of a collection, from one synthetic city, before any device is asked."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.collector.operators.verification import parameters_of
from mapveil.collector.rounds.offer import Offer
from mapveil.collector.rounds.plan_replay import announce, message_bytes, round_terms, shard_sizes
from mapveil.geo.counts import Counts, whole_users
from mapveil.geo.tiling import Tiling
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.local_hashing import LocalHashing
from mapveil.local.randomizers.planar_laplace import PlanarLaplace
from mapveil.local.reported_cells import cells_of_users
from mapveil.metrics.misplaced import finest_cell, misplaced_fractions
from mapveil.synthetic import city
from mapveil.trust.curator import grouped_sums
from mapveil.trust.queries import Estimate, NoisySums, Query, Raster, Setting, run
from mapveil.trust.two_operators import noisy_sums, setting_of
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.local.domain import Domain
from mapveil_client.local.message import write_reports
from mapveil_client.local.randomizer import Reports
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms

_MOST_DRAWN: Final = 200_000
"""People of a synthetic city that are drawn for a forecast; more would take too long, so each counts more than once."""

_MOST_REPORTS: Final = 1_000_000
"""Randomized reports that are drawn for a forecast; above them the form waits too long."""

_MOST_DRAWS: Final = 1 << 31
"""Reports times cells of such a forecast: a set has a bit for each, so two copies of all sets have at most 512 MiB."""

_MOST_TABLE: Final = 1 << 11
"""Cells of a map from reports by tables of all pairs of cells: one of so many has 32 MiB, and there are several."""

_MOST_HASHES: Final = 1 << 17
"""Values of a report of ``olh``: each of hundreds of steps of its estimator transforms a table of all of them."""

_MOST_CELLS: Final = 1 << 16
"""Cells of a map whose error is predicted; that of a finer map is dominated by blocks larger than a cell."""

_MOST_SITES: Final = 1 << 20
"""Sites of a raster whose rounds are gone through for a forecast: sums are over all of them, cells or not.

An array of so many numbers has 8 MiB, and a plan holds dozens of them.
"""

_MOST_WINDOW_SITES: Final = 1 << 23
"""The same over all windows of a series, whose maps are held at once: an array of so many numbers has 64 MiB."""

_SEED: Final = 0  # the city and its noise are public: the same terms give the same forecast


class Forecast(NamedTuple):
    """The expectation of one collection. Based on no real data; None where nothing is predicted."""

    error: float | None  # users per cell, root mean square over the cells
    mean: float | None  # users per cell
    finest_m: float | None  # side of the finest useful cell, metres
    bytes_up: int | None  # the most that one device sends in all messages
    bytes_down: int | None  # the most that one device receives in all messages but the terms
    messages: int | None  # of one device: its report, or the rounds of secure sums
    note: str
    refused: bool = False  # whether such a collection cannot be created; the note says why

    @classmethod
    def refusal(cls, reason: str) -> Forecast:
        """The forecast of a collection that cannot be created."""
        return cls(None, None, None, None, None, None, reason, True)


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
    found = Offer(terms)
    tiling = found.tiling
    mean = terms.devices / tiling.size
    if terms.trust == "random-features":
        _, meaning = found.features.predicted_signal(tiling, terms.devices)
        return Forecast(None, mean, None, None, None, 1, meaning)
    if terms.trust == "local":
        return _of_reports(terms, found, mean)
    note = _unplanned(terms, tiling)
    if note:
        return Forecast(None, mean, None, None, None, None, note)
    truth = _synthetic(terms.devices, tiling)
    up, down, rounds = (None, None, None) if terms.trust == "distributed" else (_report_bytes(terms), 0, 1)
    try:
        made, sent = _answered(terms, truth.values)
    except (InputError, PromiseError) as refused:
        return Forecast(None, mean, None, up, down, rounds, f"The error cannot be predicted: {refused}.")
    if terms.trust == "distributed":
        up, down = (sum(sum(each[way].values()) for each in sent) for way in ("up", "down"))
        rounds = len(sent)
    note = _unpredicted(terms, tiling)
    if note:
        return Forecast(None, mean, None, up, down, rounds, note)
    error, finest_m = _compared(truth, made.values)
    return Forecast(error, mean, finest_m, up, down, rounds, _source(terms.devices))


def _of_reports(terms: CollectionTerms, found: Offer, mean: float) -> Forecast:
    """The forecast of randomized reports."""
    tiling, sent = found.tiling, (_report_bytes(terms), 0, 1)
    note = _unpredicted(terms, tiling)
    most = min(_MOST_REPORTS, _MOST_DRAWS // tiling.size)
    if not note and terms.devices > most:
        note = (
            f"The error is not predicted for more than {most:,} devices on a map of {tiling.size:,} cells: a forecast "
            "of randomized reports draws each of them, which would take too long."
        )
    if not note and tiling.size > _MOST_TABLE and _by_pairs(found.local):
        note = (
            f"The error is not predicted for more than {_MOST_TABLE:,} cells: this forecast inverts a table of all "
            "pairs of cells, which would take too much memory."
        )
    if not note and isinstance(found.local, LocalHashing) and found.randomizer.symbols > _MOST_HASHES:
        note = (
            f"The error is not predicted where a report has more than {_MOST_HASHES:,} values, here "
            f"{found.randomizer.symbols:,}: the estimate would take too long."
        )
    if note:
        return Forecast(None, mean, None, *sent, note)
    truth = _synthetic(terms.devices, tiling)
    try:
        made = found.mechanism.release(truth, tiling, account=None, rng=Randomness(_SEED))
    except (InputError, PromiseError) as refused:
        return Forecast(None, mean, None, *sent, f"The error cannot be predicted: {refused}.")
    error, finest_m = _compared(truth, made.values)
    return Forecast(error, mean, finest_m, *sent, _source(terms.devices))


def _by_pairs(local: LocalMechanism) -> bool:
    """Whether an estimate inverts a table of all pairs of cells."""
    return isinstance(local, PlanarLaplace) or local.estimator == "candidate-sets"


def _source(devices: int) -> str:
    """Where the numbers come from."""
    note = "From one synthetic city; no data is read."
    if devices > _MOST_DRAWN:
        note += (
            f" Each of its {_MOST_DRAWN:,} people counts as {devices / _MOST_DRAWN:.3g} devices, so the error "
            f"differs from that of a city of {devices:,} people."
        )
    return note


def _unplanned(terms: CollectionTerms, tiling: Tiling) -> str:
    """Reason why the rounds of sums are not gone through; empty where they are."""
    sites = 4 ** tiling.lattice().depth
    over = f"more than {_MOST_SITES:,} sites" if sites > _MOST_SITES else ""
    if not over and terms.series is not None and sites * terms.series.count > _MOST_WINDOW_SITES:
        over = f"more than {_MOST_WINDOW_SITES:,} sites in all windows"
    if over:
        return (
            f"Nothing is predicted for a map on a raster of {over}, whose rounds would take too much memory."
        )
    return ""


def _unpredicted(terms: CollectionTerms, tiling: Tiling) -> str:
    """Reason why no error is predicted; empty where one is."""
    if terms.series is not None:
        windows = terms.series.count
        told = f"each window has about 1 in {windows} devices"
        if terms.trust != "local":
            told = f"each device counts 1 over all {windows} windows together"
        return f"The error is not predicted for a series; {told}."
    if tiling.size > _MOST_CELLS:
        return (
            f"The error is not predicted for more than {_MOST_CELLS:,} cells: it would be that of blocks larger than a "
            "cell."
        )
    return ""


def _compared(truth: Counts, released: FloatArray) -> tuple[float, float | None]:
    """The error of a map and the side of its finest useful cell."""
    people = truth.values.astype(np.float64)
    error = math.sqrt(float(np.mean((released - people) ** 2)))
    fractions = misplaced_fractions(people, released, truth.tiling.lattice())
    return error, finest_cell(fractions, truth.tiling).side_m


def _answered(terms: CollectionTerms, people: IntArray) -> tuple[Estimate, list[dict[str, dict[str, int]]]]:
    r"""The plan's estimate of cells, and the bytes of each round of secure sums.

    Queries, bytes and modulus are those of the collection itself. The replies are exact sums of ``people`` per cell and
    the noise of all devices, or of both operators, drawn at once, so that time does not grow with the devices:

    .. math:: X - Y, \qquad X, Y \sim \text{Polya}(t, e^{-\epsilon / \Delta})

    where: t is the number of discrete Laplace variables in a sum.
    """
    found, sent = Offer(terms), list[dict[str, dict[str, int]]]()
    raster, rng = Raster.of(terms.cells.lattice()), np.random.default_rng(_SEED)
    held = np.flatnonzero(people)
    if terms.trust == "operators":
        sizes = np.array([terms.devices])
        setting = setting_of(raster, found.tiling, terms.devices, parameters_of(terms).units)
    else:
        sizes, region = shard_sizes(terms.devices, found.model), terms.cells.region
        setting = Setting.of_shards(found.model, raster, sizes, found.model.units, region)

    def noisy(query: Query, variables: float, moves: int) -> IntArray:
        # In a series everybody is in one window: neither bytes nor rounds depend on which.
        exact = grouped_sums(
            raster.site[held], people[held] * setting.scale, query.encoding, np.zeros_like(held)
        )
        stop = -math.expm1(-float(query.epsilon / moves))
        above, below = (rng.negative_binomial(variables, stop, exact.size) for _ in range(2))
        return exact + above - below

    def answer(query: Any) -> NoisySums:
        if not isinstance(query, Query):
            raise PromiseError(f"{terms.method} asks what only a curator can answer")
        if terms.trust == "operators":
            moves = setting.sensitivity(query.encoding)
            return noisy_sums(noisy(query, 2, moves), query.epsilon, moves, setting)
        announced = announce(terms, query, len(sent) + 1, bytes(16).hex(), sizes)
        sent.append(message_bytes(announced))
        fixed = round_terms(announced)
        units = noisy(query, float(fixed.alpha * terms.devices), fixed.sensitivity)
        return fixed.noisy_sums(units, terms.devices)

    return raster.on_cells(run(found.sums.plan(setting), answer)), sent


def _synthetic(devices: int, tiling: Tiling) -> Counts:
    """A city's people, each at their most frequent location; a larger city is a smaller one, its people multiplied."""
    drawn = min(devices, _MOST_DRAWN)
    people = city(drawn, _SEED, region=tiling.region)
    cells = cells_of_users(people, Domain(tiling), "most-visited", "nearest", Randomness(_SEED))
    counts = np.bincount(cells, minlength=tiling.size).astype(np.float64)
    return Counts(whole_users(counts * (devices / drawn)), tiling, "synthetic city")


def _report_bytes(terms: CollectionTerms) -> int:
    """Bytes of a device's one report, randomized or to two operators."""
    rng = Randomness(_SEED)
    if terms.trust == "local":
        randomizer = terms.randomizer
        made = randomizer.randomize([0], rng)
        about = None if terms.series is None else np.array([terms.series.count - 1])
        return len(write_reports(Reports(made.values, about), randomizer)[0])
    from mapveil_client.two_operators.sharding import ReportRandomness, make_report

    sharding, (leader, helper) = terms.sharding, terms.configs
    nowhere = np.zeros(sharding.sites, dtype=np.int64)
    drawn = ReportRandomness.draw(sharding, rng)
    return len(make_report(sharding, nowhere, (leader, helper), 0, drawn).encode())
