"""The two exact checks of one row of the table of methods: non-interference, and the accounting of its queries.

Neither estimates anything: both fail on one run, however small the fault.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines import UNIT
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms import private_fourier_kde, private_region
from mapveil.mechanisms.private_fourier_kde import FeatureQuery
from mapveil.mechanisms.privtree import TreeQuery
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.secure_sum.drivers import IdealSum
from mapveil.trust.curator import Curator, CuratorAnswerer
from mapveil.trust.queries import Execution, Query
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil.trust.secure_aggregation.simulation import Simulation
from mapveil.trust.two_operators import OperatorsAnswerer
from mapveil.two_operators.site_queries import of_sites
from mapveil_client import contribution
from mapveil_client.arrays import IntArray
from mapveil_client.randomness.noise_shares import exact_fraction, promised_survivors
from mapveil_client.randomness.random import Randomness

from .tree_accounting import tree_loss
from .watched_release import Record, output_bytes, public_bytes, watched
from .worlds import (
    TILING,
    Pair,
    Row,
    adversarial_clients,
    adversarial_pairs,
    locations_of_clients,
    tables_of_a_curator,
)

EPSILON = Fraction(1)


def released(
    row: Row, source: Any, tiling: Tiling, record: Record, epsilon: Fraction = EPSILON
) -> DensityMap:
    """One seeded release about the decoy; call it inside :func:`watched`."""
    mechanism = row.method.make(epsilon, row.options)
    assert isinstance(mechanism, SumMechanism)
    transport = _transport(row.method.trust)
    execution = Execution(Randomness(5), before_reveal=record.charge, secure_sum=transport)
    return mechanism.execute(source, tiling, execution)


def check_non_interference(row: Row, tiling: Tiling = TILING) -> None:
    """Every table gives the same queries, charges and output, byte for byte, while replies are about the decoy."""
    worlds = tables_of_a_curator if row.method.trust == "central" else locations_of_clients
    said = {}
    for name, source in worlds(tiling).items():
        with watched() as record:
            output = output_bytes(released(row, source, tiling, record))
        said[name] = (record.queries, record.charged, output)
    first, *others = said
    for other in others:
        for part, kind in enumerate(("queries", "charges", "output")):
            assert said[first][part] == said[other][part], f"{kind} tell {first!r} from {other!r}"


def check_accounting(row: Row, epsilon: Fraction = EPSILON) -> tuple[Any, ...]:
    """The exact privacy losses of all queries add up to the claim at most, for every adversarial neighbour.

    By induction over the queries: the replies so far being alike, both neighbours are asked the same query, and its
    loss bounds the log-ratio of the probabilities of every reply. See :func:`tree_loss` for the one reply that is no
    noisy sum. Returns the queries.
    """
    lost: list[list[Fraction]] = []
    queries: list[Any] = []
    curated = row.method.trust == "central"

    def after(answerer: Any, query: Any, reply: Any) -> None:
        queries.append(query)
        lost.append(losses(answerer, query, record))

    source = tables_of_a_curator(TILING)["scattered"] if curated else _clients(TILING)
    with watched(after) as record:
        heat = released(row, source, TILING, record, epsilon)
    assert len(record.charged) == len(lost), "a query without a charge of its own"
    for share, each in zip(record.charged, lost, strict=True):
        assert max(each) <= share.epsilon, f"{share.purpose}: loses {max(each)}, charged {share.epsilon}"
    for neighbour in zip(*lost, strict=True):
        assert sum(neighbour) <= heat.guarantee.epsilon, "the queries together lose more than the claim"
    assert tuple(record.charged) == heat.guarantee.shares, (
        "the guarantee names other shares than were charged"
    )
    assert sum(share.epsilon for share in record.charged) <= heat.guarantee.epsilon == epsilon
    _check_order(record.events)
    # An accounting in which nobody loses anything could not see a fault.
    assert max(sum(neighbour) for neighbour in zip(*lost, strict=True)) > epsilon / 4
    return tuple(queries)


def _check_order(events: list[str]) -> None:
    """Each query is charged once, before anything about it is revealed."""
    for query in " ".join(events).split("ask")[1:]:
        happened = query.split()
        assert happened[:1] == ["charge"], "revealed before the charge"
        assert happened.count("charge") == 1
        assert "reveal" in happened


_pairs, _clients = cache(adversarial_pairs), cache(adversarial_clients)


def losses(answerer: Any, query: Any, record: Record) -> list[Fraction]:
    """Exact loss of a reply, for each neighbour; call it from ``after`` of :func:`watched`."""
    by_clients = isinstance(answerer, Simulation | OperatorsAnswerer)
    sites = TILING.size if by_clients else answerer.raster.site.size
    pairs = _pairs(TILING) if sites == TILING.size else _pairs_of_axes(sites)
    return losses_of(answerer, query, record, pairs)


def losses_of(answerer: Any, query: Any, record: Record, pairs: list[Pair]) -> list[Fraction]:
    """The same for these neighbours of a curator's sums, or for each adversarial client."""
    if isinstance(answerer, Simulation):
        return _losses_of_clients(answerer, query, record)
    if isinstance(answerer, OperatorsAnswerer):
        return _losses_of_reports(answerer, query, record)
    return [_loss(answerer, query, pair, record) for pair in pairs]


def _pairs_of_axes(sites: int) -> list[Pair]:
    """One user more in one cell, or divided over the diagonal of 64 x 64 cells: where a region is searched for."""
    sums, across, pairs = np.arange(sites) % 7 * UNIT, np.arange(0, sites, 65), []
    for cells in (across[:1], across):
        more = sums.copy()
        more[cells] += UNIT // cells.size
        pairs.append(Pair("", sums, more))
    return pairs


