"""``mapveil ledger sign`` and ``mapveil verify``: a stranger checks a release, and nothing altered is accepted."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import mapveil as mv
from mapveil.analysis.verify_release import _charged_whole, verify_release
from mapveil.formats.read_map import read_map
from mapveil.formats.read_record import read_record
from mapveil.maps import density_map
from mapveil_client.errors import InputError

BOX = "-74.03,40.69,-73.90,40.83"


@pytest.fixture
def signed(mapveil: Callable, table: Path, tmp_path: Path) -> Path:
    path = tmp_path / "map.parquet"
    region = ("--region", BOX, "--tiling", "quadtree:5", "--epsilon", "1", "--method", "hierarchical")
    assert mapveil("release", table, *region, "-o", path).code == 0
    done = mapveil("ledger", "sign", path)
    assert done.code == 0, done.err
    return path


def key_of(path: Path) -> str:
    """The public key that signed."""
    return str(json.loads(Path(f"{path}.sig").read_text())["head"]["public_key"])


def states(path: Path, **given: str | Path) -> dict[str, str]:
    return {each.what: each.state for each in verify_release(path, **given).findings}


def test_a_signed_release_is_verified(mapveil: Callable, signed: Path, tmp_path: Path) -> None:
    head = tmp_path / "head.json"
    head.write_text(mapveil("ledger", "head").out)
    key = json.loads(head.read_text())["public_key"]
    done = mapveil("verify", signed, "--key", key, "--ledger-head", head)
    assert done.code == 0, done.out
    assert states(signed, key=key, ledger_head=head) == dict.fromkeys(
        ("record", "text", "epsilon", "signature", "ledger", "content", "measurements", "noise"), "ok"
    )
    assert states(signed, key="0" * 64)["signature"] == "failed"
    assert mapveil("verify", signed, "--key", "abc").code == 2


FOUR_WEEKS = ("--every", "1w", "--from", "2026-01-05", "--until", "2026-02-02", "--epsilon", "1/2")


@pytest.mark.parametrize(
    ("given", "charged"),
    [
        (("release",), "1/2"),
        (("release", "--per", "user-week"), 2),
        (("series",), "1/2"),
        (("series", "--w-event", "3"), 1),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_the_whole_charge_of_every_unit_is_verified_exactly(
    mapveil: Callable, given: tuple[str, ...], charged: int | str, tmp_path: Path
) -> None:
    users, path, table = np.arange(60), tmp_path / "week.parquet", tmp_path / "visits.parquet"
    columns = {"user": users, "lon": np.full(60, -74.0), "lat": np.full(60, 40.7)}
    columns["time"] = np.full(60, np.datetime64("2026-01-06"))
    pyarrow.parquet.write_table(pa.table(columns), table)
    where = ("--region", BOX, "--tiling", "quadtree:3", *FOUR_WEEKS, *given[1:])
    if given[0] == "release":
        assert mapveil("release", table, *where, "--dataset", "city", "-o", path).code == 0
    else:
        file = tmp_path / "city.series"
        assert mapveil("series", "start", file, "--name", "city", *where).code == 0
        assert mapveil("series", "add", file, table, "-o", path).code == 0
    assert mv.Account("city").spent == Fraction(charged)
    assert mapveil("ledger", "sign", path).code == 0
    key = key_of(path)
    done = mapveil("verify", path, "--key", key)
    assert done.code == 0, done.out
    guarantee = read_map(path).guarantee
    assert guarantee.epsilon is not None
    for units in range(1, 29):
        multiple = units * guarantee.epsilon
        assert _charged_whole(multiple, guarantee) == (multiple == Fraction(charged))


def test_a_signature_by_an_unknown_key_vouches_for_nobody(mapveil: Callable, signed: Path) -> None:
    done = mapveil("verify", signed)
    assert done.code == 3
    assert f"SIGNED BY AN UNKNOWN KEY ({key_of(signed)})" in done.out
    assert not verify_release(signed).failed
    Path(f"{signed}.sig").unlink()
    assert mapveil("verify", signed, "--key", "0" * 64).code == 3


def test_a_ledger_signs_no_other_bytes_than_it_wrote(mapveil: Callable, signed: Path) -> None:
    heat = read_map(signed)
    heat.values[:] += 1
    heat.save(signed)
    refused = mapveil("ledger", "sign", signed)
    assert refused.code == 2
    assert "its bytes are not those that the release wrote" in refused.err


def test_no_altered_file_is_accepted(signed: Path) -> None:
    whole, draw, key = signed.read_bytes(), np.random.default_rng(3), key_of(signed)
    for _ in range(1000):
        data = bytearray(whole)
        data[draw.integers(len(data))] ^= 1 << int(draw.integers(8))
        signed.write_bytes(data[: draw.choice((len(data), draw.integers(len(data))))])
        try:
            accepted = verify_release(signed, key=key).ok
        except InputError:
            continue
        assert not accepted
    signed.write_bytes(whole)
    assert verify_release(signed, key=key).ok


def test_no_altered_signature_is_accepted(signed: Path) -> None:
    beside = Path(f"{signed}.sig")
    whole, draw, key = beside.read_bytes(), np.random.default_rng(4), key_of(signed)
    for _ in range(150):
        data = bytearray(whole)
        data[draw.integers(len(data))] ^= 1 << int(draw.integers(8))
        beside.write_bytes(data)
        assert not verify_release(signed, key=key).ok
    beside.unlink()
    assert states(signed)["signature"] == "unknown"
    assert not verify_release(signed).ok


def test_a_ledger_signs_what_it_was_charged_for(mapveil: Callable, signed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    assert mapveil("ledger", "--ledger", other, "budget", "shops", "2").code == 0
    refused = mapveil("ledger", "--ledger", other, "sign", signed)
    assert refused.code == 2
    assert "no release that wrote a file of this name" in refused.err


def test_a_signature_is_not_another_files(
    mapveil: Callable, signed: Path, table: Path, tmp_path: Path
) -> None:
    second = tmp_path / "second.parquet"
    done = mapveil("release", table, "--region", BOX, "--epsilon", "1", "-o", second)
    assert done.code == 0, done.err
    shutil.copy(f"{signed}.sig", f"{second}.sig")
    assert states(second)["signature"] == "failed"


def test_noise_of_half_the_stated_deviation_fails(signed: Path) -> None:
    heat = read_map(signed)
    users = [
        np.bincount(each.groups[each.groups >= 0], minlength=each.noisy.size) for each in heat.measurements
    ]
    # One user in each cell, and half of the noise.
    draw = np.random.default_rng(1)
    for measurement, true in zip(heat.measurements, users, strict=True):
        scale = measurement.deviation() / np.sqrt(2) / 2
        measurement.noisy[:] = true + draw.laplace(scale=scale, size=true.size)
    heat.save(signed)
    assert states(signed)["noise"] == "failed"


def test_noise_of_a_larger_epsilon_than_the_promised_one_fails(tmp_path: Path) -> None:
    region = mv.Region.from_bbox(*map(float, BOX.split(",")))
    city = mv.synthetic.city(users=500, seed=1, region=region)
    given = {"method": "hierarchical", "account": None, "rng": 2}
    modest, loud = (mv.release(city, mv.Quadtree(region, 5), epsilon=each, **given) for each in (1, 100))
    replace(loud, guarantee=modest.guarantee).save(tmp_path / "forged.parquet")
    assert states(tmp_path / "forged.parquet") | {"signature": "unknown"} == {
        **dict.fromkeys(("record", "text", "epsilon", "content", "noise"), "ok"),
        "signature": "unknown",
        "measurements": "failed",
    }


def test_another_versions_bounds_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    region = mv.Region.from_bbox(*map(float, BOX.split(",")))
    city = mv.synthetic.city(users=500, seed=1, region=region)
    heat = mv.release(city, mv.Quadtree(region, 5), epsilon=1, account=None, rng=2)
    monkeypatch.setattr(density_map, "INTERVAL_ALPHA", 0.04)
    for version, state in (("0.0.9", "unknown"), (heat.version, "failed")):
        replace(heat, version=version).save(tmp_path / "map.parquet")
        with monkeypatch.context() as patched:
            patched.setattr(density_map, "INTERVAL_ALPHA", 0.05)
            assert states(tmp_path / "map.parquet")["content"] == state


@pytest.mark.parametrize("suffix", [".csv", ".tif"])
def test_a_file_beside_a_signed_one_changes_nothing(
    suffix: str, mapveil: Callable, table: Path, tmp_path: Path
) -> None:
    path = tmp_path / f"map{suffix}"
    done = mapveil("release", table, "--region", BOX, "--epsilon", "1", "-o", path)
    assert done.code == 0, done.err
    assert mapveil("ledger", "sign", path).code == 0
    assert states(path, key=key_of(path))["signature"] == "ok"
    text = json.dumps({**read_record(path), "notes": ["forged"]})
    if suffix == ".csv":
        (tmp_path / "map.csv-metadata.json").write_text(text)
        assert states(path)["signature"] == "failed"
    else:
        item = f'<Metadata><MDI key="MAPVEIL">{html.escape(text)}</MDI></Metadata>'
        (tmp_path / "map.tif.aux.xml").write_text(f"<PAMDataset>{item}</PAMDataset>")
        assert read_record(path)["notes"] != ["forged"]
        assert "forged" not in str(read_map(path).notes)


@pytest.mark.parametrize("suffix", [".tif", ".gpkg"])
def test_a_file_that_names_another_is_no_map(suffix: str, tmp_path: Path) -> None:
    source = '<OGRVRTLayer name="map"><SrcDataSource>o.geojson</SrcDataSource></OGRVRTLayer>'
    layer = f"<OGRVRTDataSource>{source}</OGRVRTDataSource>"
    tag = '<Metadata><MDI key="MAPVEIL">{}</MDI></Metadata>'
    raster = f'<VRTDataset rasterXSize="1" rasterYSize="1">{tag}</VRTDataset>'
    (tmp_path / f"map{suffix}").write_text(raster if suffix == ".tif" else layer)
    with pytest.raises(InputError, match="not readable"):
        read_record(tmp_path / f"map{suffix}")


def test_a_ledger_signs_no_file_of_another_name(mapveil: Callable, signed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    shutil.copy(signed, other)
    refused = mapveil("ledger", "sign", other)
    assert refused.code == 2
    assert "no release that wrote a file of this name" in refused.err


@pytest.mark.parametrize("text", ["1e99999999", "1/0", "9" * 5000, ""])
def test_a_number_that_fills_the_memory_is_refused(text: str, signed: Path) -> None:
    beside = Path(f"{signed}.sig")
    record = json.loads(beside.read_text())
    beside.write_text(json.dumps({**record, "epsilon": text}))
    assert states(signed)["signature"] == "failed"
    heat = read_map(signed)
    heat.to_geojson(signed.with_suffix(".geojson"))
    content = json.loads(signed.with_suffix(".geojson").read_text())
    content["mapveil"]["guarantee"]["delta"] = text
    signed.with_suffix(".geojson").write_text(json.dumps(content))
    with pytest.raises(InputError, match="metadata are not a map's"):
        verify_release(signed.with_suffix(".geojson"))
