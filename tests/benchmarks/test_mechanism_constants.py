"""The page of the default mechanism's constants: its defaults are those of the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import mapveil as mv
from benchmarks.mechanism_constants import SEEDS, VARIED, by_seed, default_of
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.trust.curator import Curator
from mapveil.trust.secure_aggregation.model import SecureAggregation

PAGE = Path(__file__).parents[2] / "docs/reference/mechanism-constants.md"
TABLES = {"By a curator:": "curator", "Over secure sums:": "secure sums", "## Estimator": "local reports"}
TILING = mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=6)


def test_the_page_states_the_defaults_that_the_code_has() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for head, kind in TABLES.items():
        table = text.partition(head)[2].partition("| constant |")[2].partition("\n\n")[0].splitlines()[2:]
        stated = [tuple(cell.strip() for cell in row.split("|")[1:3]) for row in table]
        expected = [(constant.name, default_of(constant, kind)) for constant in VARIED[kind]]
        assert [(name.strip("`").rpartition(".")[2], default) for name, default in stated] == expected


def test_a_default_is_what_the_mechanism_takes() -> None:
    for trust, kind in ((Curator(), "curator"), (SecureAggregation(), "secure sums")):
        defaults = {
            constant.name: float(default_of(constant, kind))
            for constant in VARIED[kind]
            if constant.owner is None and constant.name != "users_share"
        }
        crowd = mv.Counts(np.random.default_rng(1).poisson(3.0, TILING.size), TILING)
        given: dict[str, Any] = {**defaults, "shifts": int(defaults["shifts"])}
        plain, stated = (
            Multiscale(epsilon=1, trust=trust, **more).release(crowd, TILING, account=None, rng=1)
            for more in (dict[str, Any](), given)
        )
        assert np.array_equal(plain.values, stated.values), kind


def test_scenes_of_one_seed_count_once_in_an_interval() -> None:
    seeds = np.arange(len(SEEDS))
    for kind in ("curator", "secure sums"):
        scenes = np.array([[seed, seed + 2, -seed, -seed] for seed in seeds]).ravel()
        assert np.array_equal(by_seed(kind, scenes), [seeds + 1, -seeds])
    assert np.array_equal(by_seed("local reports", np.concatenate([seeds, seeds + 2])), [seeds + 1])
