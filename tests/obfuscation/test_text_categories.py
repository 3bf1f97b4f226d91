"""Categories of text: read, fitted, privatized on phones by both kinds of file, written, and read back by servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mapveil.geo.measurements import joined
from mapveil.geo.read_measurements import read_measurements
from mapveil.obfuscation.export.phone import read_phone_privatizer
from mapveil.obfuscation.export.phone_export import export_privatizer
from mapveil.obfuscation.export.privatizer_file import (
    decode_privatizer,
    encode_privatizer,
    read_privatizer,
    write_privatizer,
)
from mapveil.obfuscation.privatize import fit_privatizer, privatize, write_privatized
from mapveil.obfuscation.privatized_file import read_reports
from mapveil.obfuscation.privatizers.codebook import Codebook
from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer, Privatizer
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness

MODES = ["2G", "4G", "5G"]
ROWS = 900


def table(modes: list[str], seed: int = 1) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "user_id": np.arange(ROWS) % 4,
            "lat": draw.normal(35.5, 0.01, ROWS),
            "lon": draw.normal(24.0, 0.01, ROWS),
            "rss_dbm": draw.normal(-80, 8, ROWS),
            "network_mode": draw.choice(modes, ROWS),
            "speed": draw.normal(30, 5, ROWS),
            "remark": "x",
        }
    )


def fit(privatizer: Privatizer) -> FittedPrivatizer:
    return fit_privatizer(read_measurements(table(MODES)), privatizer, rng=1, days=None)


@pytest.mark.parametrize("source", ["frame", "enum", "csv"])
def test_text_that_names_a_category_is_read_as_one(source: str, tmp_path: Path) -> None:
    frame = table(MODES)
    given: object = frame
    if source == "enum":
        given = frame.astype({"network_mode": "category"})
    elif source == "csv":
        given = tmp_path / "rows.csv"
        frame.to_csv(given, index=False)
    read = read_measurements(given)
    assert (read.names[3:], read.categories) == (("network_mode", "speed"), (3,))
    assert read.texts == {"network_mode": {"2G": 0, "4G": 1, "5G": 2}}
    assert [MODES[int(at)] for at in read.rows[:, 3]] == frame["network_mode"].tolist()


def test_text_is_a_category_or_nothing() -> None:
    frame = table(MODES).assign(
        operator=[f"tower {at}" for at in range(ROWS)], remark=["a", "b"] * (ROWS // 2)
    )
    asked = read_measurements(frame, features=["speed"], categories=["remark"])
    assert (asked.names[3:], list(asked.texts)) == (("speed", "remark"), ["remark"])
    with pytest.raises(InputError, match=r"row 1, column 'network_mode' is '.G'; expected a finite number"):
        read_measurements(frame, features=["network_mode"], categories=[])
    many = pd.concat([frame.assign(operator=[f"{part} {at}" for at in range(ROWS)]) for part in range(5)])
    read = read_measurements(many)
    assert "operator" not in read.names
    assert any("categories of more than 4,096 values: operator" in note for note in read.notes)


def test_a_missing_text_is_left_out_or_has_no_number() -> None:
    frame = table(MODES)
    frame.loc[[2, 5], "network_mode"] = None
    assert len(read_measurements(frame)) == ROWS - 2
    filled = read_measurements(frame, fill=-105)
    assert filled.rows[[2, 5], 3].tolist() == [-1, -1]
    assert fit_privatizer(filled, LocalGaussian(epsilon=3), rng=1).categories[0].texts == tuple(MODES)


def test_another_table_is_numbered_as_the_pilot_was() -> None:
    fitted = fit(LocalGaussian(epsilon=3))
    other = table(["5G", "6G"], seed=2)
    read = read_measurements(other, names=fitted.names, texts=fitted.texts)
    assert set(read.rows[:, 3]) == {2, -1}
    assert len(fitted.reports(read, rng=1)) == ROWS
    own = read_measurements(other)
    with pytest.raises(InputError, match="'network_mode' are not numbered as the privatizer's"):
        fitted.reports(own, rng=1)
    with pytest.raises(InputError, match="numbered otherwise"):
        joined(read_measurements(table(MODES)), own)


@pytest.mark.parametrize(
    "chosen", [LocalGaussian(epsilon=3), Codebook(mu=1, size=10)], ids=lambda one: one.name
)
def test_both_files_of_a_phone_know_the_texts(chosen: Privatizer, tmp_path: Path) -> None:
    fitted = fit(chosen)
    suffix = "json"
    if chosen.name == "codebook":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
        suffix = "onnx"
    path = tmp_path / f"phone.{suffix}"
    export_privatizer(fitted, path)
    phone = read_phone_privatizer(path)
    place = [35.5, 24.0, -80.0]
    rows = phone.numbers([[*place, mode, 30.0] for mode in (*MODES, "6G")] * 400)
    assert rows[:4, 3].tolist() == [0, 1, 2, -1]
    np.testing.assert_allclose(
        phone.privatize(rows, rng=Randomness(2)), fitted.privatize(rows, rng=Randomness(2)), rtol=0, atol=1e-3
    )
    said = [row[3] for row in phone.values(phone.privatize(rows)) if row[0] is not None]
    assert set(said) == {*MODES, None}
    again = decode_privatizer(encode_privatizer(fitted), "a")
    assert (again.texts, again.record()) == (fitted.texts, fitted.record())


def test_texts_that_are_not_those_of_the_values_are_refused() -> None:
    fitted = fit(LocalGaussian(epsilon=3))
    wrong = replace(fitted.categories[0], values=np.array([0.0, 1.0, 7.0]))
    data = encode_privatizer(replace(fitted, categories=(wrong,)))
    assert decode_privatizer(data, "a").texts["network_mode"]["5G"] == 7
    short = encode_privatizer(replace(fitted, categories=(replace(wrong, texts=("2G", "4G")),)))
    with pytest.raises(InputError, match="its record cannot be read"):
        decode_privatizer(short, "a")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_privatized_file_holds_texts_of_the_pilot_only(suffix: str, tmp_path: Path) -> None:
    write_privatizer(fit(Codebook(mu=1, size=10)), tmp_path / "codes.mapveil")
    fitted = read_privatizer(tmp_path / "codes.mapveil")
    rows = table([*MODES, "secret"], seed=3)
    path = tmp_path / f"rows.{suffix}"
    rows.to_csv(path, index=False) if suffix == "csv" else rows.to_parquet(path)
    made = privatize(fitted, path, rng=1)
    assert set(made.table["network_mode"].to_pylist()) == {*MODES, None}
    private = tmp_path / f"private.{suffix}"
    write_privatized(made, private)
    reports = read_reports(private)
    expected = fitted.reports(read_measurements(path, names=fitted.names, texts=fitted.texts), rng=1)
    np.testing.assert_array_equal(reports[:, 3], expected[:, 3])


def test_the_share_of_true_texts_is_that_of_epsilon() -> None:
    fitted = fit(LocalGaussian(epsilon=3))
    rows = read_measurements(table(["4G", "5G"], seed=4), names=fitted.names, texts=fitted.texts).rows
    said = fitted.privatize(np.tile(rows, (20, 1)), rng=1)[:, 3]
    true = np.tile(rows[:, 3], 20)
    # k = 4 values, "other" among them, at epsilon 1.
    assert float((said == true).mean()) == pytest.approx(np.e / (np.e + 3), abs=0.012)
