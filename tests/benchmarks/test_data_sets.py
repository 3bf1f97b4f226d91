"""Roles are fixed by name in one file, and the functions that open tuning data refuse the test role."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest

import mapveil as mv
from benchmarks import data_sets
from benchmarks.data_sets import DataSet, files_in, open_set, other_files, sets_of, tuning_city, tuning_set
from benchmarks.synthetic_sets import SHAPES
from mapveil.evaluation.sampled_people import population
from mapveil_client.errors import InputError, ParameterError
from reproductions.ghazi.data import CHECK_INS, GRIDS
from reproductions.wang.data import BEYOND

SETS: Final = data_sets.data_sets()


def test_every_name_is_one_set_with_one_role() -> None:
    assert len({each.name for each in SETS}) == len(SETS)
    lines = data_sets.TABLE.read_text(encoding="utf-8").splitlines()[1:]
    assert {line.split(",")[1] for line in lines} == {"tune", "test", "left out"}
    assert all((each.shape in SHAPES) == (each.role != "left out") for each in SETS)


def test_what_defaults_were_chosen_on_has_the_tuning_role() -> None:
    used = [each.file for each in BEYOND] + [name for name, _ in CHECK_INS.values()] + list(GRIDS.values())
    for file in used:
        assert {each.role for each in sets_of(Path(file))} == {"tune"}, file


def test_both_roles_cover_all_shapes_with_few_and_many_users_as_tables_and_rasters() -> None:
    made = [each for each in SETS if each.synthetic]
    found = {(each.role, each.file, each.shape, each.users > 10_000) for each in made}
    assert len(found) == len(made) == 2 * 2 * len(SHAPES) * 2
    assert len({each.seed for each in made}) == len(made)
    assert all((each.seed >= data_sets.FIRST_TEST_SEED) == (each.role == "test") for each in made)
    assert {each.shape for each in SETS if each.role == "tune" and not each.synthetic} == set(SHAPES)


def test_files_of_few_users_or_of_the_trips_of_another_set_are_left_out() -> None:
    for file in ("signal_chania_gsm", "signal_ujiindoorloc_train_even_users", "porto_taxi_1000trips_od"):
        assert {each.role for each in sets_of(Path(f"{file}.parquet"))} == {"left out"}, file


@pytest.mark.parametrize("name", [each.name for each in SETS if each.role != "tune"] + ["never heard of"])
def test_the_door_refuses_the_test_role_and_names_without_a_role(name: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="must have the role tune"):
        tuning_set(name, tmp_path)


def test_the_door_opens_tuning_sets_and_cities_but_no_seed_of_the_test_role(tmp_path: Path) -> None:
    assert isinstance(tuning_set("raster-flat-few-tune"), mv.Counts)
    np.savez(tmp_path / "dpbench_gowalla_256.npz", values=np.ones((4, 4)))
    read = tuning_set("dpbench-gowalla", tmp_path)
    assert isinstance(read, mv.Counts)
    assert read.values.sum() == 16
    with pytest.raises(InputError, match="no file manhattan_luminosity_1024"):
        tuning_set("manhattan", tmp_path)
    with pytest.raises(ParameterError, match="needs the folder"):
        tuning_set("manhattan")
    rows = tuning_city(50, 3).arrays()
    assert np.array_equal(rows.lon, mv.synthetic.city(users=50, seed=3).arrays().lon)
    with pytest.raises(ParameterError, match="seed must be below 1000"):
        tuning_city(50, 1000)


@pytest.mark.parametrize("kind", ["table", "raster"])
def test_shapes_are_what_they_are_called_and_seeds_repeat(kind: str) -> None:
    fullest = {}
    for shape in SHAPES:
        data = DataSet("", "tune", shape, f"synthetic {kind}", users=3000, seed=7)
        people = [population(made, None if kind == "raster" else mv.Quadtree(made.region, 6)).sums().sums
                  for made in (open_set(data, None), open_set(data, None))]  # fmt: skip
        assert np.array_equal(*people)
        values = np.sort(people[0])[::-1] / people[0].sum()
        fullest[shape] = values[0], values[: values.size // 20].sum()
    assert fullest["flat"][1] < (0.25 if kind == "table" else 0.45)
    assert fullest["skewed"][1] > 1.5 * fullest["flat"][1]
    assert fullest["hot spot"][0] > 0.1


def test_a_file_nobody_named_is_one_test_set_and_files_of_one_name_are_read_once(tmp_path: Path) -> None:
    for name in ("b.npz", "b.tif", "a.csv.gz", "notes.md"):
        (tmp_path / name).touch()
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nothing.csv")
    assert [path.name for path in files_in(tmp_path)] == ["a.csv.gz", "b.npz"]
    assert other_files(tmp_path) == ["b.tif", "folder.csv", "gone.csv", "notes.md"]
    assert sets_of(tmp_path / "a.csv.gz") == (DataSet("a", "test", "", "a"),)
    assert [each.name for each in sets_of(Path("foursquare_us_user_venue_counts.parquet"))] == [
        "foursquare-san-francisco", "foursquare-los-angeles",
    ]  # fmt: skip
    with pytest.raises(InputError, match="no data; expected tables or rasters"):
        files_in(tmp_path / "folder.csv")
    with pytest.raises(InputError, match="no such folder"):
        files_in(tmp_path / "nothing")


def test_the_map_of_a_small_table_holds_all_of_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "two.csv"
    file.write_text("user_id,lon,lat\n1,2.0,48.0\n2,2.5,48.5\n")
    read = open_set(DataSet("two", "test", "", "two"), file)
    assert isinstance(read, mv.Points)
    assert read.region is not None
    rows = read.arrays()
    assert read.region.contains(rows.lon, rows.lat).tolist() == [True, True]
