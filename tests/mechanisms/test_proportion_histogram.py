from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.geo.counts import Counts
from mapveil.inference.wilson import noisy_wilson, normal_quantile
from mapveil.maps.proportion_map import LabelMeasurement, ProportionMap
from mapveil.mechanisms.adaptive_histogram import AdaptiveHistogram
from mapveil.mechanisms.methods import find_method
from mapveil.mechanisms.proportion_histogram import ProportionHistogram
from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil.trust.queries import Estimate, NoisySums, Query, Setting
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.arrays import FloatArray
from mapveil_client.contribution import Devices
from mapveil_client.encodings import LabelEncoding, NodeEncoding
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.morton import PrefixTree, interleave

SIDE = 64
TILING = mv.Quadtree(mv.Region.without_georeference(SIDE, SIDE), depth=6)


SITE = interleave(TILING.lattice().row, TILING.lattice().col)
SITE_ORDER = np.argsort(SITE)


class City:
    """People of skewed density; the sick in a Gaussian bump around (50, 12), as in figure 9."""

    def __init__(self, users: int, seed: int, height: float = 0.8) -> None:
        where = TILING.lattice()
        towns = np.random.default_rng(0).uniform(0, SIDE, (12, 2))
        squared = ((where.col[:, None] - towns[:, 0]) ** 2 + (where.row[:, None] - towns[:, 1]) ** 2).min(
            axis=1
        )
        weight = np.exp(-squared / 200) + 0.05
        self.people = weight / weight.sum()
        self.ill = height * np.exp(-((where.col - 12) ** 2 + (where.row - 50) ** 2) / (2 * 9**2))
        generator = np.random.default_rng(seed)
        cell = generator.choice(TILING.size, users, p=self.people)
        self.devices = Devices(SITE[cell], labels=(generator.random(users) < self.ill[cell]).astype(np.int64))

    def truth_of(self, groups: npt.NDArray[np.int64]) -> FloatArray:
        """The proportion of each cell's group, among all it could have been drawn from."""
        everybody = np.bincount(groups, self.people)
        return np.asarray(np.bincount(groups, self.people * self.ill)[groups] / everybody[groups])

    def error(self, heat: ProportionMap) -> float:
        """Root of the mean squared error of the proportion, over people."""
        return float(
            np.sqrt(np.average((np.nan_to_num(heat.proportion()) - self.ill) ** 2, weights=self.people))
        )


def play(
    mechanism: AdaptiveHistogram, setting: Setting, answer: Any
) -> tuple[list[Query], list[NoisySums], Estimate]:
    server, queries, answers = mechanism.plan(setting), [], []
    terms = float(setting.alpha * setting.clients)
    try:
        query = next(server)
        while True:
            queries.append(query)
            answers.append(NoisySums(answer(query), 1.0, terms, query.epsilon, 1, 1, setting.clients))
            query = server.send(answers[-1])
    except StopIteration as stop:
        return queries, answers, stop.value


def tree_of(query: Query) -> PrefixTree:
    assert isinstance(query.encoding, LabelEncoding)
    assert isinstance(query.encoding.places, NodeEncoding)
    return query.encoding.places.tree


SETTING = Setting(6, np.ones(4**6, dtype=np.int64), 100_000, 10, Fraction(1, 10_000), 1)


def test_figure_9_in_small() -> None:
    city = City(60_000, seed=1)
    heat = ProportionHistogram(epsilon=1).release(city.devices, TILING, rng=1)
    assert heat.method == "proportions"
    assert heat.labels == 2
    assert sum(share.epsilon for share in heat.guarantee.shares) == 1
    # Without any map, the best guess is one proportion for all.
    level = np.average(city.ill, weights=city.people)
    alone = np.sqrt(np.average((city.ill - level) ** 2, weights=city.people))
    assert city.error(heat) < 0.45 * alone
    assert heat.values.sum() == pytest.approx(60_000, rel=0.02)
    where = TILING.lattice()
    away, sick = np.hypot(where.col - 12, where.row - 50), np.nan_to_num(heat.proportion()) * heat.values
    assert sick[away < 4].sum() > 0.5 * heat.values[away < 4].sum()
    assert sick[away > 35].sum() < 0.03 * heat.values[away > 35].sum()


