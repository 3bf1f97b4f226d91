"""Faults that a test plants into the real code; the table of them is :mod:`.planted_faults`."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines import UNIT, duckdb_engine
from mapveil.mechanisms import multiscale, private_region, privtree
from mapveil.mechanisms.adaptive_histogram import AdaptiveHistogram
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.private_fourier_kde import FeatureQuery
from mapveil.mechanisms.privtree import PrivTree, TreeQuery
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy import discrete_laplace as sampler
from mapveil.privacy.claim import Share
from mapveil.trust import curator
from mapveil.trust.curator import CuratorAnswerer
from mapveil.trust.queries import Estimate, Query, Raster
from mapveil.trust.secure_aggregation.simulation import Simulation
from mapveil.trust.two_operators import OperatorsAnswerer
from mapveil_client import contribution
from mapveil_client.arrays import IntArray
from mapveil_client.local.local_hashing import HashedReports
from mapveil_client.local.randomizer import LocalMethod
from mapveil_client.morton import deinterleave
from mapveil_client.randomness.random import Randomness, uniform_below

Patch = pytest.MonkeyPatch
SMALL = Fraction(20, 17)  # of epsilon: noise 15 % small
HALF = Fraction(2)


def noise(factor: Fraction, copies_less: int = 0) -> Callable[[Patch], None]:
    """A curator's noise as for ``factor`` times the epsilon, or for fewer copies."""

    def plant(patch: Patch) -> None:
        def noisy_sums(sums: IntArray, epsilon: Fraction, rng: Randomness, copies: int = 1) -> Any:
            sensitivity = UNIT * max(copies - copies_less, 1)
            return (sums + curator.discrete_laplace(sums.size, epsilon * factor, sensitivity, rng)) / UNIT

        patch.setattr(curator, "noisy_sums", noisy_sums)

    return plant


def noise_of(purpose: str, factor: Fraction) -> Callable[[Patch], None]:
    """The noise of one query as for ``factor`` times its epsilon, a curator's, the clients' or the operators'."""

    def plant(patch: Patch) -> None:
        answer, draw, told = CuratorAnswerer._noisy, contribution.client_noise, OperatorsAnswerer._noisy

        def weak(self: CuratorAnswerer, query: Query) -> Any:
            with Patch.context() as inner:
                if query.purpose == purpose:
                    noise(factor)(inner)
                return answer(self, query)

        def weak_client(clients: int, query: Any, *given: Any) -> Any:
            epsilon = query.epsilon * (factor if query.purpose == purpose else 1)
            return draw(clients, dataclasses.replace(query, epsilon=epsilon), *given)

        def weak_operators(self: OperatorsAnswerer, query: Query, moves: int) -> Any:
            epsilon = query.epsilon * (factor if query.purpose == purpose else 1)
            return told(self, dataclasses.replace(query, epsilon=epsilon), moves)

        patch.setattr(CuratorAnswerer, "_noisy", weak)
        patch.setattr(contribution, "client_noise", weak_client)
        patch.setattr(OperatorsAnswerer, "_noisy", weak_operators)

    return plant


def exact_where(told: Callable[[int, IntArray], bool]) -> Callable[[Patch], None]:
    """No noise on some queries, given their number and their sums."""

    def plant(patch: Patch) -> None:
        noisy, asked = curator.noisy_sums, []

        def noisy_sums(sums: IntArray, *given: Any) -> Any:
            asked.append(sums.size)
            return sums / UNIT if told(len(asked), sums) else noisy(sums, *given)

        patch.setattr(curator, "noisy_sums", noisy_sums)

    return plant


def answers(change: Callable[[CuratorAnswerer, Any, Any], Any]) -> Callable[[Patch], None]:
    """A curator's reply, changed by what the curator knows."""

    def plant(patch: Patch) -> None:
        answer = CuratorAnswerer.answer
        patch.setattr(CuratorAnswerer, "answer", lambda self, query: change(self, query, answer(self, query)))

    return plant


def empty_cells_dropped(answerer: CuratorAnswerer, query: Any, reply: Any) -> Any:
    return reply._replace(values=np.where(answerer._exact(query.encoding) > 0, reply.values, 0.0))


def number_of_rows_told(answerer: CuratorAnswerer, query: Any, reply: Any) -> Any:
    return reply._replace(clients=int(answerer._sites.sum()) // UNIT)


def begins(change: Callable[[Any, IntArray], dict[str, Any]]) -> Callable[[Patch], None]:
    """A curator's answerer that begins with another setting, randomness or charge; ``change`` sees the exact sums."""

    def plant(patch: Patch) -> None:
        begin = CuratorAnswerer.__init__

        def init(self: Any, setting: Any, sums: IntArray, raster: Raster, execution: Any) -> None:
            given = {"setting": setting, "execution": execution}
            begin(self, sums=sums, raster=raster, **given | change(given, sums))

        patch.setattr(CuratorAnswerer, "__init__", init)

    return plant


def level_from_true_users(given: Any, sums: IntArray) -> dict[str, Any]:
    return {"setting": given["setting"]._replace(clients=max(int(sums.sum()) // UNIT, 1))}


def noise_seeded_by_the_data(given: Any, sums: IntArray) -> dict[str, Any]:
    return {"execution": given["execution"]._replace(rng=Randomness(int(sums.sum() % 1009)))}


def second_charge_skipped(given: Any, sums: IntArray) -> dict[str, Any]:
    charge, shares = given["execution"].before_reveal, []

    def first_only(share: Share) -> None:
        shares.append(share)
        if len(shares) == 1:
            charge(share)

    return {"execution": given["execution"]._replace(before_reveal=first_only)}


def charge_after_reveal(patch: Patch) -> None:
    answer = CuratorAnswerer.answer

    def late(self: Any, query: Any) -> Any:
        execution = self._execution
        self._execution = execution._replace(before_reveal=lambda share: None)
        reply = answer(self, query)
        self._execution = execution
        execution.before_reveal(query.share)
        return reply

    patch.setattr(CuratorAnswerer, "answer", late)


def share_understated(patch: Patch) -> None:
    patch.setattr(Query, "share", property(lambda self: Share(self.purpose, self.epsilon / 2)))


def budget_spent_twice(patch: Patch) -> None:
    patch.setattr(multiscale, "split_epsilon", lambda budget, weights: [budget] * len(weights))


def _spied(patch: Patch) -> list[IntArray]:
    """The exact sums per site of the last answerer, for plans that peep."""
    seen: list[IntArray] = [np.zeros(1, dtype=np.int64)]
    begin = CuratorAnswerer.__init__

    def init(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        seen[0] = self._sites.copy()

    patch.setattr(CuratorAnswerer, "__init__", init)
    return seen


def leaf_depths_from_exact_sums(patch: Patch) -> None:
    seen, depths = _spied(patch), Multiscale._depths

    def peep(self: Multiscale, setting: Any, blocks: Any, epsilon: float) -> IntArray:
        exact = np.zeros(blocks.shrunk.shape)
        row, col = deinterleave(np.arange(seen[0].size) >> (2 * (setting.depth - blocks.level)))
        np.add.at(exact, (row, col), seen[0] / UNIT)
        return depths(self, setting, blocks._replace(shrunk=exact), epsilon)

    patch.setattr(Multiscale, "_depths", peep)


def splits_from_exact_sums(patch: Patch) -> None:
    seen, verdict = _spied(patch), AdaptiveHistogram._verdict

    def peep(self: AdaptiveHistogram, state: Any) -> Any:
        owner = state.asked.owner(np.arange(seen[0].size))
        exact = np.bincount(owner, seen[0] / UNIT, state.asked.size)
        return verdict(self, state._replace(sums=state.sums._replace(values=exact)))

    patch.setattr(AdaptiveHistogram, "_verdict", peep)


def map_scaled_to_true_total(patch: Patch) -> None:
    seen, map_of = _spied(patch), SumMechanism.map_of

    def scaled(self: SumMechanism, made: Estimate, *given: Any, **named: Any) -> Any:
        total = seen[0].sum() / UNIT / max(made.values.sum(), 1.0)
        return map_of(self, made._replace(values=made.values * total), *given, **named)

    patch.setattr(SumMechanism, "map_of", scaled)


def notes_quote_a_true_count(patch: Patch) -> None:
    execute = SumMechanism.execute

    def quoting(self: SumMechanism, points: Any, *given: Any) -> Any:
        heat = execute(self, points, *given)
        return dataclasses.replace(
            heat, notes=(*heat.notes, f"{np.count_nonzero(points.sums)} cells with users")
        )

    patch.setattr(SumMechanism, "execute", quoting)


def tree_noise(factor: Fraction) -> Callable[[Patch], None]:
    rate: Any = TreeQuery._rate
    return lambda patch: patch.setattr(TreeQuery, "_rate", property(lambda self: factor * rate.fget(self)))


def tree_noise_of_the_leaves(patch: Patch) -> None:
    patch.setattr(TreeQuery, "_rate", property(lambda self: self.epsilon))


def tree_bias_forgotten(patch: Patch) -> None:
    def split(self: TreeQuery, masses: IntArray, level: int, rng: Randomness) -> Any:
        noise = privtree.discrete_laplace(masses.size, self._rate, UNIT, rng)
        return masses + noise > round(self.theta * UNIT)

    patch.setattr(TreeQuery, "_split", split)


def empty_nodes_not_split(patch: Patch) -> None:
    grow = TreeQuery._split
    patch.setattr(
        TreeQuery, "_split", lambda self, masses, level, rng: grow(self, masses, level, rng) & (masses > 0)
    )


def theta_from_the_data(patch: Patch) -> None:
    seen, plan = _spied(patch), PrivTree.plan
    patch.setattr(
        PrivTree,
        "plan",
        lambda self, setting: plan(
            dataclasses.replace(self, theta=float(seen[0].sum() / UNIT / 100)), setting
        ),
    )


def features_noise(factor: Fraction) -> Callable[[Patch], None]:
    reply = FeatureQuery.reply

    def cheap(self: FeatureQuery, *given: Any) -> Any:
        return reply(dataclasses.replace(self, epsilon=self.epsilon * factor), *given)

    return lambda patch: patch.setattr(FeatureQuery, "reply", cheap)


def region_is_the_bounding_box(patch: Patch) -> None:
    find = private_region.find_region

    def box(points: mv.Points, *given: Any) -> Any:
        found = find(points, *given)
        _, lon, lat = points.arrays()
        return found._replace(region=mv.Region.from_bbox(lon.min(), lat.min(), lon.max(), lat.max()))

    patch.setattr(private_region, "find_region", box)


def shape(change: Callable[..., Fraction]) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr("mapveil_client.method_parameters.share_shape", change)


def client_noise(factor: Fraction) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        draw = contribution.client_noise

        def client_noise(clients: int, query: Any, *given: Any) -> Any:
            return draw(clients, dataclasses.replace(query, epsilon=query.epsilon * factor), *given)

        patch.setattr(contribution, "client_noise", client_noise)

    return plant


def copies(encoding: type, less: Callable[[Any], int]) -> Callable[[Patch], None]:
    """An encoding whose sensitivity counts fewer copies of a location than it makes."""

    def plant(patch: Patch) -> None:
        sensitivity = contribution.sensitivity

        def too_low(query: Any, scale: int, rounding: Any) -> int:
            full = sensitivity(query, scale, rounding)
            return full - less(query) * scale if isinstance(query, encoding) else full

        for name in (
            "mapveil_client.contribution",
            "mapveil.trust.queries",
            "mapveil.trust.secure_aggregation.round_terms",
        ):
            patch.setattr(f"{name}.sensitivity", too_low)

    return plant


def remainder_adds_a_unit(patch: Patch) -> None:
    share = contribution.round_shares

    def generous(offsets: IntArray, *given: Any) -> IntArray:
        shares = share(offsets, *given)
        begins = offsets[:-1][np.diff(offsets) > 0]
        shares[begins] += 1
        return shares

    patch.setattr(contribution, "round_shares", generous)


def user_sums_sql(old: str, new: str) -> Callable[[Patch], None]:
    """The curator's sums of users by another text."""
    changed = duckdb_engine.USER_SUMS_SQL.replace(old, new)
    assert changed != duckdb_engine.USER_SUMS_SQL, f"the text has no {old!r} to plant a fault in"
    return lambda patch: patch.setattr(duckdb_engine, "USER_SUMS_SQL", changed)


def clients_outside_not_asked(patch: Patch) -> None:
    begin = Simulation.__init__

    def init(self: Any, model: Any, raster: Any, area: Any, devices: Any, *given: Any) -> None:
        inside = np.unique(devices.device()[devices.sites >= 0])
        begin(self, model, raster, area, devices.take(inside if inside.size else np.arange(9)), *given)

    patch.setattr(Simulation, "__init__", init)


def sampler_tables(patch: Patch) -> None:
    tables = sampler._sampler
    patch.setattr(
        sampler, "_sampler", lambda epsilon, sensitivity: tables(Fraction(epsilon) * SMALL, sensitivity)
    )


def clients_sampler(patch: Patch) -> None:
    room = importlib.import_module("mapveil_client.randomness.noise_shares")  # its function has the same name
    mean, sizes = room._mean_events, room.signed_logarithmic
    patch.setattr(
        room, "_mean_events", lambda length, alpha, epsilon, *on: mean(length, alpha, epsilon * SMALL, *on)
    )
    patch.setattr(room, "signed_logarithmic", lambda count, epsilon, *on: sizes(count, epsilon * SMALL, *on))


def local_epsilon(factor: Fraction) -> Callable[[Patch], None]:
    on = LocalMethod.on

    def larger(self: Any, domain: Any) -> Any:
        return on(dataclasses.replace(self, epsilon=factor * self.budget), domain)

    return lambda patch: patch.setattr(LocalMethod, "on", larger)


def local_draws(factor: Fraction) -> Callable[[Patch], None]:
    """Reports drawn as for ``factor`` times the epsilon, by randomizers that state the right one."""
    on = LocalMethod.on

    def careless(self: Any, domain: Any) -> Any:
        stated, drawn = on(self, domain), on(dataclasses.replace(self, epsilon=factor * self.budget), domain)
        stated._draw = drawn._draw
        return stated

    return lambda patch: patch.setattr(LocalMethod, "on", careless)


def hash_seed_from_the_data(patch: Patch) -> None:
    def draw(self: HashedReports, sites: IntArray, rng: Randomness) -> IntArray:
        function = sites % self.hashes.functions
        left = uniform_below(sites.size, self.total, rng) - self.surplus
        bucket = np.where(left < 0, self.hashes.values(function, sites), left // self.weights.less)
        return function * self.hashes.buckets + bucket

    patch.setattr(HashedReports, "draw", draw)
