"""Releases as a user makes them: what a real account is charged, against what the replies cost, as exact fractions.

Every way of the package that charges an account runs about the decoy of :mod:`.watched_release`. The exact loss of each
reply, the worst over the adversarial neighbours, must be in the ledger's file when the reply is known, and the whole
charge must be the claim.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import mapveil as mv
from mapveil.analysis.trips import Trips
from mapveil.mechanisms.methods import METHODS
from mapveil_client.epsilon import power
from mapveil_client.errors import BudgetExceeded
from mapveil_client.local.randomizer import Randomizer

from .exact_checks import losses
from .watched_release import Record, watched
from .worlds import CLIENTS, TILING, Row, adversarial_table
from .worlds import SMALL as OPTIONS

EPSILON = Fraction(7, 10)
SMALL, FINE = (mv.Quadtree(TILING.region, depth=depth) for depth in (2, 6))

Released = tuple[Any, ...]


class Way(NamedTuple):
    """A way to charge an account."""

    release: Callable[[mv.Account, Fraction], Released]
    epsilon: Fraction = EPSILON


@dataclass
class Cost:
    """The exact cost of everything that was revealed, each time compared with what the account was charged."""

    account: mv.Account
    lost: Fraction = Fraction(0)  # of all noisy sums, the worst neighbour's
    reports: int = 0  # local ones, of all users
    record: Record = field(default_factory=Record)

    def of_sums(self, answerer: Any, query: Any, reply: Any) -> None:
        """A reply of noisy sums is known; a kept one, repeated by a release that is resumed, tells nothing new."""
        if not self.record.draws:
            return
        self.lost += max(losses(answerer, query, self.record))
        assert self.account.spent >= self.lost, f"replies cost {self.lost}, charged {self.account.spent}"

    def of_reports(self, randomizer: Randomizer, count: int) -> None:
        """Reports are about to be drawn, as many of each user."""
        self.reports += count
        each = -(-self.reports // CLIENTS)
        cost = randomizer.worst_ratio() ** each
        assert cost <= power(self.account.spent), f"{each} reports a user cost more than {self.account.spent}"


@contextmanager
def counted(budget: Fraction) -> Iterator[Cost]:
    """A new account in a ledger's file, and the cost of whatever is released in this block. Nothing is seeded."""
    draw = Randomizer.randomize

    def report(self: Randomizer, cells: Any, rng: Any) -> Any:
        cost.of_reports(self, np.size(cells))
        return draw(self, cells, rng)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Randomizer, "randomize", report)
        cost = Cost(mv.Account.open("people", budget=budget, ledger=Path(folder) / "ledger.sqlite"))
        with watched(lambda *given: cost.of_sums(*given)) as cost.record:
            yield cost


def check_front_door(name: str) -> None:
    """The account is charged at least the cost of each reply before the reply is used, and the claim in all."""
    way = WAYS[name]
    with counted(2 * way.epsilon) as cost:
        made, entries = way.release(cost.account, way.epsilon), cost.account.entries
        assert cost.account.remaining == 2 * way.epsilon - sum(entry.epsilon for entry in entries)
        for each in made:
            claim = each.guarantee
            named = () if claim.account is None else claim.account.entries
            own, entries = entries[: len(named)], entries[len(named) :]
            assert tuple(entry.id for entry in own) == named
            charged = sum((entry.epsilon for entry in own), Fraction(0))
            assert claim.account is None or claim.account.after - claim.account.before == charged
            paid = sum((share.epsilon for share in claim.shares), Fraction(0))
            whole = claim.epsilon or Fraction(0)
            claimed = paid if claim.model == "distributed" else whole
            assert paid <= whole
            assert charged == claimed, f"charged {charged}, claimed {claimed}"
        assert entries == (), "charges that no guarantee names"
        whole = sum((each.guarantee.epsilon or Fraction(0) for each in made), Fraction(0))
        assert whole == 0 or way.epsilon * Fraction(999, 1000) < whole <= way.epsilon
        # A cost of nothing could not see a fault.
        assert bool(whole) == (cost.lost > way.epsilon / 4 or cost.reports > CLIENTS / 2)