def _loss(answerer: Any, query: Any, pair: Pair, record: Record) -> Fraction:
    sites = []
    for sums in (pair.sums, pair.neighbour):
        other = CuratorAnswerer(answerer.setting, sums, answerer.raster, answerer._execution)
        sites.append((other, other._sites))
    if isinstance(query, Query):
        first, second = (other._exact(query.encoding) for other, _ in sites)
        return record.draws[0].rate * int(np.abs(first - second).sum())
    if type(query) not in CURATOR_LOSSES:
        pytest.fail(f"{type(query).__name__} has no exact accounting; define one in CURATOR_LOSSES")
    return CURATOR_LOSSES[type(query)](query, sites[0][1], sites[1][1], record)


def _feature_loss(query: FeatureQuery, first: IntArray, second: IntArray, record: Record) -> Fraction:
    """Noisy sums of whole-numbered feature vectors: rate times the exact L1 change, as for any sum."""
    exact: list[list[int]] = []
    add = private_fourier_kde.sum_of_vectors

    def kept(*given: Any) -> list[int]:
        exact.append(add(*given))
        return exact[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_fourier_kde, "sum_of_vectors", kept)
        for sums in (first, second):
            query.reply(sums, Randomness(1), lambda step, done: None)
    assert record.draws[-1].length == len(exact[0]) == len(exact[1]), "not one draw of noise for every sum"
    change = sum(abs(a - b) for a, b in zip(*exact, strict=True))
    return record.draws[-1].rate * change


def _tree_loss(query: TreeQuery, first: IntArray, second: IntArray, record: Record) -> Fraction:
    return tree_loss(query, first, second)


CURATOR_LOSSES: dict[type, Callable[..., Fraction]] = {TreeQuery: _tree_loss, FeatureQuery: _feature_loss}
"""The exact accounting of each query that only a curator answers."""


def _losses_of_clients(answerer: Any, query: Query, record: Record) -> list[Fraction]:
    """Exact loss of a round, for each adversarial client whose contribution is replaced by zero."""
    model, setting = answerer._model, answerer.setting
    lost, corrupt = (exact_fraction(part, "part") for part in (model.tolerated_dropout, model.corrupt))
    for size in np.unique(answerer._sizes).tolist():
        honest = promised_survivors(size, lost) - int(corrupt * size)
        for draw in record.draws:
            assert draw.alpha * honest >= 1, (
                "the promised survivors' shares make less than one noise variable"
            )
    rates = {draw.rate for draw in record.draws}
    assert len(rates) == 1, "clients draw noise of different rates"
    with pytest.MonkeyPatch.context() as patch:
        # Stochastic rounding at its worst: every remainder is rounded up.
        patch.setattr(contribution, "uniform_below_each", lambda bounds, rng: np.zeros_like(bounds))
        vectors = contribution.encode_places(
            _clients(TILING), query.encoding, setting.scale, setting.rounding, Randomness(3)
        )
    norms = np.zeros(vectors.clients, dtype=np.int64)
    np.add.at(norms, vectors.client, np.abs(vectors.value))
    return [max(rates) * norm for norm in norms.tolist()]


def _losses_of_reports(answerer: OperatorsAnswerer, query: Query, record: Record) -> list[Fraction]:
    """Under either operator's noise alone: what a client adds to the groups of the query, from its vector of sites."""
    assert len(record.draws) == 2, "not one draw of noise of each operator"
    assert all(draw.length == query.encoding.length for draw in record.draws), "noise on a part of the sums"
    vectors = answerer._vectors(_clients(TILING))
    position = of_sites(query.encoding, answerer._sites).positions(vectors.position)
    norms = np.zeros(vectors.clients, dtype=np.int64)
    np.add.at(norms, vectors.client, (position >= 0).sum(axis=1) * np.abs(vectors.value))
    return [max(draw.rate for draw in record.draws) * norm for norm in norms.tolist()]


def check_region(trust: str) -> None:
    """A release without a region finds one in replies alone, for what it says that costs."""
    lost: list[list[Fraction]] = []

    def after(answerer: Any, query: Query, reply: Any) -> None:
        lost.append(losses(answerer, query, record))

    model = Curator() if trust == "central" else SecureAggregation()
    said = []
    for place, users in (((-73.97, 40.75), 300), ((139.7, 35.7), 300 if trust == "distributed" else 4000)):
        generator = np.random.default_rng(3)
        lon, lat = (centre + 0.05 * generator.normal(size=3 * users) for centre in place)
        table = mv.Points.from_arrays(np.arange(3 * users) % users, lon, lat)
        lost.clear()
        with watched(after) as record:
            execution = Execution(Randomness(5), before_reveal=record.charge, secure_sum=_transport(trust))
            found = private_region.find_region(table, model, Fraction(2), execution)
        said.append((record.queries, str(found.region), public_bytes((found.shares, found.rounds))))
        _check_order(record.events)
    assert said[0][1] == said[1][1], "the region follows the table"
    assert said[0] == said[1]
    assert len(found.shares) == 3 * (1 + (trust == "central"))
    each = len(lost) // len(found.shares)
    for share, rows in zip(found.shares, zip(*[iter(lost)] * each, strict=True), strict=True):
        worst = max(max(row) for row in rows)
        assert worst <= share.epsilon, f"{share.purpose}: loses {worst}, charged {share.epsilon}"


def _transport(trust: str) -> IdealSum | None:
    return IdealSum() if trust == "distributed" else None
