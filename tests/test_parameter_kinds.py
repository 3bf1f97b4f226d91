"""A parameter of the wrong kind is refused at construction, in the words "NAME must be ..., got ..."."""

from __future__ import annotations

import math
import re

import pandas
import pytest

import mapveil as mv
from mapveil.mechanisms.methods import METHODS, Method
from mapveil.obfuscation.privatizers.privatizer import PRIVATIZERS
from mapveil.registry import Row
from mapveil_client.errors import ParameterError

HOSTILE = ("abc", 1.5, math.inf, math.nan, True, 1, 10**400, "", (), None)


@pytest.mark.parametrize("row", [*METHODS, *PRIVATIZERS], ids=lambda row: f"{row.name}")
def test_any_value_makes_a_mechanism_or_names_the_option(row: Method | Row) -> None:
    for name in row.options():
        for value in HOSTILE:
            needed = {each: 1 for each in ("epsilon", "sigma", "bandwidth_m") if each in row.options()} | {
                name: value
            }
            refusal = ""
            try:
                if isinstance(row, Method):
                    row.make(1 if row.has_budget else None, needed)
                else:
                    row.make(needed)
            except ParameterError as error:
                refusal = str(error)
            assert re.match(rf"{name} must be .*, got|no kernel|no estimator|$", refusal), refusal


@pytest.mark.parametrize(
    ("method", "trust", "option", "needed"),
    [
        ("multiscale", "central", {"depth": "abc"}, "depth must be a whole number or none, got 'abc'"),
        ("multiscale", "central", {"of": "all"}, "of must be population or devices, got 'all'"),
        ("multiscale", "central", {"slope": 1}, "slope must be true or false or none, got 1"),
        ("multiscale", "central", {"users": 1.5}, "users must be a whole number or none, got 1.5"),
        ("count-min", "distributed", {"key": 1}, "key must be a name, got 1"),
        ("olh", "local", {"buckets": math.inf}, "buckets must be a whole number or none, got inf"),
        ("privtree", "central", {"theta": "2"}, "theta must be a number, got '2'"),
    ],
)
def test_the_kind_is_said(method: str, trust: str, option: dict[str, object], needed: str) -> None:
    (row,) = [each for each in METHODS if (each.name, each.trust) == (method, trust)]
    with pytest.raises(ParameterError, match=f"^{re.escape(needed)}$"):
        row.make(1, option)


def test_numbers_of_numpy_and_fractions_are_numbers() -> None:
    import numpy as np

    assert mv.mechanisms.Multiscale(epsilon=1, shifts=np.int64(4), leaf_signal=np.float32(1.5)).shifts == 4
    with pytest.raises(ParameterError, match="shifts must be a whole number or none, got True"):
        mv.mechanisms.Multiscale(epsilon=1, shifts=True)


def test_a_frame_in_the_place_of_points_is_named() -> None:
    frame = pandas.DataFrame({"user": ["ann"], "lon": [-73.98], "lat": [40.75]})
    region = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
    with pytest.raises(ParameterError, match=r"got a DataFrame; read it: mv\.read_points\(\.\.\.\)"):
        mv.release(frame, region=region, epsilon=1)
