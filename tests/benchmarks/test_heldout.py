"""Held-out comparisons: any folder by one command, both roles apart, verdicts by paired intervals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from benchmarks.data_sets import DataSet, data_sets, open_set
from benchmarks.heldout import coarser, command, default_of, jobs_on, methods_of, people_of, run_job, shape_of
from benchmarks.heldout_tables import NO_LONGER
from mapveil.cli.app import run
from mapveil.evaluation.compare import compare
from mapveil.evaluation.comparison import Comparison
from mapveil_client.errors import ParameterError


def test_every_method_of_every_trust_model_is_there_and_the_default_is_first() -> None:
    for trust, some in (("central", "privtree"), ("distributed", "count-min"), ("local", "disk")):
        methods = methods_of(trust)
        assert methods[0] == default_of(trust)
        assert f"{trust}/{some}" in methods
        assert f"{trust}/proportions" not in methods


def test_blocks_of_a_raster_keep_its_users_and_its_place() -> None:
    grid = mv.Grid(mv.Region.from_bbox(2.0, 48.0, 2.7, 48.5), rows=10, columns=14)
    counts = mv.Counts(np.arange(140), grid)
    found = coarser(counts, 40)
    assert isinstance(found.tiling, mv.Grid)
    assert (found.tiling.rows, found.tiling.columns) == (5, 7)
    assert found.values.sum() == counts.values.sum()
    assert found.tiling.region.bbox == pytest.approx(grid.region.bbox)
    assert found.values[0] == 0 + 1 + 14 + 15
    cut = coarser(counts, 16)  # blocks of 3 x 3: a row and two columns are left over
    assert isinstance(cut.tiling, mv.Grid)
    assert (cut.tiling.rows, cut.tiling.columns) == (3, 4)
    north, east = cut.tiling.region.bbox[3], cut.tiling.region.bbox[2]
    assert north == pytest.approx(48.5)
    assert east == pytest.approx(2.0 + 0.7 * 12 / 14, abs=1e-6)
    assert coarser(counts, 140) is counts


@pytest.mark.parametrize("data", [each for each in data_sets() if each.synthetic], ids=lambda each: each.name)
def test_a_shape_can_be_told_from_the_data(data: DataSet) -> None:
    assert shape_of(people_of(open_set(data, None), 16_384)) == data.shape


def test_a_method_alone_has_the_rows_it_has_in_company_and_people_are_counted() -> None:
    people = people_of(mv.synthetic.city(users=60, seed=1), 64)
    assert people.users == 60
    jobs = list(jobs_on(people, ["central", "local"], [Fraction(1)], 1, 50, 3))
    (central,), (local,) = (
        [job for job in jobs if job.method == name] for name in ("central/laplace", "local/grr")
    )
    assert central.users is None
    assert local.users == 50
    assert local.people.sums().sums.sum() == 60 * (1 << 28)
    again = run_job(central._replace(trials=2)).rows
    assert [row for row in again if row.trial == 0] == [
        row._replace(seconds=again[at].seconds) for at, row in enumerate(run_job(central).rows)
    ]
    second = run_job(central._replace(first_trial=1)).rows
    assert [row._replace(seconds=0.0) for row in second] == [
        row._replace(seconds=0.0) for row in again if row.trial == 1
    ]


def test_a_bug_in_one_method_is_told_and_costs_that_method_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("benchmarks.heldout.compare", broken)
    (job, *_) = jobs_on(
        people_of(mv.synthetic.city(users=20, seed=1), 64), ["central"], [Fraction(1)], 1, 50, 3
    )
    assert run_job(job).rows == ()
    assert run_job(job).refused == "internal error: ZeroDivisionError: a bug"


def heldout(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        run([*arguments], command, "heldout")
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    drawn = np.random.default_rng(0)
    np.savez(tmp_path / "raster.npz", values=drawn.poisson(2, (12, 16)))
    np.savez(tmp_path / "dpbench_sf_cabs_start_256.npz", values=drawn.poisson(2, (12, 16)))
    user = np.repeat(np.arange(40), 3)
    place = drawn.normal((2.3, 48.8), 0.01, (120, 2))
    lines = [f"{who},{lon:.6f},{lat:.6f}" for who, (lon, lat) in zip(user, place, strict=True)]
    (tmp_path / "visits.csv").write_text("\n".join(["user_id,lon,lat", *lines]))
    (tmp_path / "readme.md").write_text("no data")
    return tmp_path


def test_one_command_runs_any_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = heldout(capsys, str(folder), "--quick", "--workers", "1", "--json")
    assert code == 0
    assert "visits (test, hot spot), 40 users" in err or "visits (test, skewed), 40 users" in err
    assert "do not publish" in err
    found = json.loads(out)
    assert [(each["name"], each["role"]) for each in found["data_sets"]] == [
        ("dpbench-san-francisco-cabs", "tune"), ("raster", "test"), ("visits", "test"),
    ]  # fmt: skip
    assert found["private"] is False
    assert not any(each["synthetic"] for each in found["data_sets"])
    assert {row["trust"] for row in found["rows"]} == {"central", "distributed", "local"}
    of_table = {
        row["metric"] for row in found["rows"] if row["data"] == "visits" and row["trust"] == "central"
    }
    assert of_table == {"kl", "jensen_shannon", "similarity", "emd", "emd_euclidean_m", "l1_2km", "top_ten"}
    assert all(row["verdict"] in ("win", "tie", "loss") for row in found["rows"])
    of_sums = [row for row in found["rows"] if row["metric"] == NO_LONGER]
    assert len(of_sums) == 3
    assert all(row["other_length"] <= row["length"] > 0 for row in of_sums)
    laplace = [
        each for each in found["means"] if each["method"] == "central/laplace" and each["metric"] == "kl"
    ]
    assert [laplace[0][role]["sets"] for role in ("tune", "test")] == [1, 2]
    assert laplace[0]["test"]["low"] < laplace[0]["test"]["mean"] < laplace[0]["test"]["high"]
    everything = [record for record in found["verdicts"] if record["metric"] == "all"]
    assert all(record["test"]["rows"] == 2 * record["tune"]["rows"] + extra
               for record, extra in zip(everything, (2, 2, 2), strict=True))  # fmt: skip
    code, out, _ = heldout(
        capsys, str(folder), "--quick", "--workers", "1", "--trust", "central", "--role", "test"
    )
    assert code == 0
    assert "EMD (city-block), region widths" in out
    assert "EMD (Euclidean), m" in out
    assert out.startswith(
        "2 paired trials; epsilon 1; maps of at most 256 cells\ncounted: people, not visits"
    )
    assert re.search(r"ROLE TEST: raster \([\d,]+ users\), visits \(40 users\)", out)
    assert "ROLE TUNE" not in out


def test_the_result_fits_a_terminal_and_tells_both_roles(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a_file_with_a_name_that_is_as_long_as_those_of_shared_data.csv").write_text("a,b\n1,2\n")
    (folder / ".hidden.md").touch()
    (folder / "raster.tif").touch()
    code, out, err = heldout(capsys, str(folder), "--quick", "--workers", "1", "--every-row")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 100
    tune, test = (out.index(f"ROLE {role}: ") for role in ("TUNE", "TEST"))
    assert tune < test
    of_test = out[test:]
    for trust in ("central", "distributed", "local"):
        assert f"MSE): {trust}" in of_test
        assert f"{trust}: all" in of_test
    assert len(re.findall(r"^(?:raster|visits), epsilon 1, .*: (?:win|tie|loss)$", of_test, re.M)) == sum(
        int(each) for line in re.findall(r": all +(\d+) +(\d+) +(\d+) ", of_test) for each in line
    )
    assert "--lon NAME" in of_test
    assert "passed over (folders, links, other suffixes, or one name twice): raster.tif, readme.md\n" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--trials", "0"), "--trials must be at least 1, got 0"),
        (("--trials", "3", "--max-trials", "2"), "--max-trials must be at least 3, got 2"),
        (("--max-cells", "15"), "--max-cells must be at least 16, got 15"),
        (("--workers", "0"), "--workers must be at least 1, got 0"),
    ],
)
def test_a_number_that_is_too_small_is_refused_before_anything_is_read(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = heldout(capsys, "no such folder", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_one_trial_is_told_to_decide_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "--trust",
        "central",
        "--role",
        "test",
        "--epsilon",
        "1",
        "--max-cells",
        "16",
        "--workers",
        "1",
    )
    code, out, err = heldout(capsys, str(folder), *arguments, "--trials", "1", "--every-row")
    assert code == 0
    assert "every row is a tie" in err
    assert out.startswith("1 paired trial;")
    assert "inf" not in out
    code, _, err = heldout(capsys, str(folder), *arguments, "--trials", "1", "--max-trials", "2")
    assert code == 0
    assert "every row is a tie" not in err


def test_quick_gives_defaults_and_overrides_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--workers", "1", "--trust", "central", "--role", "test", "--json")
    code, out, _ = heldout(capsys, str(folder), "--trials", "1", "--epsilon", "2", "--quick", *arguments)
    assert code == 0
    settings = json.loads(out)["settings"]
    found = [settings[name] for name in ("trials", "epsilons", "max_cells", "max_users")]
    assert found == [1, [2.0], 256, 2000]


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[str, Fraction, int], bool]) -> None:
    """Let comparisons fail by method, epsilon and number of the first trial."""

    def compared(*given: Any, **more: Any) -> Comparison:
        if fails(given[2][0], given[3][0], more["first_trial"]):
            raise ParameterError("no such epsilon")
        return compare(*given, **more)

    monkeypatch.setattr("benchmarks.heldout.compare", compared)


ONE_RASTER = ("--workers", "1", "--trust", "central", "--role", "test", "--max-cells", "16", "--json")


def test_a_method_that_refuses_one_epsilon_runs_at_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "visits.csv").unlink()
    failing(monkeypatch, lambda method, epsilon, _: epsilon < 1 and method != "central/laplace")
    arguments = ("--trials", "2", "--epsilon", "0.5,1,1", *ONE_RASTER)
    found = json.loads(heldout(capsys, str(folder), *arguments)[1])
    refused = {"data": "raster", "method": "central/privtree", "epsilon": 0.5, "reason": "no such epsilon"}
    assert refused in found["refused"]
    assert {each["epsilon"] for each in found["refused"]} == {0.5}
    assert {row["verdict"] for row in found["rows"] if row["epsilon"] == 0.5} == {"loss"}
    assert any(each["method"] == "central/privtree" for each in found["means"])
    failing(monkeypatch, lambda *_: True)
    found = json.loads(heldout(capsys, str(folder), *arguments)[1])
    rows = [(row["epsilon"], row["metric"], row["verdict"]) for row in found["rows"]]
    assert rows == [
        (epsilon, metric, "loss")
        for epsilon in (0.5, 1.0)
        for metric in ("kl", "jensen_shannon", "similarity", "emd", "top_ten")
    ]


def test_rivals_that_fail_at_a_later_look_are_no_wins_and_run_no_more(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "visits.csv").unlink()
    failing(monkeypatch, lambda method, _, first_trial: first_trial > 0 and "multiscale" not in method)
    arguments = ("--trials", "2", "--max-trials", "8", "--epsilon", "1", *ONE_RASTER)
    found = json.loads(heldout(capsys, str(folder), *arguments)[1])
    methods = [each["method"] for each in found["refused"]]
    assert methods
    assert len(methods) == len(set(methods))
    assert {row["verdict"] for row in found["rows"] if row["trials"] > 2} <= {"tie", "loss"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("broken.npz", "no archive", "broken: .*broken.npz: not a complete NumPy file"),
        ("words.csv", "a,b\n1,2\n", "words: .*column"),
        ("nobody.csv", "user_id,lon,lat\n", "nobody: .*no row can be used"),
    ],
)
def test_an_unreadable_file_is_left_out_and_named(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, message: str
) -> None:
    (folder / name).write_text(content)
    stem = name.partition(".")[0]
    arguments = ("--quick", "--workers", "1", "--trust", "central", "--role", "test", "--json")
    code, out, err = heldout(capsys, str(folder), *arguments)
    assert code == 0
    assert re.search(f"left out: {message}", err), err
    found = json.loads(out)
    assert [each["data"] for each in found["left_out"]] == [stem]
    assert [each["name"] for each in found["data_sets"]] == ["raster", "visits"]
    for each in folder.iterdir():
        each.unlink() if each.name != name else None
    code, out, err = heldout(capsys, str(folder), *arguments)
    assert (code, out) == (2, "")
    assert "no file can be read" in err


def test_a_file_that_the_table_leaves_out_is_named_and_not_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "visits.csv").rename(folder / "signal_chania_gsm.csv")
    arguments = (str(folder), "--quick", "--workers", "1", "--trust", "central", "--json")
    for roles, names in ((("--role", "test"), ["raster"]), ((), ["dpbench-san-francisco-cabs", "raster"])):
        code, out, _ = heldout(capsys, *arguments, *roles)
        assert code == 0
        found = json.loads(out)
        assert [each["name"] for each in found["data_sets"]] == names
        assert found["left_out"] == [{"data": "chania-signal", "reason": "data_sets.csv leaves it out"}]


def test_rows_that_cannot_be_used_are_dropped_with_a_warning(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (folder / "visits.csv").open("a") as file:
        file.write("\n7,nan,48.8\n8,2300,48.8\n,2.3,48.8")
    arguments = ("--quick", "--workers", "1", "--trust", "central", "--role", "test", "--json")
    code, out, err = heldout(capsys, str(folder), *arguments)
    assert code == 0
    assert err.count("visits.csv: dropped 3 of 123 rows") == 1
    assert json.loads(out)["data_sets"][-1]["users"] == 40


def test_a_narrow_raster_is_cut_along_its_length() -> None:
    values = np.arange(400)
    made = coarser(mv.Counts(values, mv.Grid(mv.Region.without_georeference(400, 1), 1, 400)), 16)
    assert made.values.tolist() == values[:384].reshape(16, 24).sum(axis=1).tolist()


def test_a_folder_without_data_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = heldout(capsys, str(tmp_path))
    assert code != 0
    assert "no data; expected tables or rasters" in err
    code, _, err = heldout(capsys, str(tmp_path / "nothing"))
    assert "no such folder" in err


def test_columns_and_weights_are_named_by_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (folder / "visits.csv").read_text().replace("user_id,lon,lat", "who,east,north")
    (folder / "visits.csv").write_text(lines)
    arguments = (str(folder), "--quick", "--workers", "1", "--trust", "central", "--role", "test", "--json")
    (left_out,) = json.loads(heldout(capsys, *arguments)[1])["left_out"]
    assert left_out["data"] == "visits"
    code, out, _ = heldout(capsys, *arguments, "--user", "who", "--lon", "east", "--lat", "north")
    assert code == 0
    assert [each["users"] for each in json.loads(out)["data_sets"] if each["name"] == "visits"] == [40]
