"""Every published vector, byte for byte; of the negative ones, every operation that must fail."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

from mapveil_client.two_operators import field_arithmetic, turbo_shake, validity_circuits
from mapveil_client.two_operators.finite_fields import FIELD64, FIELD128, FIELD255
from mapveil_client.two_operators.idpf import Tree, read_corrections, write_corrections
from mapveil_client.two_operators.xofs import TurboShakeXof, fixed_key_stream, fixed_keys

from .published_vectors import FOLDER, read, row, run_vector

NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
VDAFS = [name for name in NAMES if name.startswith(("Prio3", "Poplar1"))]


@pytest.fixture(params=[False, True], ids=["NumPy", "compiled"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        pytest.importorskip("numba")
    for module in (field_arithmetic, turbo_shake):
        monkeypatch.setattr(module, "COMPILE_AFTER_S", 0.0 if request.param else math.inf)


@pytest.mark.parametrize("name", VDAFS)
@pytest.mark.usefixtures("compiled")
def test_vector(name: str) -> None:
    assert run_vector(name)


def test_every_kind_and_negative_vectors_are_there() -> None:
    if not NAMES:
        pytest.skip(f"{FOLDER} holds no vectors")
    known = ("Prio3", "Poplar1", "Xof", "Idpf")
    assert [name for name in NAMES if not name.startswith(known)] == []


def test_devices_carry_the_circuit_of_their_reports_and_no_other() -> None:
    """Circuits that only vectors use are in :mod:`.vector_circuits`: code that no release runs is not shipped."""
    shipped = [
        name
        for name, each in inspect.getmembers(validity_circuits, inspect.isclass)
        if issubclass(each, validity_circuits.Circuit) and not inspect.isabstract(each)
    ]
    assert shipped == ["L1BoundSum"]


def _of(name: str) -> None:
    if name not in NAMES:
        pytest.skip(f"{FOLDER} has no {name}")


@pytest.mark.usefixtures("compiled")
def test_turbo_shake_xof() -> None:
    _of("XofTurboShake128")
    vector = read("XofTurboShake128")
    xof = TurboShakeXof(row(vector["seed"]), bytes.fromhex(vector["dst"]), [row(vector["binder"])], 1)
    assert xof.octets(32).tobytes().hex() == vector["derived_seed"]
    found = FIELD128.encode(xof.elements(FIELD128, vector["length"]))
    assert found.tobytes().hex() == vector["expanded_vec_field128"]


def test_fixed_key_xof() -> None:
    _of("XofFixedKeyAes128")
    vector = read("XofFixedKeyAes128")
    keys = fixed_keys(bytes.fromhex(vector["dst"]), row(vector["binder"]))
    stream = fixed_key_stream(keys, row(vector["seed"])[:, None], vector["length"])
    assert stream.tobytes().hex() == vector["expanded_vec_field128"]


def test_point_function() -> None:
    _of("IdpfBBCGGI21_0")
    vector = read("IdpfBBCGGI21_0")
    bits = int(vector["bits"])
    tree = Tree(bits, bytes.fromhex(vector["ctx"]), row(vector["nonce"]))
    inner = FIELD64.of(int(value) for pair in vector["beta_inner"] for value in pair).reshape(
        1, bits - 1, 2, 1
    )
    leaf = FIELD255.of(int(value) for value in vector["beta_leaf"]).reshape(1, 2, 4)
    path = np.array([vector["alpha"]], dtype=np.bool_)
    words, keys = tree.generate(path, inner, leaf, row("".join(vector["keys"])))
    written = write_corrections(words)
    assert written.tobytes().hex() == vector["public_share"]
    assert [key.tobytes().hex() for key in keys] == vector["keys"]
    again, good = read_corrections(written, bits)
    assert good.all()
    assert write_corrections(again).tobytes() == written.tobytes()
