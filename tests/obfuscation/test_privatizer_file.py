"""The file of a privatizer: it comes back as it was, or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.export.privatizer_file import (
    decode_privatizer,
    encode_privatizer,
    read_privatizer,
    write_privatizer,
)
from mapveil.obfuscation.privatizers.gaussian_noise import GaussianNoise
from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer
from mapveil_client.errors import InputError

Tables = Callable[..., Measurements]
START = len(b"mapveil privatizer 1\n") + 4


@pytest.fixture(scope="module")
def fitted(made_up: Tables) -> FittedPrivatizer:
    return LocalGaussian(epsilon="1/3", delta=1e-6).fit(made_up(200), rng=1)


def resealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def edited(data: bytes, **changes: object) -> bytes:
    """The file with other members in its record, and a checksum that fits."""
    length = int.from_bytes(data[START - 4 : START], "little")
    record = {**json.loads(data[START : START + length]), **changes}
    gone = {key for key, value in changes.items() if value is None}
    text = json.dumps({key: value for key, value in record.items() if key not in gone}).encode()
    return resealed(data[: START - 4] + len(text).to_bytes(4, "little") + text + data[START + length : -32])


def test_a_privatizer_comes_back_exactly(fitted: FittedPrivatizer, made_up: Tables, tmp_path: Path) -> None:
    path = tmp_path / "a.mapveil"
    write_privatizer(fitted, path)
    back = read_privatizer(path)
    assert back.privatizer == LocalGaussian(epsilon="1/3", delta=1e-6)
    assert back.names == fitted.names
    assert {key: (array.dtype, array.shape) for key, array in back.state.items()} == {
        key: (array.dtype, array.shape) for key, array in fitted.state.items()
    }
    rows = made_up(20, seed=2).rows
    assert (back.privatize(rows, rng=5) == fitted.privatize(rows, rng=5)).all()
    assert encode_privatizer(back) == path.read_bytes()
    assert back.guarantee() == fitted.guarantee()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int16, np.uint8, np.bool_])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4)])
def test_arrays_of_every_kind_come_back(
    fitted: FittedPrivatizer, dtype: type, shape: tuple[int, ...]
) -> None:
    array = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2).astype(dtype)
    odd = FittedPrivatizer(
        fitted.privatizer, fitted.normalisation, {**fitted.state, "array": array.T.copy().T}
    )
    back = decode_privatizer(encode_privatizer(odd), "a").state["array"]
    assert (back.dtype, back.shape) == (array.dtype, shape)
    assert (back == array).all()


@given(st.data())
@settings(max_examples=60)
def test_no_truncated_or_changed_file_is_read(fitted: FittedPrivatizer, data: st.DataObject) -> None:
    whole = encode_privatizer(fitted)
    with pytest.raises(InputError, match=r"b\.mapveil: "):
        decode_privatizer(whole[: data.draw(st.integers(0, len(whole) - 1))], "b.mapveil")
    at = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(InputError, match=r"b\.mapveil: "):
        decode_privatizer(
            whole[:at] + bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))]) + whole[at + 1 :], "b.mapveil"
        )


@given(st.binary(max_size=200))
def test_a_record_of_nonsense_is_an_error_of_ours(record: bytes) -> None:
    body = b"mapveil privatizer 2\n" + len(record).to_bytes(4, "little") + record
    with pytest.raises(InputError, match="its record cannot be read"):
        decode_privatizer(resealed(body), "a")


def test_files_of_other_kinds_and_versions_are_named(fitted: FittedPrivatizer, tmp_path: Path) -> None:
    whole = encode_privatizer(fitted)
    with pytest.raises(InputError, match="no such file"):
        read_privatizer(tmp_path / "none.mapveil")
    (tmp_path / "map.tif").write_bytes(b"II*\0")
    with pytest.raises(InputError, match=r"map\.tif: not a privatizer"):
        read_privatizer(tmp_path / "map.tif")
    with pytest.raises(InputError, match="a privatizer of format 1; expected format 2, so fit it again"):
        decode_privatizer(whole.replace(b"privatizer 2\n", b"privatizer 1\n"), "a")
    with pytest.raises(
        InputError, match=r"written by another version of mapveil \(no privatizer is called 'better'"
    ):
        decode_privatizer(edited(whole, method="better"), "a")
    with pytest.raises(InputError, match="local-gaussian has no option 'shape'"):
        decode_privatizer(edited(whole, parameters={"epsilon": 1, "shape": 2}), "a")
    with pytest.raises(InputError, match="its normalisation does not fit its 2 features"):
        decode_privatizer(edited(whole, features=["lat", "lon"]), "a")
    for member in ("parameters", "arrays", "features", "method"):
        with pytest.raises(InputError, match="its record cannot be read"):
            decode_privatizer(edited(whole, **{member: None}), "a")
    arrays = [{"name": "normalisation/mean", "dtype": "|O", "shape": [5]}]
    with pytest.raises(InputError, match="its record cannot be read"):
        decode_privatizer(edited(whole, arrays=arrays), "a")
    arrays = [{"name": "normalisation/mean", "dtype": "<f8", "shape": [1 << 20, 1 << 20, 1 << 20]}]
    with pytest.raises(InputError, match="its record cannot be read"):
        decode_privatizer(edited(whole, arrays=arrays), "a")


def test_nothing_is_left_of_a_file_that_cannot_be_written(fitted: FittedPrivatizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        write_privatizer(fitted, tmp_path / "none" / "a.mapveil")
    assert list(tmp_path.iterdir()) == []


def test_other_columns_are_refused(fitted: FittedPrivatizer, made_up: Tables) -> None:
    with pytest.raises(
        InputError,
        match="features lat, lon, rss_dbm, x0; this privatizer privatizes lat, lon, rss_dbm, x0, x1",
    ):
        fitted.privatize_measurements(made_up(10, further=1))


def test_pilots_that_teach_nothing_are_refused(made_up: Tables) -> None:
    noise = GaussianNoise(sigma=1)
    pilot = made_up(50)
    with pytest.raises(InputError, match="one user only"):
        noise.fit(made_up(50, users=1))
    flat = pilot.rows.copy()
    flat[:, 3] = 7
    with pytest.raises(InputError, match="'x0' has the same value in"):
        noise.fit(pilot.with_rows(flat))
    with pytest.raises(InputError, match="0 sequences of 20 rows"):
        GaussianNoise(sigma=1, sequence=20).fit(made_up(20, users=4))
    broken = pilot.rows.copy()
    broken[3, 2] = np.nan
    with pytest.raises(InputError, match="missing or not finite"):
        pilot.with_rows(broken)
    with pytest.raises(InputError, match="missing or not finite"):
        noise.fit(pilot).privatize(broken)