def check_refusal(name: str) -> None:
    """An account that lacks a thousandth of the epsilon refuses before anything is asked, drawn or charged."""
    way = WAYS[name]
    with counted(way.epsilon * Fraction(999, 1000)) as cost:
        with pytest.raises(BudgetExceeded):
            way.release(cost.account, way.epsilon)
        assert cost.account.entries == (), "charged before the refusal"
        assert (cost.record.queries, cost.reports) == ([], 0), "asked before the refusal"


def _release(row: Row) -> Way:
    method, options = row.method, dict(row.options)
    if "bandwidth_m" in method.options() and method.model is None:
        options["bandwidth_m"] = 150.0

    def release(account: mv.Account, epsilon: Fraction) -> Released:
        heat = mv.release(
            adversarial_table(TILING),
            {"local": SMALL, "random-features": FINE}.get(method.trust, TILING),
            epsilon=epsilon if method.has_budget else None,
            method=method.name,
            trust=method.trust,
            options=options,
            account=account,
        )
        return (heat,)

    return Way(release)


def _without_region(trust: str) -> Way:
    def release(account: mv.Account, epsilon: Fraction) -> Released:
        table = adversarial_table(TILING)
        return (mv.release(table, "quadtree:4", epsilon=epsilon, trust=trust, account=account),)

    return Way(release, Fraction(161, 10))  # enough to find one


def _with_protocol(account: mv.Account, epsilon: Fraction) -> Released:
    heat = mv.release(
        adversarial_table(TILING),
        TILING,
        epsilon=epsilon,
        method="uniform",
        trust="distributed",
        options={"shard_size": 60},
        secure_sum="protocol",
        account=account,
    )
    return (heat,)


def _session(trust: str, method: str) -> Way:
    def release(account: mv.Account, epsilon: Fraction) -> Released:
        session = mv.Session(adversarial_table(TILING), epsilon, account=account, split_by_weights=[2, 1])
        tiling = SMALL if trust == "local" else TILING
        made = tuple(session.release(tiling, method=method, trust=trust) for _ in range(2))
        assert session.remaining == 0
        return made

    return Way(release)


class _Stop(Exception):
    """The process of a release dies."""


def _resumed(trust: str) -> Way:
    """A release that dies in its second round, and is resumed."""

    def release(account: mv.Account, epsilon: Fraction) -> Released:
        table = adversarial_table(TILING)
        how: dict[str, Any] = {"epsilon": epsilon, "method": "adaptive-grid", "trust": trust}

        def die(step: str, done: float) -> None:
            if step == "second grid":
                raise _Stop

        with pytest.raises(_Stop):
            mv.release(table, TILING, account=replace(account, outputs=["map.tif"]), progress=die, **how)
        again = replace(account, outputs=["map.tif"], resume=True)
        return (mv.release(table, TILING, account=again, **how),)

    return Way(release)


def _flows(trust: str) -> Way:
    def release(account: mv.Account, epsilon: Fraction) -> Released:
        table, each = mv.synthetic.city(users=CLIENTS, seed=1), np.arange(CLIENTS)
        lon, lat = SMALL.centres()
        start, end = each % SMALL.size, (5 * each + 3) % SMALL.size
        trips = Trips(each, lon[start], lat[start], lon[end], lat[end], points=table)
        few = {} if trust == "local" else {"options": {"pair_signal": 1e6}}  # every kind of query
        return (mv.flows(trips, SMALL, epsilon=epsilon, trust=trust, account=account, **few),)

    return Way(release)


def _neighbours(account: mv.Account, epsilon: Fraction) -> Released:
    return (mv.neighbours(adversarial_table(TILING), SMALL, k=3, epsilon=epsilon, account=account),)


WAYS: dict[str, Way] = {
    **{f"{each.trust} {each.name}": _release(Row(each, OPTIONS.get(each.name, {}))) for each in METHODS},
    **{f"without a region, {trust}": _without_region(trust) for trust in ("central", "distributed")},
    "secure sums with cryptography": Way(_with_protocol),
    "session, central": _session("central", "adaptive-grid"),
    "session, distributed": _session("distributed", "adaptive-grid"),
    "session, local": _session("local", "grr"),
    "resumed, central": _resumed("central"),
    "resumed, distributed": _resumed("distributed"),
    "flows": _flows("local"),
    **{f"flows, {trust}": _flows(trust) for trust in ("central", "distributed", "operators")},
    "neighbours": Way(_neighbours),
}
"""Every way to charge an account, by name: all methods and trust models, and what is made of releases."""