def test_intervals_cover_the_truth_of_their_groups() -> None:
    missed, among_counted, groups = 0, 0, 0
    for seed in range(12):
        city = City(20_000, seed=seed)
        heat = ProportionHistogram(epsilon=1, trust=SecureAggregation(shard_size=5_000)).release(
            city.devices, TILING, rng=seed
        )
        of_cell = heat.measured.groups
        one_each = np.unique(of_cell, return_index=True)[1]
        truth, bounds = city.truth_of(of_cell)[one_each], heat.proportion_interval(0.1)
        missed += int(((truth < bounds.lower[one_each]) | (truth > bounds.upper[one_each])).sum())
        asked = of_cell[SITE_ORDER]
        held = np.bincount(asked[city.devices.sites], minlength=one_each.size)
        ill = np.bincount(asked[city.devices.sites], city.devices.labels, one_each.size)
        part = np.divide(ill, held, out=np.zeros(one_each.size), where=held > 0)
        counted = heat.proportion_interval(0.1, sampling=False)
        outside = (part < counted.lower[one_each] - 1e-12) | (part > counted.upper[one_each] + 1e-12)
        among_counted += int((outside & (held > 0)).sum())
        groups += one_each.size
    assert groups > 1000
    # 10 % may fail, and few enough fail to say that the bounds are not idly wide.
    assert 0.04 < missed / groups < 0.125
    assert 0.03 < among_counted / groups < 0.125


def test_looking_at_intervals_makes_better_maps_than_counts_alone() -> None:
    error = {}
    for width in (None, 0.1):
        mechanism = ProportionHistogram(epsilon=1, width=width)
        error[width] = np.mean(
            [
                (city := City(300_000, seed)).error(mechanism.release(city.devices, TILING, rng=seed))
                for seed in range(3)
            ]
        )
    assert error[0.1] < 0.85 * error[None]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), width=st.floats(0.02, 1), labels=st.integers(2, 5))
def test_nodes_are_split_for_counts_and_for_intervals_alike(seed: int, width: float, labels: int) -> None:
    generator = np.random.default_rng(seed)

    def answer(query: Query) -> FloatArray:
        return generator.pareto(0.5, query.encoding.length) * 50

    eighths = PrefixTree.uniform(6, 3)
    mechanism = ProportionHistogram(epsilon=5, width=width, labels=labels, threshold=30).starting_from(
        eighths
    )
    queries, answers, _ = play(mechanism, SETTING, answer)
    assert len(queries) > 1
    by_label, remaining = answers[0].values.reshape(-1, labels), 5 - queries[0].epsilon
    people = by_label.sum(axis=1)

    def widest(part: float) -> FloatArray:
        """Of all labels' intervals, if so many people were left, with the noise of the remaining budget."""
        z = normal_quantile(0.05)
        noise = z * (answers[0].terms * laplace_variance(remaining, 1)) ** 0.5
        found = [noisy_wilson(one * part, people * part, z, noise, labels) for one in by_label.T]
        return np.max([bounds.upper - bounds.lower for bounds in found], axis=0)

    split = (people > 30) & (widest(1 / 4) <= width)
    collapse = ((people <= 30 / 4) | (widest(1) > 1.5 * width)) & ~split
    wanted = {(3, code) for code in np.flatnonzero(~split & ~collapse).tolist()}
    wanted |= {(4, 4 * code + i) for code in np.flatnonzero(split).tolist() for i in range(4)}
    later = tree_of(queries[1])
    assert set(zip(later.level.tolist(), later.code.tolist(), strict=True)) - {(0, 0)} == wanted
    assert (later.level == 0).any() == collapse.any()


def test_the_map_carries_the_last_sums_by_label() -> None:
    generator = np.random.default_rng(4)
    queries, answers, made = play(
        ProportionHistogram(epsilon=1, labels=3),
        SETTING,
        lambda query: generator.normal(90, 50, query.encoding.length),
    )
    assert sum(query.epsilon for query in queries) == 1
    (measured,) = made.measurements
    assert isinstance(measured, LabelMeasurement)
    np.testing.assert_array_equal(measured.by_label, answers[-1].values.reshape(-1, 3))
    np.testing.assert_allclose(measured.noisy, measured.by_label.sum(axis=1))
    assert measured.terms == 3 * answers[-1].terms


