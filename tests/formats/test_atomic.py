"""Files appear whole or not at all."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mapveil.formats.atomic import atomic_path
from mapveil.maps.density_map import DensityMap
from mapveil_client.errors import InputError, MapveilError


def test_the_file_appears_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "map.tif"
    with atomic_path(target) as place:
        place.write_bytes(b"whole")
        assert not target.exists()
        assert place.parent == tmp_path
        assert place.suffix == ".tif"
    assert target.read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["map.tif"]


@pytest.mark.parametrize("failure", [ValueError("bad"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, failure: BaseException) -> None:
    target = tmp_path / "map.tif"
    target.write_text("old")

    def write_half() -> None:
        with atomic_path(target) as place:
            place.write_text("half")
            raise failure

    with pytest.raises(type(failure)):
        write_half()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["map.tif"]


def test_what_a_killed_process_left_of_the_same_file_goes(tmp_path: Path) -> None:
    target = tmp_path / "map.tif"
    script = (
        "import os, signal, sys\nfrom mapveil.formats.atomic import atomic_path\n"
        "with atomic_path(sys.argv[1]): os.kill(os.getpid(), signal.SIGKILL)"
    )
    for name in ("map.tif", "other.tif"):
        subprocess.run([sys.executable, "-c", script, tmp_path / name], check=False)
    assert len(os.listdir(tmp_path)) == 2
    with atomic_path(target) as place, atomic_path(target) as second:  # one that is being written stays
        assert place.exists()
        second.write_text("whole")
    (left,) = set(os.listdir(tmp_path)) - {"map.tif"}
    assert left.startswith(".other.")


def test_a_full_disk_is_a_failure_not_bad_input(tmp_path: Path) -> None:
    with pytest.raises(MapveilError, match="No space left") as caught, atomic_path(tmp_path / "map.tif"):
        raise OSError(28, "No space left on device")
    assert caught.value.exit_code == 1
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"no folder .*nowhere"),
        atomic_path(tmp_path / "nowhere" / "map.tif"),
    ):
        pytest.fail("nothing may be written")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be the path of a file"), atomic_path(tmp_path):
        pytest.fail("nothing may be written")


def test_a_read_only_folder_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests may run as root, for whom no folder is read-only.
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mapveil.formats.atomic.os.open", refuse)
    with pytest.raises(InputError, match="Permission denied") as caught, atomic_path(tmp_path / "map.tif"):
        pytest.fail("nothing may be written")
    assert "\n" not in str(caught.value)


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    with atomic_path(link) as place:
        place.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_the_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    with atomic_path(tmp_path / "map") as place:
        place.touch()
    assert (tmp_path / "map").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("name", ["map.tif", "map.parquet", "map.csv", "map.geojson", "map.png", "map.html"])
def test_a_full_disk_is_named_in_every_format(
    name: str, make_map: Callable[..., DensityMap], tmp_path: Path
) -> None:
    """A real write error: files may have so many bytes only."""
    heat = make_map("grid")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        with pytest.raises(MapveilError, match=rf"{name}.*: could not be written \(.*File too large"):
            heat.save(tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []
