"""Every claim of the package, with the exact checks of it, and less noise planted wherever it draws any.

The table is made from the tables of methods and privatizers: a row that claims something is here, or the tests fail.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

import mapveil as mv
from mapveil.mechanisms.methods import METHODS, Method
from mapveil.mechanisms.private_fourier_kde import FeatureQuery
from mapveil.mechanisms.privtree import TreeQuery
from mapveil.obfuscation.privatizers.clipping import ClippedNoise
from mapveil.obfuscation.privatizers.lattice_noise import RESOLUTION
from mapveil.obfuscation.privatizers.privatizer import PRIVATIZERS
from mapveil.privacy.claim import Reveals
from mapveil.privacy.guarantee import Guarantee
from mapveil.random_features import geo_indistinguishability
from mapveil.registry import Row as Registered
from mapveil.trust.queries import Query
from mapveil_client.arrays import FloatArray
from mapveil_client.epsilon import power
from mapveil_client.gaussian_curve import gaussian_deviation
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

from ..local import test_randomizer as local
from . import faults
from .exact_checks import EPSILON, check_accounting
from .front_door import WAYS, check_front_door
from .series import LOCAL_SERIES, SERIES_AUDITED, check_local_series, check_series
from .worlds import REGION, ROWS, Row

CERTAIN = 1e-9
WHERE_TIGHT = {"privtree": Fraction(1, 5)}
"""Epsilon at which an adversarial pair costs nearly the whole claim, where that of the other checks leaves slack."""

NOISE_OF = {TreeQuery: faults.tree_noise, FeatureQuery: faults.features_noise}
"""Less noise in the reply to each query that only a curator answers."""


class Audit(NamedTuple):
    """The exact checks of one claim, and faults of less noise: as for ``factor`` times the epsilon."""

    check: Callable[[], object]
    faults: Callable[[Fraction], Iterator[Callable[[pytest.MonkeyPatch], None]]]

    def assert_catches(self, factor: Fraction) -> None:
        """The checks pass as it is, and fail with each fault alone."""
        self.check()
        planted = list(self.faults(factor))
        assert planted, "the claim draws no noise to plant a fault in"
        for plant in planted:
            with pytest.MonkeyPatch.context() as patch:
                plant(patch)
                with pytest.raises(AssertionError):
                    self.check()


def promise_of(method: Method) -> Guarantee:
    """The guarantee of a method, with its needed options."""
    options = {"bandwidth_m": 300.0} if "bandwidth_m" in method.options() else {}
    return method.make(1 if method.has_budget else None, options).guarantee()


def claims_something(promise: Guarantee) -> bool:
    """Whether it bounds a ratio of probabilities."""
    return promise.epsilon is not None or (
        promise.disclosure is not None and promise.disclosure.kind is Reveals.PLANAR_LAPLACE
    )


def _of_plan(row: Row) -> Audit:
    check = partial(check_accounting, row, WHERE_TIGHT.get(row.method.name, EPSILON))

    def each_query(factor: Fraction) -> Iterator[Callable[[pytest.MonkeyPatch], None]]:
        for query in check():
            one = isinstance(query, Query)
            yield faults.noise_of(query.purpose, factor) if one else NOISE_OF[type(query)](factor)

    return Audit(check, each_query)


def _of_series(name: str) -> Audit:
    check = partial(check_series, SERIES_AUDITED[name])
    return Audit(check, lambda factor: (faults.noise_of(query.purpose, factor) for query in check()))


def _of_summed_flows(name: str) -> Audit:
    purposes = ("trips from and to every zone", "blocks of zones", "leaves of the blocks")
    check = partial(check_front_door, name)
    return Audit(check, lambda factor: (faults.noise_of(purpose, factor) for purpose in purposes))


def check_local_ratio(name: str) -> None:
    """The exact worst ratio of a report is within the claim."""
    domain = Domain(mv.Grid(REGION, rows=2, columns=3))
    ratio = local.make(name, domain, EPSILON).worst_ratio()
    assert ratio <= power(EPSILON), "the ratio is above e^epsilon"


def _of_local(method: Method) -> Audit:
    def check() -> None:
        check_local_ratio(method.name)
        local.test_reports_follow_their_law_and_no_other(method.name)

    return Audit(check, lambda factor: iter([faults.local_epsilon(factor), faults.local_draws(factor)]))


def _follows(noise: FloatArray, cdf: Callable[[FloatArray], FloatArray]) -> None:
    assert stats.kstest(noise, cdf).pvalue > CERTAIN, "the noise is not that of the claim"


def _laplacian(noise: FloatArray, scale: float, end: float) -> FloatArray:
    inside = np.expm1(-np.minimum(np.abs(noise), end) / scale) / np.expm1(-end / scale)
    return np.asarray(0.5 + np.sign(noise) * inside / 2)


def _of_privatizer(row: Registered[Any]) -> Audit:
    """Reports at opposite ends stay as near as the claim assumes, and the noise is the least that it needs."""
    made = row.make({"epsilon": 1, "clip": 1.0})
    order, add, size = {
        "local-gaussian": (2, "add_gaussian", "deviation"),
        "truncated-laplacian": (1, "add_laplacian", "scale"),
    }[row.name]
    module = importlib.import_module(type(made).__module__)

    def check() -> None:
        rng, far = Randomness(1), np.random.default_rng(1).normal(size=(40_000, 3)) * 1e6
        state = made.learn(far, np.arange(len(far)), rng, lambda *given: None)
        promise = made.promise(state, 3)
        assert promise.epsilon is not None
        assert promise.bound is not None
        radius, epsilon = float(promise.bound.value), float(promise.epsilon)
        assert (epsilon, radius) == (1, 1), "the claim is another than was asked for"
        noise, moved = (made.privatize(state, rows, Randomness(2)) for rows in (far * 0, far))
        norms = np.linalg.norm(moved - noise, ord=order, axis=1)
        assert norms.max() <= radius, "a report lies outside the ball of the claim"
        smooth = (
            noise.ravel() + (np.random.default_rng(3).random(noise.size) - 0.5) * state[size] / RESOLUTION
        )
        if order == 2:
            _follows(smooth, stats.norm(scale=gaussian_deviation(epsilon, made.delta, 2 * radius)).cdf)
        else:
            scale = 2 * radius / epsilon
            end = scale * math.log1p(math.expm1(epsilon) / (2 * made.delta))
            _follows(smooth, lambda x: _laplacian(x, scale, end))

    def less_noise(factor: Fraction) -> Iterator[Callable[[pytest.MonkeyPatch], None]]:
        draw, clip = getattr(module, add), module.clip_rows
        small = float(1 / factor)
        yield lambda patch: patch.setattr(
            module, add, lambda rows, wide, *given: draw(rows, wide * small, *given)
        )
        yield lambda patch: patch.setattr(
            module, "clip_rows", lambda rows, radius, norm: clip(rows, radius / small, norm)
        )

    return Audit(check, less_noise)


def _of_geo_indistinguishability(method: Method) -> Audit:
    """Reports of one place follow the planar Laplace law of the claim."""
    room = geo_indistinguishability

    def check() -> None:
        mechanism = method.make(None, {"bandwidth_m": 300.0})
        disclosure = mechanism.guarantee().disclosure
        assert disclosure is not None
        said = dict(disclosure.parameters)
        grid = mv.Grid(REGION, rows=5, columns=5)
        sent: list[FloatArray] = []
        with pytest.MonkeyPatch.context() as patch:

            def kept(reports: FloatArray, where: Any, *given: Any) -> FloatArray:
                sent.append(reports - where.places[:, 12:13])
                return reports

            patch.setattr(room, "remap", kept)
            mechanism.release(mv.Counts(np.eye(25, dtype=np.int64)[12] * 40_000, grid), rng=1)
        radius = np.hypot(*np.concatenate(sent, axis=1))
        _follows(radius, stats.gamma(2, scale=said["radius_m"] / said["level"]).cdf)

    def less_noise(factor: Fraction) -> Iterator[Callable[[pytest.MonkeyPatch], None]]:
        draw = room.planar_laplace
        yield lambda patch: patch.setattr(
            room, "planar_laplace", lambda count, epsilon, rng: draw(count, epsilon * float(factor), rng)
        )

    return Audit(check, less_noise)


AUDITS: dict[str, Audit] = {
    **{str(row): _of_plan(row) for row in ROWS},
    **{f"local {each.name}": _of_local(each) for each in METHODS if each.trust == "local"},
    **{name: _of_series(name) for name in SERIES_AUDITED},
    **{
        name: Audit(partial(check_local_series, given), lambda factor: iter([faults.local_epsilon(factor)]))
        for name, given in LOCAL_SERIES.items()
    },
    "flows": Audit(partial(check_front_door, "flows"), lambda factor: iter([faults.local_epsilon(factor)])),
    **{name: _of_summed_flows(name) for name in WAYS if name.startswith("flows, ")},
    **{
        f"random-features {each.name}": _of_geo_indistinguishability(each)
        for each in METHODS
        if each.trust == "random-features" and claims_something(promise_of(each))
    },
    **{
        f"obfuscation {each.name}": _of_privatizer(each)
        for each in PRIVATIZERS
        if issubclass(each.load(), ClippedNoise)
    },
}
"""The audit of each claim, by the row's trust model, name and options."""
