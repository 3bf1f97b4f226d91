r"""Membership inference on maps of people: was somebody in the group that a map was made of?

The game: every person of a table is in a group with probability 1/2, each for themselves, and a map of the group is
published. The adversary sees the map and decides for each person, the target, whether they are in. It knows

- the true visits of the target, and of everybody;
- G maps of other groups, published the same way, and who was in them (Pyrgelis et al.: "participation in past groups").

It sums what the target's cells show, in the better of two ways for the past groups,

.. math:: s_t(a) = \sum_c \frac{x_{tc}\, a_c}{v_c + \eta}
          \quad\text{or}\quad s_t(a) = \sum_{c:\, x_{tc} > 0} \log(\max(a_c, 0) + \eta)

and turns the sum into a log-likelihood ratio with what the past groups show of it:

.. math:: \ell_t(a) = d_t\, \frac{s_t(a) - (\mu^1_t + \mu^0_t) / 2}{\sigma_t}, \qquad
          d_t = \bar d + \frac{V}{V + n_t} \left(\frac{\mu^1_t - \mu^0_t}{\sigma_t} - \bar d\right)

where: :math:`a_c` is the published value of cell c, :math:`x_{tc}` the contribution of target t to it, :math:`v_c` the
variance of :math:`a_c` over the past maps, :math:`\eta` a hundredth of a person; :math:`\mu^1_t, \mu^0_t, \sigma_t` are
the means of :math:`s_t` with t in and out and the deviation around them; :math:`\bar d` and V are the mean and the
variance over the targets of the standardised difference, V without the variance :math:`n_t` of its estimate. The first
sum is the best test between normal laws of independent cells, the second between Poisson laws: with one person more,
the likelihood of :math:`a_c` changes by the factor :math:`a_c / \lambda_c`.

In and out are add-or-remove neighbours, so epsilon bounds the ROC over all targets (:mod:`mapveil.attacks.roc`).

Deviations: (1) In the paper's game another person replaces the target, which costs 2 epsilon; here nobody does. (2) The
paper trains classifiers for each target; here one likelihood ratio per target, calibrated like that of Carlini et al.
(2022), shares its strength with all others, as a single target shows too little under noise. (3) A map is of the whole
table, not a series of windows.

Source: Pyrgelis, Troncoso and De Cristofaro, "Knock Knock, Who's There? Membership Inference on Aggregate Location
Data" (NDSS 2018): the distinguishability game and its two kinds of prior knowledge.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.sparse import csr_array, vstack

from mapveil.attacks.roc import Roc, roc
from mapveil.engines import UNIT, UserSums
from mapveil.engines.contributions import nobody_inside, user_cells
from mapveil.geo.tables import connection, reading
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.mechanism import Mechanism
from mapveil.privacy.claim import Neighbouring
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.geo.points import Points
    from mapveil.geo.tiling import Tiling
    from mapveil_client.randomness.random import Randomness

Progress = Callable[[str, float], None]

_ETA: Final = 0.01  # of a person: neither an empty cell nor one that never varied is worth infinitely much
_SUREST: Final = 10.0  # deviations: a target whose sums never overlapped is not infinitely apart


@dataclass(frozen=True)
class Publishing:
    """A way of publishing a map of people: a curator's mechanism, or the number of people in each cell."""

    name: str  # in words
    mechanism: Mechanism | None = None
    least: int = 0  # without a mechanism, cells with fewer people are left empty

    def publish(self, people: IntArray, sums: IntArray, tiling: Tiling, rng: Randomness) -> FloatArray:
        """Values of all cells, from people per cell, and from sums of contributions in 1 / UNIT user."""
        if self.mechanism is None:
            return np.where(people >= self.least, people, 0).astype(np.float64)
        return self.mechanism.release(UserSums(sums, tiling), tiling, account=None, rng=rng).values


def relabelled(points: Points, label: str | None) -> Points:
    """The same rows, labelled by an SQL expression or not at all."""
    columns, sql = (each._replace(label=label) for each in (points.columns, points.expressions))
    return dataclasses.replace(points, columns=columns, expressions=sql)


def common_people(one: Points, other: Points) -> int:
    """Number of user ids that are in both tables. Not private."""
    with connection() as opened, reading(one.source):
        ids = (f"SELECT CAST(user_id AS VARCHAR) FROM ({each.scan(opened)})" for each in (one, other))
        found = opened.execute(f"SELECT COUNT(*) FROM ({' INTERSECT '.join(ids)})").fetchall()
    return int(found[0][0])


def read_contributions(
    points: Points, tiling: Tiling, users: int, rng: np.random.Generator, *, least: int = 2
) -> Any:
    """Contributions of at most ``users`` people, drawn at random: sparse, (people, tiling.size), in 1 / UNIT.

    Raises
    ------
    InputError
        Fewer than ``least`` people have a row in the region.
    """
    found = user_cells(relabelled(points, None), tiling)
    number = found.starts.size - 1
    if number == 0:
        raise nobody_inside(points, tiling)
    if number < least:
        raise InputError(
            f"{points.source}: the attack needs at least {least} users in the region, got {number}"
        )
    shares = csr_array((found.shares, found.cells, found.starts), shape=(number, tiling.size))
    return shares if number <= users else shares[np.sort(rng.choice(number, users, replace=False))]


