"""On a phone: the same rows from the same random numbers, fast, small, and with hardly anything imported."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.export.phone import PhonePrivatizer, SystemBits, read_phone_privatizer, seal
from mapveil.obfuscation.export.phone_export import LARGEST_BYTES, export_privatizer
from mapveil.obfuscation.privatizers.privatizer import PRIVATIZERS, FittedPrivatizer, find_privatizer
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

Tables = Callable[..., Measurements]

OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("gaussian-noise", {"sigma": 0.5}),
    ("local-gaussian", {"epsilon": "1/3"}),
    ("truncated-laplacian", {"epsilon": 10}),
    ("gap", {"steps": 20, "batch": 64}),
    ("gap", {"steps": 20, "batch": 64, "noise": 0}),
    ("codebook", {"mu": 0.6}),
    ("codebook", {"mu": 0.8, "raw": True}),
]


@pytest.fixture(
    scope="module",
    params=[(name, {**options, "sequence": length}) for name, options in OPTIONS for length in (1, 5)],
    ids=lambda given: "-".join(map(str, [given[0], *given[1].values()])),
)
def pair(
    request: pytest.FixtureRequest, made_up: Tables, tmp_path_factory: pytest.TempPathFactory
) -> tuple[FittedPrivatizer, PhonePrivatizer, Path]:
    name, options = request.param
    if name in ("gap", "codebook"):
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    if name == "gap":
        pytest.importorskip("torch")
    fitted = find_privatizer(name).make(options).fit(made_up(1_200), rng=1)
    path = tmp_path_factory.mktemp("phone") / ("a.onnx" if name in ("gap", "codebook") else "a.json")
    export_privatizer(fitted, path)
    return fitted, read_phone_privatizer(path), path


Pair = tuple[FittedPrivatizer, PhonePrivatizer, Path]


def test_the_phone_gives_what_the_trained_privatizer_gives(pair: Pair, made_up: Tables) -> None:
    fitted, phone, _ = pair
    rows = made_up(2_000, seed=2).rows
    expected = fitted.privatize(rows, rng=Randomness(5))
    found = phone.privatize(rows, rng=Randomness(5))
    off = np.abs(found - expected) / fitted.normalisation.scale
    # Where a code is drawn, a uniform number within 1e-6 of a boundary may fall on its other side.
    drawn = fitted.privatizer.name == "codebook"
    assert (off > 1e-5).any(axis=1).mean() <= (0.005 if drawn else 0)
    assert np.abs(expected - rows).max() > 1e-3


def test_the_phone_draws_afresh(pair: Pair, made_up: Tables) -> None:
    fitted, phone, _ = pair
    rows = made_up(400, seed=2).rows
    assert phone.names == fitted.names
    assert phone.guarantee == fitted.guarantee()
    if fitted.privatizer.name == "gap" and fitted.privatizer.parameters()["noise"] == 0:
        assert (phone.privatize(rows) == phone.privatize(rows)).all()
    else:
        assert (phone.privatize(rows) != phone.privatize(rows)).any()


def test_files_are_small_and_rows_are_checked(pair: Pair, made_up: Tables) -> None:
    _, phone, path = pair
    assert path.stat().st_size <= LARGEST_BYTES
    rows = made_up(10, seed=2).rows
    assert phone.privatize(rows[:0]).shape == (0, 5)
    for bad in (rows[:, :4], rows[None], rows[:7] if phone.sequence > 1 else rows[:, :2]):
        with pytest.raises(InputError, match="rows of shape"):
            phone.privatize(bad)
    rows[3, 1] = np.inf
    with pytest.raises(InputError, match="missing or not finite"):
        phone.privatize(rows)
    assert "lat" in repr(phone)


def test_a_row_is_a_vector(pair: Pair, made_up: Tables) -> None:
    _, phone, _ = pair
    if phone.sequence == 1:
        assert phone.privatize(made_up(1, users=2).rows[0]).shape == (5,)


def test_truncated_and_changed_files_are_refused(pair: Pair, tmp_path: Path) -> None:
    _, _, path = pair
    whole = path.read_bytes()
    broken = tmp_path / path.name
    for cut in (0, 1, 5, len(whole) // 2, len(whole) - 3):
        broken.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"a\.(json|onnx): "):
            read_phone_privatizer(broken)
    if path.suffix == ".onnx":
        at = len(whole) // 3
        broken.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InputError, match="truncated or changed"):
            read_phone_privatizer(broken)
    broken.write_bytes(whole.replace(b"mapveil phone 3", b"mapveil phone 2"))
    with pytest.raises(InputError, match=r"phone 2'; expected 'mapveil phone 3'|truncated or changed"):
        read_phone_privatizer(broken)


def test_the_longest_sequences_fit_too(made_up: Tables, tmp_path: Path) -> None:
    for module in ("onnx", "onnxruntime", "torch"):
        pytest.importorskip(module)
    # Twenty measurements of fifteen features, as in the paper's own data: weights in half precision, exactly.
    pilot = made_up(400, users=2, further=12)
    fitted = find_privatizer("gap").make({"steps": 4, "batch": 8, "sequence": 20}).fit(pilot, rng=1)
    path = tmp_path / "a.onnx"
    export_privatizer(fitted, path)
    assert path.stat().st_size < 700_000
    off = read_phone_privatizer(path).privatize(pilot.rows[:200], rng=Randomness(5))
    off -= fitted.privatize(pilot.rows[:200], rng=Randomness(5))
    assert np.abs(off / fitted.normalisation.scale).max() < 1e-5


def test_every_privatizer_is_tried_here() -> None:
    assert {row.name for row in PRIVATIZERS} == {name for name, _ in OPTIONS}


def test_exports_that_no_phone_could_use_leave_nothing(made_up: Tables, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    noise = find_privatizer("gaussian-noise").make({"sigma": 1}).fit(made_up(50))
    with pytest.raises(InputError, match=r"gaussian-noise is exported as \.json"):
        export_privatizer(noise, tmp_path / "a.onnx")
    batches = find_privatizer("codebook").make({"batch": 32}).fit(made_up(200), rng=1)
    with pytest.raises(ParameterError, match="a codebook of batch 32"):
        export_privatizer(batches, tmp_path / "a.onnx")
    large = find_privatizer("codebook").make({"size": 60_000}).fit(made_up(200), rng=1)
    with pytest.raises(
        InputError, match=r"would take [0-9,]+ bytes; expected at most 1,000,000: fit it with fewer"
    ):
        export_privatizer(large, tmp_path / "a.onnx")
    with pytest.raises(InputError, match="there is no folder"):
        export_privatizer(noise, tmp_path / "none" / "a.json")
    with pytest.raises(InputError, match="cannot be read"):
        read_phone_privatizer(tmp_path / "none.json")
    assert list(tmp_path.iterdir()) == []


def test_a_json_record_of_nonsense_is_an_error_of_ours(made_up: Tables, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    export_privatizer(find_privatizer("gaussian-noise").make({"sigma": 1}).fit(made_up(50)), path)
    record = json.loads(path.read_bytes())
    for member in ("normalisation", "state", "features", "parameters", "method", "guarantee"):
        path.write_text(json.dumps({key: value for key, value in record.items() if key != member}))
        with pytest.raises(InputError, match="its record cannot be read"):
            read_phone_privatizer(path)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("local-gaussian", {"epsilon": 5}),
        ("truncated-laplacian", {"epsilon": 5}),
        ("truncated-laplacian", {"epsilon": 5, "calibration": "paper"}),
        ("gaussian-noise", {"sigma": 1}),
    ],
)
def test_a_phone_charges_for_the_noise_that_it_adds(
    made_up: Tables, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    path = tmp_path / "a.json"
    fitted = find_privatizer(name).make(options).fit(made_up(50))
    export_privatizer(fitted, path)
    honest = json.loads(path.read_bytes())
    ratio, epsilon, delta, distance = honest["report_cost"]
    cheaper: list[dict[str, Any]] = [
        {"report_cost": [(0.0).hex(), "0", "0", "0"]},
        {"report_cost": [ratio, "1/2", delta, distance]},
        {"report_cost": [ratio, epsilon, delta, "-1"]},
    ]
    if honest["guarantee"]["epsilon"] is not None:
        cheaper.append({"guarantee": {**honest["guarantee"], "epsilon": "4"}})
        cheaper.append({"guarantee": {**honest["guarantee"], "delta": "0"}})
        # A thousandth of the noise, under the cost and the guarantee of the whole.
        noise = "scale" if "scale" in honest["state"] else "deviation"
        cheaper.append({"state": {**honest["state"], noise: honest["state"][noise] / 1000}})
        cheaper.append({"state": {**honest["state"], noise: -honest["state"][noise]}})
    if name == "local-gaussian":
        cheaper.remove({"report_cost": [ratio, "1/2", delta, distance]})  # more than it costs
    for change in cheaper:
        path.write_text(json.dumps({**honest, **change}))
        with pytest.raises(InputError, match=r"a\.json: (claims ratio|its record cannot be read)"):
            read_phone_privatizer(path)
    # A file that claims more is read, and charged for what holds.
    path.write_text(json.dumps({**honest, "report_cost": [(100.0).hex(), None, "1/2", "1/2"]}))
    phone = read_phone_privatizer(path)
    assert (phone.report_cost, phone.guarantee) == (fitted.report_cost, fitted.guarantee())


def test_a_model_costs_at_least_its_worst_case(made_up: Tables, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    path = tmp_path / "a.onnx"
    fitted = find_privatizer("codebook").make({}).fit(made_up(200), rng=1)
    export_privatizer(fitted, path)
    model = onnx.load(path)
    record = json.loads(next(each.value for each in model.metadata_props if each.key == "mapveil"))
    for props in ("sha256", "mapveil"):
        model.metadata_props.remove(next(each for each in model.metadata_props if each.key == props))
    entry = model.metadata_props.add()
    entry.key = "mapveil"
    assert read_phone_privatizer(path).report_cost == fitted.report_cost
    unbounded = {**record["guarantee"], "measured": []}
    for change in ({"report_cost": [(9.0).hex(), "1", "0", "0"]}, {"guarantee": unbounded}):
        entry.value = json.dumps({**record, **change})
        path.write_bytes(seal(model.SerializeToString()))
        with pytest.raises(InputError, match=r"a\.onnx: claims ratio .* fetch it again from whom you trust"):
            read_phone_privatizer(path)


def test_the_model_is_plain_onnx(made_up: Tables, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "a.onnx"
    export_privatizer(find_privatizer("codebook").make({}).fit(made_up(200), rng=1), path)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    kept = {entry.key: entry.value for entry in model.metadata_props}
    assert kept["sha256"] == hashlib.sha256(path.read_bytes()[:-76]).hexdigest()
    assert json.loads(kept["mapveil"])["method"] == "codebook"
    assert [one.name for one in model.graph.input] == ["rows", "uniform"]


def test_the_system_s_bits_are_uniform() -> None:
    words = SystemBits().words(100_000, np.uint8)
    counts = np.bincount(words, minlength=256)
    # Chi-squared of 255 degrees: 500 has a probability below 1e-16.
    assert ((counts - 390.625) ** 2 / 390.625).sum() < 500
    assert not SystemBits().child("a").seeded


@pytest.mark.parametrize("kind", ["json", "onnx"])
def test_a_phone_needs_numpy_and_the_runtime_only(made_up: Tables, tmp_path: Path, kind: str) -> None:
    name, options = ("local-gaussian", {"epsilon": 1}) if kind == "json" else ("codebook", {})
    if kind == "onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    path = tmp_path / f"a.{kind}"
    fitted = find_privatizer(name).make(options).fit(made_up(200), rng=1)
    export_privatizer(fitted, path)
    heavy = [
        "scipy",
        "torch",
        "duckdb",
        "pandas",
        "pyarrow",
        "cryptography",
        "sklearn",
        "onnx",
        "shapely",
        "pyproj",
    ]
    code = (
        "import sys, json, numpy as np\n"
        "from mapveil.obfuscation.export.phone import read_phone_privatizer\n"
        f"made = read_phone_privatizer({str(path)!r}).privatize(np.array({fitted.normalisation.mean.tolist()}))\n"
        f"print(json.dumps([name for name in {heavy} if name in sys.modules]), len(made))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "5"]
