"""What holds of every privatizer of the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.export.privatizer_file import decode_privatizer, encode_privatizer
from mapveil.obfuscation.privatizers.clipping import ClippedNoise
from mapveil.obfuscation.privatizers.privatizer import PRIVATIZERS, FittedPrivatizer, find_privatizer
from mapveil.registry import Row
from mapveil_client.errors import InputError, ParameterError

Tables = Callable[..., Measurements]

# Small enough to fit in a second, and what has no default.
OPTIONS: dict[str, dict[str, Any]] = {
    "gaussian-noise": {"sigma": 0.5},
    "local-gaussian": {"epsilon": 10},
    "truncated-laplacian": {"epsilon": 10},
    "gap": {"steps": 20, "width": 32, "batch": 64},
    "codebook": {"size": 17},
}
LENGTHS = (1, 5)


@pytest.fixture(
    scope="module",
    params=[(row, length) for row in PRIVATIZERS for length in LENGTHS],
    ids=lambda pair: f"{pair[0].name}-{pair[1]}",
)
def fitted(request: pytest.FixtureRequest, made_up: Tables) -> FittedPrivatizer:
    row, length = request.param
    if row.name == "gap":
        pytest.importorskip("torch")
    return row.make({**OPTIONS[row.name], "sequence": length}).fit(made_up(1_200), rng=1)


def test_a_privatization_has_the_shape_of_the_rows_and_leaves_them_alone(
    fitted: FittedPrivatizer, made_up: Tables
) -> None:
    rows = made_up(40, seed=2).rows
    before = rows.copy()
    made = fitted.privatize(rows, rng=1)
    assert made.shape == rows.shape
    assert np.isfinite(made).all()
    assert (rows == before).all()
    assert (np.abs(made - rows) > 0).any(axis=1).all()
    assert fitted.privatize(rows[:0], rng=1).shape == (0, 5)


def test_a_seed_repeats_and_the_system_does_not(fitted: FittedPrivatizer, made_up: Tables) -> None:
    rows = made_up(400, seed=2).rows
    assert (fitted.privatize(rows, rng=1) == fitted.privatize(rows, rng=1)).all()
    assert (fitted.privatize(rows, rng=1) != fitted.privatize(rows, rng=2)).any()
    assert (fitted.privatize(rows) != fitted.privatize(rows)).any()


def test_one_measurement_is_a_vector_where_runs_are_of_one(fitted: FittedPrivatizer, made_up: Tables) -> None:
    row = made_up(1, users=2).rows[0]
    if fitted.privatizer.sequence == 1:
        assert fitted.privatize(row, rng=1).shape == row.shape
    else:
        with pytest.raises(InputError, match="whole runs of 5 with 5 features"):
            fitted.privatize(row)


def test_a_table_keeps_its_users_and_its_order(fitted: FittedPrivatizer, made_up: Tables) -> None:
    table = made_up(333, seed=3)
    shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
    made = fitted.privatize_measurements(shuffled, rng=1)
    assert (made.users == shuffled.users).all()
    assert (made.positions == shuffled.positions).all()
    assert (made.rows != shuffled.rows).any(axis=1).all()


def test_the_file_gives_the_same_privatizer(fitted: FittedPrivatizer, made_up: Tables) -> None:
    rows = made_up(40, seed=2).rows
    back = decode_privatizer(encode_privatizer(fitted), "a")
    assert back.privatizer == fitted.privatizer
    assert (back.privatize(rows, rng=1) == fitted.privatize(rows, rng=1)).all()


def test_the_guarantee_says_what_is_proved(fitted: FittedPrivatizer) -> None:
    promise = fitted.guarantee()
    assert promise.model == "obfuscation"
    assert promise.unit == "report"
    assert not promise.seeded
    assert fitted.guarantee(seeded=True).seeded
    formal = isinstance(fitted.privatizer, ClippedNoise)
    assert (promise.epsilon is not None) == formal
    assert (promise.delta > 0) == formal
    if not formal:
        assert "verage case" in promise.in_words()
    assert any("pilot" in text for name, text in promise.promise.rows if name == "assumes")


def test_a_repr_tells_no_row(fitted: FittedPrivatizer, made_up: Tables) -> None:
    shown = repr(fitted)
    assert len(shown) < 400
    assert f"{made_up(1_200).rows[0, 0]:.4f}" not in shown


@pytest.mark.parametrize("row", PRIVATIZERS, ids=lambda row: row.name)
def test_the_table_s_rows_are_whole(row: Row) -> None:
    made = row.make(OPTIONS[row.name])
    assert made.name == row.name
    assert find_privatizer(row.name) is row
    assert set(row.options()) == {item.name for item in dataclasses.fields(made)}
    assert type(made)(**made.parameters()) == made
    with pytest.raises(ParameterError, match=f"{row.name} has no option 'colour'; its options are "):
        row.make({"colour": 1})
    for sequence in (0, 1.5, "long", True, 1001):
        with pytest.raises(ParameterError, match="sequence"):
            row.make({**OPTIONS[row.name], "sequence": sequence})


def test_a_missing_option_and_an_unknown_name_are_named() -> None:
    with pytest.raises(ParameterError, match="gaussian-noise needs the option 'sigma'"):
        find_privatizer("gaussian-noise").make()
    with pytest.raises(ParameterError, match="sigma must be a number, got 'much'"):
        find_privatizer("gaussian-noise").make({"sigma": "much"})
    with pytest.raises(ParameterError, match="no privatizer is called 'noise'; there are gaussian-noise, "):
        find_privatizer("noise")
