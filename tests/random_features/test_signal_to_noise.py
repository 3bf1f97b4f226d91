"""The predicted signal to noise: public figures only, right about which maps are chance, and chance is not drawn."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mapveil as mv
from mapveil.mechanisms.mechanism import AnyMechanism
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.random_features.federated_kde import FederatedKde
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.random_features.geo_indistinguishability import PlanarLaplace
from mapveil.random_features.map_points import map_points
from mapveil.random_features.projection_mechanism import non_negative
from mapveil.random_features.signal_to_noise import users_needed
from mapveil.random_features.visits import all_places
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.random_features.feature_policy import LEAST_SIGNAL

DATA = Path(__file__).parents[2].parent / "shared" / "data"
NEW_YORK = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
GRID = mv.Grid(NEW_YORK, rows=64, columns=64)
SETS = {
    "New York": ("gowalla_nyc_checkins", NEW_YORK, (130, 500, 1000, 2000, 4000, 5898)),
    "Tokyo": ("foursquare_tokyo_sequences", mv.Region.from_bbox(139.48, 35.52, 139.90, 35.86), (130, 1000, 2173)),
    "Los Angeles": (
        "brightkite_us_last_checkin_per_user",
        mv.Region.from_bbox(-118.42099, 34.00617, -118.21599, 34.11246),
        (130, 545),
    ),
    "Austin": (
        "gowalla_us_user_venue_counts",
        mv.Region.from_bbox(-98.0, 30.1, -97.5, 30.55),
        (130, 1000, 4000),
    ),
}  # fmt: skip
SEEDS = 3


def silently(step: str, done: float) -> None:
    """Progress that nobody follows."""


def moved(one: FloatArray, other: FloatArray) -> float:
    """The fraction of users that is elsewhere."""
    return float(np.abs(one / one.sum() - other / other.sum()).sum() / 2)


def people(places: FloatArray, tiling: mv.Grid, users: int, seed: int) -> mv.Points:
    at = np.random.default_rng(seed).choice(places.shape[1], users, replace=False)
    lon, lat = map_points(tiling).projection.unproject(*places[:, at])
    return mv.Points.from_arrays([str(each) for each in range(users)], lon, lat)


def others(bandwidth_m: float) -> tuple[AnyMechanism, ...]:
    """Other kinds of trust on the same people: planar Laplace at a factor of 4 in 500 m, and secure sums."""
    return (
        PlanarLaplace(radius_m=500, bandwidth_m=bandwidth_m),
        Multiscale(epsilon=1, trust=mv.trust.SecureAggregation()),
    )


def test_on_public_data_the_floor_parts_maps_from_chance(pytestconfig: pytest.Config) -> None:
    """The table of docs/explanation/random-features.md (pytest -s): misplaced fractions, mean of three samples."""
    if not DATA.is_dir():
        pytest.skip(f"the public data sets are not at {DATA}")
    shown = (
        pytestconfig.getoption("capture") == "no"
    )  # only then does the table want the other kinds of trust
    above, below = [], []
    for name, (file, region, sizes) in SETS.items():
        tiling = mv.Grid(region, rows=64, columns=64)
        places = all_places(mv.read_points(DATA / f"{file}.parquet"), tiling)
        for users in sizes:
            mechanism, found = FourierKde(), []
            signal, _ = mechanism.predicted_signal(tiling, users)
            h = mechanism.public_query(tiling, users).bandwidth[0]
            for seed in range(SEEDS):
                sample = people(places, tiling, users, seed)
                exact = (
                    FederatedKde(bandwidth_m=h).collect(sample, tiling, mv.Randomness(seed), silently).users
                )
                made = mechanism.collect(sample, tiling, mv.Randomness(seed), silently).users
                found.append(
                    [
                        moved(non_negative(made, tiling, "keep-total")[0], exact),
                        moved(np.ones(exact.size), exact),
                        *(
                            moved(other.release(sample, tiling, rng=seed).values, exact)
                            for other in (others(h) if shown else ())
                        ),
                    ]
                )
            off = np.mean(found, axis=0)
            map_off, uniform_off = off[:2]
            row = " | ".join(f"{each:.2f}" for each in off)
            sys.stdout.write(f"| {name} | {users:,} | {h:.0f} | {signal:.3f} | {row} |\n")
            (above if signal >= LEAST_SIGNAL else below).append(map_off < uniform_off)
    assert all(above)
    assert (len(above), len(below), sum(below)) == (4, 10, 2)


@pytest.mark.parametrize("users", [130, 1000])
def test_chance_is_not_drawn(users: int) -> None:
    """Of 130 people the picture showed sixty hot spots, and its map was farther from the truth than the uniform one."""
    city = mv.synthetic.city(users=users, seed=1, region=NEW_YORK)
    heat = FourierKde().release(city, GRID, rng=1)
    assert np.ptp(heat.per_km2()) < 1e-6 * heat.per_km2().max()
    assert heat.values.sum() == pytest.approx(users)
    assert heat.noise_floor == 0
    warned = [note for note in heat.notes if "the map is uniform" in note]
    assert len(warned) == 1
    assert warned[0].startswith("WARNING")
    drawn = FourierKde(least_signal=0).release(city, GRID, rng=1)
    truth = FederatedKde(bandwidth_m=drawn.parameters["bandwidth_m"]).release(city, GRID).values
    assert moved(heat.values, truth) < moved(drawn.values, truth)


def test_the_prediction_reads_no_place_and_follows_its_formula() -> None:
    plain = FourierKde(bandwidth_m=150)
    once, said = plain.predicted_signal(GRID, 1000)
    assert plain.predicted_signal(GRID, 4000)[0] == pytest.approx(2 * once)
    for change, factor in (({"features": 4}, 2), ({"bandwidth_m": 75}, 1 / 4), ({"jitter_m": 150}, 12 / 25)):
        assert replace(plain, **change).predicted_signal(GRID, 1000)[0] == pytest.approx(factor * once)
    needed = users_needed(plain.public_query(GRID, 1), map_points(GRID).area.sum(), LEAST_SIGNAL)
    assert needed is not None
    assert f"about {needed:,} are needed" in said
    for jitter_m in (1e9, 1e308):
        blurred = replace(plain, jitter_m=jitter_m).predicted_signal(GRID, 1000)
        assert blurred[0] < 1e-9
        assert "no number is enough" in blurred[1]
    assert plain.predicted_signal(GRID, needed)[0] == pytest.approx(LEAST_SIGNAL, rel=1e-3)
    with pytest.raises(ParameterError, match="least_signal"):
        FourierKde(least_signal=-1)


def test_above_the_floor_no_hot_spot_of_chance_reaches_the_noise_floor() -> None:
    """People spread evenly: whatever stands out is chance."""
    even = mv.Counts(np.full(GRID.size, 5, dtype=np.int64), GRID)
    heat = FourierKde(bandwidth_m=180).release(even, rng=1)
    assert heat.noise_floor > 0
    mean = heat.values.sum() / (map_points(GRID).area.sum() / 1e6)
    assert (heat.per_km2() - mean).max() < 1.3 * heat.noise_floor