def attack_groups(
    shares: Any,
    tiling: Tiling,
    way: Publishing,
    groups: int,
    rng: Randomness,
    progress: Callable[[float], None],
) -> Roc:
    """Play the game with every person as a target in ``groups`` new groups, after as many past ones.

    ``shares`` are what :func:`read_contributions` returns.
    """
    held = np.unique(shares.indices)
    shares = shares[:, held]
    visits = (shares > 0).astype(np.int64)
    number = shares.shape[0]
    # Half of the past and half of the new groups hold each target, whoever else they hold.
    half = np.tile(np.arange(groups) < groups // 2, (number, 1))
    coins = rng.child("groups").generator()
    present = np.hstack([coins.permuted(half, axis=1), coins.permuted(half, axis=1)]).T
    maps = np.empty((2 * groups, held.size))
    people, sums = np.zeros((2, tiling.size), dtype=np.int64)
    for at, group in enumerate(present.astype(np.int64)):
        people[held], sums[held] = visits.T @ group, shares.T @ group
        maps[at] = way.publish(people, sums, tiling, rng.child(f"noise {at}"))[held]
        progress((at + 1) / len(maps))
    scores = _scores(maps, present[:groups], visits if way.mechanism is None else shares / UNIT, visits)
    guarantee = None
    if way.mechanism is not None:
        guarantee = float(way.mechanism.budget), float(way.mechanism.guarantee().delta)
    draw = np.repeat(np.arange(groups), number)
    bootstrap = rng.child("bootstrap").generator()
    return roc(way.name, scores.ravel(), present[groups:].ravel(), draw, bootstrap, guarantee)


def _scores(maps: FloatArray, present: BoolArray, weights: Any, visits: Any) -> FloatArray:
    """Log-likelihood ratios of every target in every new map, (new maps, people)."""
    past = len(present)
    sums = (
        (weights @ (maps / (maps[:past].var(axis=0) + _ETA)).T).T,
        (visits @ np.log(np.maximum(maps, 0.0) + _ETA).T).T,
    )
    calibrated = [_calibrated(each[:past], each[past:], present) for each in sums]
    return max(calibrated, key=lambda found: found[0])[1]


def _calibrated(past: FloatArray, new: FloatArray, present: BoolArray) -> tuple[float, FloatArray]:
    """The mean of d squared, and the log-likelihood ratios, by the formula of the module's header."""
    inside = present.sum(axis=0)
    outside = len(present) - inside
    mean1, mean0 = (past * present).sum(axis=0) / inside, (past * ~present).sum(axis=0) / outside
    around = past - np.where(present, mean1, mean0)
    deviation = np.sqrt(np.square(around).sum(axis=0) / (len(present) - 2))
    deviation = np.maximum(deviation, np.abs(mean1 - mean0) / _SUREST)
    deviation[deviation <= 0] = 1.0
    apart = (mean1 - mean0) / deviation
    noise = 1 / inside + 1 / outside
    varies = max(float(apart.var() - noise.mean()), 0.0)
    strength = apart.mean() + varies / (varies + noise) * (apart - apart.mean())
    return float(np.square(strength).mean()), strength * (new - (mean1 + mean0) / 2) / deviation


def attack_map(released: DensityMap, members: Any, others: Any, rng: Randomness) -> Roc:
    r"""Score known members and known non-members against one released map.

    .. math:: \ell_t = \sum_c \frac{x_{tc} (a_c - m_c) - x_{tc}^2 / 2}{v_c}, \qquad m_c = \bar x_c \sum_{c'} a_{c'},
              \qquad v_c = m_c + \eta + \max(0, \overline{(a - m)^2} - \overline{m})

    where: :math:`\bar x_c` is the mean contribution of a panel, half of the people of both tables; the other half are
    targets; overlines are means over the cells in which anybody was. The adversary knows the visits of the target and
    of the panel, not who of the panel is in (Pyrgelis et al.: "subset of locations").

    Parameters
    ----------
    released : DensityMap
        The map.
    members, others : sparse array, shape (people, tiling.size)
        Contributions of people who are in the map, and of people who could have been but are not.
    rng : Randomness
        Chooses the panel, and resamples targets.
    """
    shares = vstack([members, others], format="csr") / UNIT
    held = np.unique(shares.indices)
    shares = shares[:, held]
    sizes = (members.shape[0], others.shape[0])
    present = np.repeat([True, False], sizes)
    generator = rng.child("panel").generator()
    panel = np.concatenate([generator.permutation(size) % 2 == 0 for size in sizes])
    values, targets = released.values[held], shares[~panel]
    mean = np.asarray(shares[panel].mean(axis=0)).ravel() * max(float(released.values.sum()), 0.0)
    variance = mean + _ETA + max(float(np.square(values - mean).mean() - mean.mean()), 0.0)
    scores = targets @ ((values - mean) / variance) - (targets * targets) @ (1 / variance) / 2
    promise, bound = released.guarantee, None
    name = released.method
    if promise.epsilon is not None:
        name += f", epsilon {float(promise.epsilon):g}"
        if promise.neighbours is not Neighbouring.REPLACE_ONE:
            bound = (float(promise.epsilon), float(promise.delta))
    bootstrap = rng.child("bootstrap").generator()
    return roc(name, np.asarray(scores), present[~panel], np.arange(scores.size), bootstrap, bound)
