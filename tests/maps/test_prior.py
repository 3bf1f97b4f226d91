"""A prior on the cells of a map: mass is kept, what it does not cover is even, what cannot be a prior is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil.formats.read_prior import read_prior
from mapveil.maps.prior import Prior
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.privacy.claim import Assumes
from mapveil_client.errors import InputError, MapveilError, ParameterError

BOX = (-74.1, 40.6, -73.9, 40.8)
CITY = mv.Region.from_bbox(*BOX)


def a_raster(path: Path, values: np.ndarray, box: tuple[float, ...] = BOX, **more: Any) -> Path:
    west, south, east, north = box
    np.savez(path, values=values, west=west, south=south, east=east, north=north, **more)
    return path


def on_degrees(values: np.ndarray, box: tuple[float, ...] = BOX) -> Prior:
    """A prior on a raster whose cells are equal in degrees."""
    grid = mv.Grid(mv.Region.from_bounds_in("EPSG:4326", *box), *values.shape)
    return Prior(name="p", digest="", values=values.reshape(-1).astype(float), tiling=grid)


def test_a_cell_has_the_mass_of_the_prior_inside_it() -> None:
    values = np.arange(1.0, 65.0).reshape(8, 8)
    found = on_degrees(values).on(mv.Quadtree(CITY, depth=2))
    assert found.covered == 1
    tree = mv.Quadtree(CITY, depth=2).lattice()
    blocks = values.reshape(4, 2, 4, 2).sum(axis=(1, 3)) / values.sum()
    # Rows of equal degrees and of equal areas differ by parts of a thousand in a city.
    np.testing.assert_allclose(found.fractions, blocks[tree.row, tree.col], rtol=0.01)


def test_finer_cells_share_their_block_evenly() -> None:
    values = np.array([[1.0, 3.0], [0.0, 4.0]])
    fine = mv.Quadtree(CITY, depth=5)
    found = on_degrees(values).on(fine).fractions
    lattice = fine.lattice()
    top_right = found[(lattice.row < 15) & (lattice.col > 16)]
    assert np.ptp(top_right) < 0.01 * top_right.mean()
    assert found.sum() == pytest.approx(1)
    assert found[(lattice.row > 17) & (lattice.col < 15)].max() == 0


@pytest.mark.parametrize("cells", ["quadtree:4", "grid:7x13", "h3:7"])
def test_any_cells_and_any_reference_system_will_do(cells: str) -> None:
    from mapveil.geo.parse_tiling import parse_tiling

    utm = mv.Region.from_bounds_in("EPSG:32618", 575_000, 4_490_000, 600_000, 4_520_000)
    row, col = np.mgrid[:30, :25]
    bell = np.exp(-((row - 15) ** 2 + (col - 12) ** 2) / 60)
    prior = Prior(name="p", digest="", values=bell.reshape(-1), tiling=mv.Grid(utm, rows=30, columns=25))
    found = prior.on(parse_tiling(cells, CITY))
    assert found.fractions.sum() == pytest.approx(1)
    assert found.fractions.min() >= 0
    lon, lat = parse_tiling(cells, CITY).centres()
    # The middle of the bell is at (575 + 12.5) km, (4,520 - 15.5) km: -73.96, 40.69.
    heavy = found.fractions.argmax()
    assert abs(lon[heavy] + 73.965) < 0.03
    assert abs(lat[heavy] - 40.69) < 0.03


def test_what_it_does_not_cover_is_even() -> None:
    west = (BOX[0], BOX[1], (BOX[0] + BOX[2]) / 2, BOX[3])
    cells = mv.Grid(CITY, rows=2, columns=2)
    prior = on_degrees(np.array([[3.0], [1.0]]), west)
    found = prior.on(cells)
    assert found.covered == pytest.approx(0.5, abs=0.01)
    np.testing.assert_allclose(found.fractions, [0.375, 0.25, 0.125, 0.25], atol=0.01)
    assert "covers 50 %" in prior.note(cells)


def test_a_release_is_a_prior_of_its_own_account(tmp_path: Path) -> None:
    city = mv.synthetic.city(users=300, seed=1)
    assert city.region is not None
    tiling = mv.Quadtree(city.region, depth=3)
    account = mv.Account.open("city", budget=3, ledger=tmp_path / "ledger.sqlite")
    before = mv.release(city, tiling, epsilon=1, account=account)
    before.save(tmp_path / "before.parquet")
    after = mv.release(city, tiling, epsilon=1, account=account, prior=tmp_path / "before.parquet")
    said = after.parameters["prior"]
    assert said["basis"] == "earlier release"
    assert said["account"] == "city"
    assert before.guarantee.account is not None
    assert said["entries"] == list(before.guarantee.account.entries)
    assert said["sha256"] == hashlib.sha256((tmp_path / "before.parquet").read_bytes()).hexdigest()
    assert (
        sum(each.epsilon for each in after.guarantee.shares)
        == after.guarantee.epsilon
        == before.guarantee.epsilon
    )


def test_name_licence_and_hash_of_a_raster_are_recorded(tmp_path: Path) -> None:
    path = a_raster(tmp_path / "census.npz", np.eye(4), licence="CC BY 4.0")
    city = mv.synthetic.city(users=200, seed=2, region=CITY)
    made = mv.release(city, mv.Quadtree(CITY, depth=3), epsilon=1, prior=path, account=None, rng=1)
    made.save(tmp_path / "made.geojson")
    again = mv.read_map(tmp_path / "made.geojson")
    assert again.parameters["prior"] == {
        "name": "census.npz",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "licence": "CC BY 4.0",
        "basis": "stated to be public",
    }
    (note,) = [each for each in again.notes if "census.npz" in each]
    assert "licence CC BY 4.0, stated to be public" in note


def test_a_file_without_a_licence_says_so(tmp_path: Path) -> None:
    prior = read_prior(a_raster(tmp_path / "census.npz", np.eye(4)))
    assert prior.licence is None
    assert "no licence stated" in prior.note(mv.Quadtree(CITY, depth=2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (-np.eye(3), "expected an amount of at least 0"),
        (np.zeros((3, 3)), "all cells are 0; expected a prior with people"),
        (np.full((3, 3), np.nan), "no cell has data"),
        (np.full((3, 3), np.inf), "expected an amount of at least 0"),
    ],
)
def test_values_that_are_no_prior_are_refused(tmp_path: Path, values: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_prior(a_raster(tmp_path / "bad.npz", values))


def test_tables_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("user,lon,lat\n1,-74,40.7\n")
    with pytest.raises(InputError, match="a table of locations is not public"):
        read_prior(tmp_path / "people.csv")
    with pytest.raises(InputError, match="no such file; expected a prior"):
        read_prior(tmp_path / "none.tif")


def refused_before_the_charge(tmp_path: Path, match: str, error: type[MapveilError], **given: Any) -> None:
    city = mv.synthetic.city(users=50, seed=3, region=CITY)
    account = mv.Account.open("city", budget=3, ledger=tmp_path / "ledger.sqlite")
    with pytest.raises(error, match=match):
        mv.release(city, epsilon=1, account=account, **{"tiling": mv.Quadtree(CITY, depth=3), **given})
    assert account.spent == 0


def test_a_prior_of_elsewhere_is_refused_before_the_charge(tmp_path: Path) -> None:
    elsewhere = a_raster(tmp_path / "paris.npz", np.eye(3), (2.2, 48.8, 2.5, 48.95))
    refused_before_the_charge(tmp_path, "prior paris.npz must cover cells", ParameterError, prior=elsewhere)
    refused_before_the_charge(
        tmp_path,
        "prior paris.npz must cover cells",
        ParameterError,
        prior=elsewhere,
        tiling=None,
        region=CITY,
    )


def test_a_prior_without_a_place_is_refused_before_the_charge(tmp_path: Path) -> None:
    np.save(tmp_path / "nowhere.npy", np.eye(3))
    refused_before_the_charge(
        tmp_path, "states no reference system", ParameterError, prior=tmp_path / "nowhere.npy"
    )


def test_a_seeded_map_is_no_prior_of_a_release(tmp_path: Path) -> None:
    city = mv.synthetic.city(users=50, seed=3, region=CITY)
    seeded = mv.release(city, mv.Quadtree(CITY, depth=3), epsilon=1, account=None, rng=1)
    refused_before_the_charge(tmp_path, "a release without a seed", ParameterError, prior=seeded)


def test_a_map_without_differential_privacy_is_no_prior(tmp_path: Path) -> None:
    city = mv.synthetic.city(users=50, seed=3, region=CITY)
    features = mv.release(city, mv.Quadtree(CITY, depth=3), trust="random-features", rng=1)
    features.save(tmp_path / "features.parquet")
    for prior in (features, tmp_path / "features.parquet"):
        refused_before_the_charge(tmp_path, "not differentially private", InputError, prior=prior)


def test_the_guarantee_assumes_that_the_prior_is_public() -> None:
    city = mv.synthetic.city(users=50, seed=3, region=CITY)
    for given in (None, on_degrees(np.eye(3))):
        made = mv.release(city, mv.Quadtree(CITY, depth=3), epsilon=1, prior=given, account=None, rng=1)
        assert (Assumes.PRIOR_PUBLIC() in made.guarantee.assumptions) == (given is not None)
        assert ("the prior is public" in made.guarantee.in_words()) == (given is not None)


def test_methods_without_a_prior_name_those_with_one(tmp_path: Path) -> None:
    prior = on_degrees(np.eye(3))
    refused_before_the_charge(
        tmp_path, r"laplace takes no prior; the methods that do: multiscale", ParameterError, method="laplace",
        prior=prior,
    )  # fmt: skip


def test_the_people_themselves_are_no_prior(tmp_path: Path) -> None:
    path = a_raster(tmp_path / "people.npz", np.eye(4))
    (tmp_path / "again").mkdir()
    copy = tmp_path / "again" / "other.npz"
    copy.write_bytes(path.read_bytes())
    with pytest.raises(ParameterError, match="the file of the people themselves"):
        mv.release(mv.read_counts(path), epsilon=1, account=None, prior=copy)


def test_a_prior_is_a_parameter_of_the_kind_it_says() -> None:
    with pytest.raises(ParameterError, match=r"prior must be a Prior, or none, got 'a\.tif'"):
        Multiscale(epsilon=1, prior="a.tif")  # type: ignore[arg-type]  # a wrong kind
