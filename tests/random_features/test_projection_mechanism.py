"""What the wing's mechanisms share: maps without negative users, metres that are metres, contracts."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import mapveil as mv
from mapveil.formats.read_map import read_map
from mapveil.privacy.guarantee import Guarantee
from mapveil.random_features.federated_kde import FederatedKde
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.random_features.geo_indistinguishability import PlanarLaplace
from mapveil.random_features.projection_mechanism import check_bandwidth, non_negative
from mapveil.random_features.zero_features import ZeroFeatures
from mapveil_client.errors import InputError, ParameterError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILINGS = {
    "quadtree": mv.Quadtree(REGION, depth=5),
    "oblong grid": mv.Grid(REGION, columns=23, rows=9),
    "one row": mv.Grid(REGION, columns=7, rows=1),
    "hexagons": mv.Hexagons(REGION, resolution=7),
    "tiles": mv.WebMercatorTiles(REGION, zoom=13),
    "places": mv.Places(lon=np.linspace(-74.0, -73.92, 11), lat=np.linspace(40.70, 40.82, 11), region=REGION),
}
MECHANISMS = {
    "fourier-kde": FourierKde(bandwidth_m=150, least_signal=0),
    "fourier-kde, three features": FourierKde(
        bandwidth_m=150, features=3, kernel="matern-3/2", least_signal=0
    ),
    "federated-kde": FederatedKde(bandwidth_m=150),
    "planar-laplace": PlanarLaplace(bandwidth_m=150),
    "zero-features": ZeroFeatures(),
}
EVERY = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS.keys())
TILING = pytest.mark.parametrize("tiling", TILINGS.values(), ids=TILINGS.keys())


@pytest.fixture(autouse=True)
def _coarse_prior(monkeypatch):
    """A prior of few cells: how well a device is hidden has its own tests."""
    monkeypatch.setattr("mapveil.random_features.map_points._PRIOR_SIDE", 24)


def some_points(users=150, seed=0):
    rng = np.random.default_rng(seed)
    user = rng.integers(0, users, 4 * users)
    return mv.Points.from_arrays(
        user, rng.uniform(-74.05, -73.9, user.size), rng.uniform(40.7, 40.85, user.size)
    )


@EVERY
@TILING
def test_release_is_a_finite_map_that_says_it_is_not_dp(mechanism, tiling):
    heat = mechanism.release(some_points(), tiling, rng=1)
    assert heat.values.shape == (tiling.size,)
    assert np.isfinite(heat.values).all()
    assert heat.values.min() >= 0
    assert heat.method == mechanism.name
    assert heat.guarantee.model == "random-features"
    assert heat.guarantee.epsilon is None
    assert heat.guarantee.seeded
    for text in (repr(heat.guarantee), heat.guarantee.in_words()):
        assert "NOT differential privacy" in text
        assert "not for release" in text.lower()
    record = json.loads(heat.metadata_json())
    assert record["guarantee"]["epsilon"] is None
    assert Guarantee.from_dict(record["guarantee"]) == heat.guarantee


@EVERY
def test_a_seed_repeats_and_its_absence_does_not(mechanism):
    points, tiling = some_points(), TILINGS["quadtree"]
    first, again = (mechanism.release(points, tiling, rng=5).values for _ in range(2))
    np.testing.assert_array_equal(first, again)
    fresh = [mechanism.release(points, tiling) for _ in range(2)]
    same = np.array_equal(fresh[0].values, fresh[1].values)
    assert same == (mechanism.name in ("federated-kde", "zero-features"))
    assert not fresh[0].guarantee.seeded


@EVERY
def test_is_frozen_described_and_json_ready(mechanism):
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.name = "other"
    assert len(mechanism.summary) > 10
    assert "2023" in mechanism.source
    assert type(mechanism)(**json.loads(json.dumps(mechanism.parameters()))) == mechanism
    assert "NOT differential privacy" in mechanism.guarantee().in_words()


@EVERY
def test_tells_its_progress_between_zero_and_one(mechanism):
    told = []
    mechanism.release(
        some_points(), TILINGS["quadtree"], rng=6, progress=lambda step, done: told.append((step, done))
    )
    assert all(0 <= done <= 1 and step for step, done in told)
    assert told[-1][1] == 1


@EVERY
def test_every_export_says_it_is_not_dp(mechanism, tmp_path):
    heat = mechanism.release(some_points(), TILINGS["oblong grid"], rng=1)
    for suffix in (".tif", ".parquet", ".geojson", ".png", ".html"):
        heat.save(tmp_path / f"map{suffix}")
        assert (tmp_path / f"map{suffix}").stat().st_size > 500
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert "Not differential privacy" in page
    assert "ε" not in page.split("<script")[0]
    back = read_map(tmp_path / "map.tif")
    assert back.guarantee == heat.guarantee
    assert "epsilon" not in heat.to_xarray().attrs


@EVERY
def test_nobody_inside_is_an_empty_map_and_bad_rows_are_errors(mechanism):
    none = mechanism.release(mv.Points.from_arrays([1], [10.0], [50.0]), TILINGS["quadtree"])
    assert none.values.tolist() == [0.0] * TILINGS["quadtree"].size
    assert "nobody reported: the map is empty" in none.notes
    with pytest.raises(InputError, match="row 2"):
        mechanism.release(mv.Points.from_arrays([1, 2], [-73.95, np.nan], [40.7, 40.7]), TILINGS["quadtree"])
    with pytest.raises(InputError, match="needs a tiling"):
        mechanism.release(some_points())


@pytest.mark.parametrize("kind", [FourierKde, FederatedKde, PlanarLaplace])
@pytest.mark.parametrize("bandwidth", [0, -150.0, np.nan, np.inf, "150", True])
def test_a_senseless_bandwidth_is_refused(kind, bandwidth):
    with pytest.raises(ParameterError, match="bandwidth_m"):
        kind(bandwidth_m=bandwidth)


@pytest.mark.parametrize("kind", [FourierKde, FederatedKde, PlanarLaplace])
def test_degrees_given_for_metres_are_suspected(kind):
    with pytest.raises(InputError, match=r"at least 1 m, got 0\.007 \(if these are degrees, give 777\)"):
        kind(bandwidth_m=0.007).release(some_points(), TILINGS["quadtree"])
    tiny = mv.Region.from_bounds_in("EPSG:32618", -74.03, 40.69, -73.90, 40.83)
    with pytest.raises(InputError, match="degrees in a CRS of metres"):
        check_bandwidth(150.0, mv.Grid(tiny, 4, 4))
    check_bandwidth(0.5, mv.Grid(mv.Region.without_georeference(100, 100), 4, 4))  # cells


users = hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-100, 100))


@given(users)
def test_the_total_is_kept_or_the_rest_is_untouched(estimate):
    tiling = mv.Grid(mv.Region.without_georeference(60, 1), rows=1, columns=estimate.size)
    kept, notes = non_negative(estimate, tiling, "keep-total")
    clip, _ = non_negative(estimate, tiling, "clip")
    assert kept.min() >= 0
    assert clip.min() >= 0
    np.testing.assert_array_equal(clip, np.maximum(estimate, 0))
    assert bool(notes) == bool((estimate < 0).any())
    if estimate.sum() > 1e-6:
        assert kept.sum() == pytest.approx(estimate.sum(), rel=1e-9, abs=1e-9)
        # The nearest such map: it is the estimate lowered by one level where it is not 0.
        lowered = (estimate - kept)[kept > 0]
        assert np.ptp(lowered) < 1e-9
        assert (estimate[kept == 0] <= lowered[0] + 1e-9).all()
    else:
        np.testing.assert_array_equal(kept, clip)


def test_cells_outside_a_polygon_hold_nobody():
    ring = [[-74.03, 40.69], [-73.90, 40.69], [-74.03, 40.83], [-74.03, 40.69]]
    region = mv.Region.from_polygon({"type": "Polygon", "coordinates": [ring]})
    tiling = mv.Grid(region, 20, 20)
    for mechanism in MECHANISMS.values():
        if isinstance(mechanism, FourierKde):
            mechanism = dataclasses.replace(mechanism, bandwidth_m=40.0)
        heat = mechanism.release(some_points(), tiling, rng=1)
        assert not heat.values[~tiling.inside()].any()
        assert heat.values[tiling.inside()].any()
