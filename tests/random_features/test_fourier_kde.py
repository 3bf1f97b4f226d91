"""Algorithm 2 whole: what the map tends to, what is refused, where the bandwidth came from, what is warned of."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

import mapveil as mv
from mapveil.attacks.localisation_scene import scene
from mapveil.formats.read_map import read_map
from mapveil.privacy.claim import Assumes, Reveals
from mapveil.random_features.federated_kde import FederatedKde
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.random_features.known_population import population_cells
from mapveil.random_features.map_points import map_points, prior_cells
from mapveil.random_features.measured import FEW_PLACES
from mapveil.random_features.posterior import hiding
from mapveil.random_features.visits import Chunk, all_places, visits_of
from mapveil_client.errors import InputError, ParameterError, PromiseError
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.kernels import KERNELS, kernel_named
from mapveil_client.random_features.report import client_reports, read_reports, write_reports
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
GRID = mv.Grid(REGION, rows=40, columns=30)
SIDES = ("west", "south", "east", "north")
CITY = mv.synthetic.city(users=4000, seed=2, region=REGION)
COUNTS = mv.Counts(np.random.default_rng(2).poisson(np.random.default_rng(3).pareto(1.0, GRID.size)), GRID)


def errors(heat_of, exact, users, kernel, h, features, factor=1.0):
    """Standard errors between the signed estimate and the exact density, cell by cell."""
    kernel_integral = kernel_named(kernel).integral(2) * h * h
    area = map_points(GRID).area
    spread = math.sqrt(users / (2 * features)) / kernel_integral * area
    return (heat_of - exact * factor) / spread


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("features", [1, 4])
def test_the_estimate_is_the_exact_density_with_the_noted_error(kernel, features):
    h = 120.0
    mechanism = FourierKde(bandwidth_m=h, features=features, kernel=kernel, bands=1, gamma=1.0)
    seen = []
    exact = FederatedKde(bandwidth_m=h, kernel=kernel).collect(
        COUNTS, GRID, mv.Randomness(1), lambda step, done: None
    )
    for seed in range(8):
        made = mechanism.collect(COUNTS, GRID, mv.Randomness(seed), lambda step, done: None)
        assert made.devices == exact.devices
        seen.append(errors(made.users, exact.users, made.devices, kernel, h, features))
    scores = np.array(seen)
    assert np.abs(scores).max() < 6.5
    # Neighbouring cells share their features, seeds do not: the mean over seeds shrinks as it should.
    assert 0.5 < scores.std() < 1.2
    assert abs(scores.mean()) < 0.2


def test_a_map_of_a_million_counts_ranks_cells_as_the_exact_one_does():
    draw = np.random.default_rng(1)
    y, x = np.mgrid[0:64, 0:64] / 64
    density = np.full((64, 64), 0.02)
    for weight in (1.0, 0.6, 0.4, 0.3, 0.2, 0.15):
        cx, cy, scale = draw.uniform(0.15, 0.85), draw.uniform(0.15, 0.85), draw.uniform(0.03, 0.12)
        density += weight * np.exp(-np.hypot(x - cx, y - cy) / scale)
    density *= draw.lognormal(0.0, 0.8, density.shape)
    angle, offset = draw.uniform(0, np.pi), draw.uniform(-0.2, 0.2)
    shore = (x - 0.5) * np.cos(angle) + (y - 0.5) * np.sin(angle) - offset + 0.05 * np.sin(9 * (x - y))
    density[np.abs(shore) < 0.05] = 0.0  # water
    grid = mv.Grid(mv.Region.without_georeference(64, 64), 64, 64)
    counts = mv.Counts(
        np.random.default_rng(1).multinomial(1_000_000, (density / density.sum()).ravel()), grid
    )
    exact = FederatedKde(bandwidth_m=1.5).release(counts).values
    made = FourierKde(bandwidth_m=1.5, bands=1).release(counts, rng=1).values
    assert stats.spearmanr(exact, made).statistic > 0.9
    assert made.sum() == pytest.approx(exact.sum(), rel=0.05)
    other = FourierKde(bandwidth_m=1.5, bands=1).release(
        counts.__class__(counts.values[::-1].copy(), grid), rng=1
    )
    assert stats.spearmanr(exact, other.values).statistic < 0.5


def test_smoothing_from_the_reports_lowers_the_error():
    grid = mv.Grid(mv.Region.without_georeference(64, 64), 64, 64)
    x, y = np.meshgrid(np.arange(64) - 20, np.arange(64) - 40)
    density = np.exp(-(x**2 + y**2) / (2 * 9.0**2)) + 0.02
    counts = mv.Counts(np.random.default_rng(1).multinomial(30_000, (density / density.sum()).ravel()), grid)
    truth = 30_000 * (density / density.sum()).ravel()
    plain, smooth = (
        FourierKde(bandwidth_m=1.0, bands=1, smoothing=how).collect(
            counts, grid, mv.Randomness(3), lambda s, d: None
        )
        for how in ("none", "reports")
    )
    off = [np.sqrt(np.mean(np.square(made.users - truth))) for made in (plain, smooth)]
    assert off[1] < off[0] / 4
    assert any("as the reports alone say" in note for note in smooth.notes)


def test_a_query_outside_the_policy_is_refused_and_nothing_released():
    with pytest.raises(
        PromiseError, match=r"bandwidth must be at most 18.* for 3 bands .*Lemma 3\), got 400"
    ):
        FourierKde(bandwidth_m=400).release(CITY, GRID)
    FourierKde(bandwidth_m=400, bands=1).release(CITY, GRID, rng=1)
    small = mv.Grid(mv.Region.from_bbox(-73.99, 40.75, -73.985, 40.755), 8, 8)
    with pytest.raises(PromiseError, match="must be at least 1000 m, got"):
        FourierKde(bandwidth_m=2).release(CITY, small)


def test_a_refusal_is_the_same_for_any_table():
    said = set()
    for points in (CITY, mv.Points.from_arrays(["a"], [-73.98], [40.71])):
        with pytest.raises(PromiseError) as refused:
            FourierKde(bandwidth_m=400).release(points, GRID)
        said.add(str(refused.value))
    assert len(said) == 1


def test_where_the_bandwidth_came_from_is_said():
    given = FourierKde(bandwidth_m=100).release(CITY, GRID, rng=1)
    public = FourierKde(neighbours=5, bands=1).release(CITY, GRID, rng=1)
    read = FourierKde(neighbours=50, bandwidth_rule="neighbours").release(CITY, GRID, rng=1)
    assert given.notes[0] == "bandwidth 100 m as given"
    assert "no place was read for it" in public.notes[0]
    assert "a tenth of the places were read in the clear" in read.notes[0]
    assert Assumes.BANDWIDTH_READ() in read.guarantee.assumptions
    assert Assumes.BANDWIDTH_READ() not in (*given.guarantee.assumptions, *public.guarantee.assumptions)


def test_a_rules_bandwidth_is_held_to_lemma_3s():
    wide = FourierKde(neighbours=3000)
    heat = wide.release(CITY, GRID, rng=1)
    assert "held to Lemma 3's largest" in heat.notes[0]
    moved = FourierKde(neighbours=3, bandwidth_rule="neighbours")
    places = all_places(CITY, GRID)
    assert moved.release(CITY, GRID, rng=1).notes[0].startswith("bandwidth ")
    assert places.shape[1] > 3000


def test_the_guarantee_gives_the_posterior_in_metres_for_two_servers(tmp_path):
    np.savez(
        tmp_path / "people.npz",
        values=np.arange(1200).reshape(40, 30),
        **dict(zip(SIDES, REGION.bbox, strict=True)),
    )
    mechanism = FourierKde(bandwidth_m=100, least_signal=0, population=str(tmp_path / "people.npz"))
    heat = mechanism.release(CITY, GRID, rng=1)
    quantities = [(each.quantity, each.unit) for each in heat.guarantee.measured]
    assert quantities.count(("posterior error", "m")) == 2
    assert sum(name == "places left" for name, _ in quantities) == 2
    assert "WARNING" not in " ".join(heat.notes)
    assert "places left" in heat.guarantee.in_words()
    assert "not measured" not in " ".join(heat.notes)
    by = {(each.quantity, "external" in each.against): each.value for each in heat.guarantee.measured}
    assert by["places left", True] < by["places left", False]


def test_the_map_is_no_prior_of_the_server(tmp_path):
    """A noisy map for a prior claims more than is hidden from a server that knows where people are."""
    city = mv.synthetic.city(users=1000, seed=1, region=REGION)
    drawn = FourierKde(least_signal=0).release(city, GRID, rng=1)
    where = map_points(GRID)
    query = FourierKde().public_query(GRID, 1000)
    even = prior_cells(GRID, where)
    as_counts = mv.Counts(np.rint(1000 * drawn.values).astype(np.int64), GRID)
    by_map = hiding(query, population_cells(even, where, as_counts, floor=0.01))
    true = hiding(query, scene(GRID, all_places(city, GRID)).known)
    assert by_map.error_m > 1.15 * true.error_m  # which the guarantee printed
    said = {each.against for each in drawn.guarantee.measured}
    assert said == {"a server that knows the region only"}
    assert "not measured: a server that knows where people are" in drawn.notes[-2]
    drawn.save(tmp_path / "map.parquet")
    with pytest.raises(InputError, match="got a map by fourier-kde"):
        FourierKde(population=str(tmp_path / "map.parquet")).release(city, GRID, rng=1)
    mv.release(city, GRID, epsilon=1, account=None, rng=1).save(tmp_path / "private.parquet")
    heat = FourierKde(population=str(tmp_path / "private.parquet")).release(city, GRID, rng=1)
    found = {each.quantity: each.value for each in heat.guarantee.measured if "external" in each.against}
    assert found["posterior error"] < by_map.error_m


def test_a_population_that_cannot_be_used_is_refused_before_any_device_answers(tmp_path, monkeypatch):
    sides = dict(zip(SIDES, REGION.bbox, strict=True))
    np.savez(tmp_path / "nobody.npz", values=np.zeros((4, 4), dtype=np.int64), **sides)
    # A device that answers would fail.
    monkeypatch.setattr("mapveil.random_features.fourier_kde.client_reports", None)
    for name, expected in (("missing.npz", "missing.npz"), ("nobody.npz", "holds nobody in this region")):
        mechanism = FourierKde(population=str(tmp_path / name))
        with pytest.raises(InputError, match=expected):
            mechanism.release(CITY, GRID, rng=1)
        with pytest.raises(InputError, match=expected):
            mechanism.public_query(GRID, 1000)
        assert name not in f"{mechanism} {mechanism.parameters()}"


def test_few_places_are_warned_of_and_features_said_plainly():
    heat = FourierKde(bandwidth_m=180, features=6).release(CITY, GRID, rng=1)
    least = min(each.value for each in heat.guarantee.measured if each.quantity == "places left")
    assert least < FEW_PLACES
    assert heat.notes[0].startswith(
        "WARNING: a device that answered is as good as found: 1 place left, error 0 m"
    )
    assert heat.guarantee.disclosure == Reveals.PHASES(features=6, jitter_m=0.0)
    assert "Hidden: nothing: three phases agree at one point" in heat.guarantee.in_words()


def test_one_report_per_device_however_many_rows():
    rows = mv.Points.from_arrays(["a"] * 500 + ["b"], np.full(501, -73.97), np.full(501, 40.76))
    once = mv.Points.from_arrays(["a", "b"], [-73.97] * 2, [40.76] * 2)
    many, few = (
        FourierKde(bandwidth_m=100, least_signal=0).release(p, GRID, rng=4).values for p in (rows, once)
    )
    np.testing.assert_allclose(many, few, atol=1e-9)


def test_places_of_a_device_are_averaged_or_the_most_visited_taken():
    user, lon, lat = ["a"] * 3, [-73.97, -73.97, -73.93], [40.76, 40.76, 40.72]
    points = mv.Points.from_arrays(user * 1, lon, lat)
    only = mv.Points.from_arrays(["a"], [-73.97], [40.76])
    most = FourierKde(bandwidth_m=100, places="most-visited", least_signal=0)
    np.testing.assert_allclose(
        most.release(points, GRID, rng=2).values, most.release(only, GRID, rng=2).values, atol=1e-9
    )
    mean = FourierKde(bandwidth_m=100, places="mean", least_signal=0)
    assert not np.allclose(mean.release(points, GRID, rng=2).values, mean.release(only, GRID, rng=2).values)


def test_an_offset_blurs_by_as_much():
    grid = mv.Grid(REGION, rows=300, columns=200)
    values = np.zeros(grid.size, dtype=np.int64)
    values[150 * 200 + 100] = 200_000
    counts = mv.Counts(values, grid)
    sharp, blurred = (
        FourierKde(bandwidth_m=150, jitter_m=jitter).collect(
            counts, grid, mv.Randomness(1), lambda s, d: None
        )
        for jitter in (0.0, 200.0)
    )
    wanted = 150**2 / (150**2 + 200**2)
    assert blurred.users.max() / sharp.users.max() == pytest.approx(wanted, rel=0.05)
    assert "no finer than 150 m" in FourierKde(jitter_m=150).guarantee().in_words()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": 0}, "features must be"),
        ({"features": 1.0}, "features"),
        ({"features": True}, "features"),
        ({"bands": 0}, "bands"),
        ({"neighbours": 0}, "neighbours"),
        ({"kernel": "box"}, "kernel must be one of gaussian"),
        ({"bandwidth_rule": "silverman"}, "public or neighbours"),
        ({"smoothing": "some"}, "smoothing"),
        ({"smoothing": "reports", "kernel": "cauchy"}, "smoothing"),
        ({"places": "all"}, "mean or most-visited"),
        ({"jitter_m": -1.0}, "jitter_m"),
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": 75.0}, "gamma must be above 0, at most 50"),
    ],
)
def test_senseless_parameters_are_refused(change, message):
    with pytest.raises(ParameterError, match=message):
        FourierKde(**{"bandwidth_m": 100.0, **change})


def test_smoothing_needs_an_even_grid():
    with pytest.raises(InputError, match="needs an even grid"):
        FourierKde(bandwidth_m=100, smoothing="reports").release(CITY, mv.Hexagons(REGION, resolution=7))


def test_memory_follows_the_chunk_not_the_users(monkeypatch):
    sizes = []
    from mapveil.random_features import fourier_kde as module

    real = module.client_reports

    def watched(units, visits, query):
        sizes.append(visits.devices)
        return real(units, visits, query)

    monkeypatch.setattr(module, "client_reports", watched)
    counts = mv.Counts(np.full(GRID.size, 5, dtype=np.int64), GRID)
    monkeypatch.setattr(
        module,
        "visits_of",
        lambda points, tiling, places: visits_of(points, tiling, places, chunk=500),
    )
    FourierKde(bandwidth_m=100).release(counts, rng=1)
    assert max(sizes) == 500
    assert sum(sizes) == 6000
    assert dataclasses.asdict(FourierKde(bandwidth_m=100))["features"] == 1


def test_a_map_says_what_chance_puts_anywhere(tmp_path):
    made = FourierKde(bandwidth_m=150, least_signal=0).release(COUNTS, rng=1)
    said = next(note for note in made.notes if "standard error" in note)
    assert said.endswith(f"by chance hot spots of up to about {made.noise_floor:.3g}")
    kernel = 2 * math.pi * 150**2
    patches = map_points(GRID).area.sum() / kernel
    error = 1e6 * math.sqrt(COUNTS.values.sum() / 2) / kernel
    assert made.noise_floor == pytest.approx(error * math.sqrt(2 * math.log(patches)))
    made.save(tmp_path / "features.parquet")
    assert read_map(tmp_path / "features.parquet").noise_floor == made.noise_floor
    smooth = FourierKde(bandwidth_m=150, smoothing="reports").release(COUNTS, rng=1)
    assert smooth.noise_floor == 0
    assert "noise_floor_per_km2" not in smooth.metadata()


@pytest.mark.parametrize("options", [{}, {"bandwidth_m": 150.0, "features": 2}, {"smoothing": "reports"}])
def test_stored_reports_give_the_map_that_the_devices_would(options: dict[str, object]) -> None:
    """The server half alone, from encoded reports in parts, is what a whole release makes of the same features."""
    tiling, mechanism = GRID, FourierKde(**options, least_signal=0)
    people = mv.Counts(np.random.default_rng(5).poisson(0.3, GRID.size), GRID)
    released = mechanism.release(people, tiling, rng=3)
    # The stream of the one chunk of devices of that release.
    chunk = Chunk(next(visits_of(people, tiling)), Randomness(3).child("devices").child("chunk 0"), 1)
    users = chunk.visits.devices
    query = mechanism.public_query(tiling, users)
    units = unit_frequencies(users, mechanism.features, query.law, 2, chunk.rng)
    messages = write_reports(client_reports(units, chunk.visits, query), query)
    parts = (read_reports(messages[start : start + 64], query) for start in range(0, users, 64))
    made = mechanism.of_reports(parts, tiling, users)
    again = mechanism.map_of(made, tiling, seeded=True)
    assert np.allclose(again.values, released.values, atol=1e-6)
    assert again.guarantee.to_dict().keys() == released.guarantee.to_dict().keys()
    assert again.parameters == released.parameters
    assert again.notes == released.notes
    with pytest.raises(InputError, match="needs at least one report"):
        mechanism.of_reports(iter(()), tiling, users)


def test_a_rule_that_reads_places_has_no_public_query() -> None:
    city = mv.synthetic.city(users=50, seed=2)
    with pytest.raises(ParameterError, match="public"):
        FourierKde(bandwidth_rule="neighbours").public_query(mv.Grid(city.region, 8, 8), 50)