def test_without_a_width_it_is_the_adaptive_histogram_with_the_noise_of_both_labels() -> None:
    people = np.random.default_rng(3).pareto(1.0, 4**6) * 200

    def plain(query: Query) -> FloatArray:
        tree = query.encoding.tree if isinstance(query.encoding, NodeEncoding) else tree_of(query)
        count = np.bincount(tree.owner(np.arange(4**6)), people, tree.size)
        return count if isinstance(query.encoding, NodeEncoding) else np.repeat(count / 2, 2)

    # Two labels have the noise of twice as many shards.
    twice = SETTING._replace(alpha=SETTING.alpha * 2)
    by_label, _, made = play(ProportionHistogram(epsilon=1, width=None), SETTING, plain)
    alone, _, plainly = play(AdaptiveHistogram(epsilon=1), twice, plain)
    assert [query.epsilon for query in by_label] == [query.epsilon for query in alone]
    for query, other in zip(by_label, alone, strict=True):
        assert isinstance(other.encoding, NodeEncoding)
        np.testing.assert_array_equal(tree_of(query).code, other.encoding.tree.code)
    np.testing.assert_allclose(made.values, plainly.values)


def test_a_table_of_visits_keeps_labels_and_bounds() -> None:
    generator = np.random.default_rng(2)
    users = generator.integers(0, 3000, 12_000)
    lon, lat = generator.uniform(0, 1, 12_000), generator.uniform(0, 1, 12_000)
    ill = generator.random(3000)[users] < 0.4
    points = mv.Points.from_arrays(users, lon, lat, label=ill)
    tiling = mv.Quadtree(mv.Region.from_bbox(0, 0, 1, 1), depth=2)
    heat = ProportionHistogram(epsilon=2).release(points, tiling, rng=1)
    bounds = heat.proportion_interval()
    assert heat.rounds[0].length == 8
    assert (bounds.lower <= 0.42).all()
    assert (bounds.upper >= 0.38).all()
    assert heat.values.sum() == pytest.approx(np.unique(users).size, rel=0.05)


def test_everybody_with_the_same_label_is_no_other_label() -> None:
    points = mv.Points.from_arrays(
        np.arange(500), np.full(500, 0.3), np.full(500, 0.3), label=np.ones(500, np.int64)
    )
    tiling = mv.Quadtree(mv.Region.from_bbox(0, 0, 1, 1), depth=2)
    heat = ProportionHistogram(epsilon=5).release(points, tiling, rng=1)
    assert np.nanmax(heat.proportion() * (heat.values > 50)) > 0.97


@pytest.mark.parametrize(
    "tiling", [TILING, mv.Grid(TILING.region, columns=7, rows=3)], ids=["quadtree", "grid"]
)
def test_nobody_at_all_is_a_map_too(tiling: Any) -> None:
    nobody = Devices(np.array([-1]), labels=np.array([0]))  # one device must be asked, and it is elsewhere
    heat = ProportionHistogram(epsilon=1).release(nobody, tiling, rng=1)
    assert np.isfinite(heat.values).all()
    bounds = heat.proportion_interval()
    assert ((bounds.lower >= 0) & (bounds.lower <= bounds.upper) & (bounds.upper <= 1)).all()


def test_counts_and_tables_without_labels_are_refused() -> None:
    with pytest.raises(InputError, match="no labels"):
        ProportionHistogram(epsilon=1).release(Counts(np.ones(TILING.size, dtype=np.int64), TILING))
    plain = mv.Points.from_arrays([1], [0.5], [0.5])
    with pytest.raises(InputError, match="need a table with a label column"):
        ProportionHistogram(epsilon=1).release(plain, mv.Quadtree(mv.Region.from_bbox(0, 0, 1, 1), depth=1))


@pytest.mark.parametrize("options", [{"labels": 1}, {"labels": 1 << 17}, {"width": 0}, {"width": 1.5}])
def test_parameters_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        ProportionHistogram(epsilon=1, **options)


def test_parameters_are_json_and_make_it_again() -> None:
    mechanism = ProportionHistogram(epsilon="1/3", labels=4, width=None, start=((1, 2),))
    record = json.loads(json.dumps(mechanism.parameters()))
    assert record.pop("epsilon") == "1/3"
    assert find_method("proportions", "distributed").make("1/3", record) == mechanism
