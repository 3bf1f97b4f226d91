"""The privacy funnel: codes chosen so that the best attacker on one report still learns little.

Mapveil offered it once. What it certifies is of the pilot and does not last, and its reports say of later days what the
pilot said: docs/explanation/obfuscation.md. It stays for the comparison at equal utility.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np

from mapveil.geo.measurements import RSS
from mapveil.obfuscation.privatizers.average_case import TradeOff, average_case
from mapveil.obfuscation.privatizers.codebook import choose_codes
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.obfuscation.privatizers.pilot_cells import Rows32, find_centres, nearest_centre, row_distances
from mapveil.obfuscation.privatizers.privatizer import Progress, State
from mapveil.obfuscation.utility import linear_parameters
from mapveil.privacy.claim import Assumes, Measured, Quantity, Reveals
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import check_whole
from mapveil_client.randomness.random import Randomness, uniforms

_CHUNK: Final = 1 << 13  # runs whose cells are found at once
_FEW: Final = 64  # runs whose own cells are searched sooner than all cells are summed
_SAMPLE: Final = 1 << 14  # runs that distances are taken of
_PART: Final = 8  # one run in so many is kept for the certificate
_STEP: Final = 2.0  # of the multiplicative weights, in units of the loss
_SOFTNESS: Final = 0.05  # of the attacker's choice between users while the game is played
_STARTING: Final = 3.0  # how strongly a cell first prefers the near codes
_SETTLING: Final = 12  # steps of Weiszfeld after the last round
_MATCHING: Final = 20  # steps towards the pilot's linear model
_SPREAD: Final = 0.01  # deviations by which codes are moved apart, in directions that nothing else tells
_TRIALS: Final = 8  # collections that the parameters' swing is measured on
_KEPT_RESIDUALS: Final = (1.0, 0.5, 0.25, 0.1, 0.0)  # fractions of the linear model's residuals


@dataclass(frozen=True, kw_only=True)
class Funnel(TradeOff):
    r"""Send one of a few codes, chosen at random by the cell a run lies in, so that codes tell little.

    .. math::

        \min_{q, y} \; \rho w_1 \sum_{i, c} \frac{q(c | a_i)}{n} \lVert y_c - x_i \rVert_2
        + (1 - \rho) \Big( v_1 \sum_c \max_u \sum_{i: u_i = u} \frac{q(c | a_i)}{n}
        - v_2 \sum_c \min_z \sum_i \frac{q(c | a_i)}{n} \lVert z - z_i \rVert_2 \Big)

    where: :math:`x_i`, :math:`u_i` and :math:`z_i` are run, user and place i of the n of the pilot, :math:`a_i` is
    the cell (nearest of ``cells`` centres) of :math:`x_i`, c one of ``codes`` codes, :math:`y_c` the rows it stands
    for, and q the channel. The two terms in v are :math:`1 - P_1` and :math:`-P_2` of the best attacker there can be
    on a code: a report is nothing but a code, so whatever an attacker is trained on, it does not do better.
    ``learn`` measures both on rows the game has not seen, and the guarantee states them.

    With :math:`w_2 > 0` the :math:`y_c` then move to where a regression on them, weighted by their use, gives the
    pilot's linear model of signal strength (equation 2). What they say of signal beyond that model they keep in the
    part (from all to nothing) that has the best :math:`w_1 U_1 + w_2 U_2` on rows the game has not seen.

    Run by: the curator of the pilot (``learn``), the client (``privatize``).

    Parameters
    ----------
    codes : int
        Codes at most.
    cells : int
        Cells at most; fewer where the pilot has fewer than 4 runs for each.
    rounds : int
        Rounds of the game.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Source: Mapveil's own; the game is that of Shokri et al. (CCS 2012), the objective a privacy funnel (Makhdoumi,
    Salamatian, Fawaz, Medard, ITW 2014) with the losses of Section 4 of Zhang et al. 2022 instead of information.
    """

    name: ClassVar[str] = "funnel"

    codes: int = 256
    cells: int = 800
    rounds: int = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.codes, "codes", 1, 1 << 12)
        check_whole(self.cells, "cells", 1, 1 << 16)
        check_whole(self.rounds, "rounds", 2, 1 << 16)

    def learn(self, pilot: FloatArray, users: IntArray, rng: Randomness, progress: Progress) -> State:
        """Play the game; see :class:`Privatizer`."""
        channel, certificate = play_funnel(self, pilot, users, rng, progress)
        return {**channel._asdict(), "certificate": np.array(certificate)}

    def privatize(self, state: State, rows: FloatArray, rng: Randomness) -> FloatArray:
        """Find each run's cell and draw one of the codes that it sends."""
        made = np.empty_like(rows)
        codes, weights = state["codes"], state["weights"]
        reached = np.cumsum(weights, axis=1).astype(np.float64) if len(rows) > _FEW else None
        for start in range(0, len(rows), _CHUNK):
            cells = nearest_centre(rows[start : start + _CHUNK], state["centres"])
            if reached is None:
                chosen = choose_codes(weights[cells], rng)
            else:
                chosen = _choose(reached, cells, rng)
            made[start : start + _CHUNK] = codes[chosen]
        return made

    def worst_epsilon(self, state: State, normalisation: Normalisation) -> float:
        """The largest ratio of two cells' probabilities of a code; see :class:`Privatizer`."""
        weights = np.asarray(state["weights"], dtype=np.float64)
        weights = weights / weights.sum(axis=1, keepdims=True)
        low, high = weights.min(axis=0), weights.max(axis=0)
        used = high > 0
        return float(np.inf if (low[used] == 0).any() else np.log(high[used] / low[used]).max())

    def promise(self, state: State, features: int) -> Guarantee:
        """Average case, with what the best attacker reaches on rows of the pilot kept aside."""
        user_error, place_error, _ = state["certificate"].tolist()
        against = "the best attacker there is on one report, on rows of the pilot kept aside"
        return average_case(
            Reveals.CODE(codes=len(state["codes"])),
            Assumes.PILOT_REPRESENTATIVE(),
            Assumes.UNLINKED_REPORTS(),
            Assumes.PILOT_RAW(),
            measured=(
                Measured(Quantity.USER_ERROR, user_error, "of reports", against),
                Measured(Quantity.PLACE_ERROR, place_error, "deviations", against),
            ),
        )


def _choose(reached: FloatArray, cells: IntArray, rng: Randomness) -> IntArray:
    """Draw as :func:`choose_codes` does, by one search among the cumulative sums of all cells' weights.

    The sums of cell i are shifted by 2 i, so that they ascend throughout; that rounds them to 2^-42.
    """
    count = reached.shape[1]
    keys = (reached + 2.0 * np.arange(len(reached))[:, None]).ravel()
    drawn = uniforms(len(cells), rng) * reached[cells, -1]
    found = np.searchsorted(keys, 2.0 * cells + drawn, side="right")
    return np.asarray(np.minimum(found - cells * count, count - 1), dtype=np.int64)


class Channel(NamedTuple):
    """A client's code book: the cell of a run, the codes that cell sends, and the rows they stand for."""

    centres: Rows32  # (cells, width)
    weights: Rows32  # (cells, codes), each row sums to 1
    codes: FloatArray  # (codes, width), normalised


class Certificate(NamedTuple):
    """Accuracy of the optimal attacker on one report."""

    user_error: float  # P_1: how often it names another user
    place_error: float  # P_2: mean distance of its place, deviations
    distortion: float  # -U_1, deviations


class _Sample(NamedTuple):
    """Runs that distances are taken of, in the order of their cells."""

    rows: Rows32
    places: Rows32  # (runs, 2 L)
    cells: IntArray
    starts: IntArray  # where each cell begins
    share: Rows32  # (runs,), of the whole pilot


def play_funnel(
    funnel: Funnel, pilot: FloatArray, users: IntArray, rng: Randomness, progress: Progress
) -> tuple[Channel, Certificate]:
    """Find the channel, the codes and what they are worth. Run by: the curator of the pilot.

    With the codes fixed, the funnel's loss is convex in the channel q: distortion is linear in it, and what the best
    attacker gets is the largest of functions linear in it. Every round the attacker answers the channel with its
    best guesses, the channel moves by multiplicative weights against them, and the codes move by one step of
    Weiszfeld's iteration towards the points that minimise distortion. The channel kept is the mean over the second
    half of the rounds. Then the codes move to where their linear model of signal strength is the pilot's. One run in
    eight takes no part in the game: the certificate is taken on those.

    The parameters are those of :meth:`Privatizer.learn`.
    """
    generator = rng.generator()
    length = funnel.sequence
    rows = pilot.astype(np.float32)
    codes_of_users = np.unique(users, return_inverse=True)[1]
    order = generator.permutation(len(rows))
    kept = order[: max(len(rows) // _PART, 1)]
    played = order[max(len(rows) // _PART, 1) :] if len(rows) >= 2 * _PART else order
    sampled = np.sort(played[:_SAMPLE])
    centres, nearest = find_centres(rows[sampled], max(min(funnel.cells, len(sampled) // 4), 1), generator)
    everyone = nearest_centre(rows[played], centres)
    sizes = np.bincount(everyone, minlength=len(centres))
    who = np.zeros((len(centres), codes_of_users.max() + 1), dtype=np.float32)
    np.add.at(who, (everyone, codes_of_users[played]), 1)
    who /= sizes[:, None]
    sample = _sample(rows[sampled], nearest, sizes / sizes.sum(), length)
    weights, played_codes = _play(funnel, sample, who, generator, progress)
    made = Channel(centres, weights, _settle(played_codes, weights, sample, length).astype(np.float64))
    if funnel.w2 > 0:
        model = linear_parameters(pilot.reshape(len(pilot) * length, -1))
        made = _match(funnel, made, sample, rows[kept], model, generator)
    return made, certify(made, rows[kept], codes_of_users[kept], length)


def certify(channel: Channel, rows: Rows32, users: IntArray, length: int) -> Certificate:
    r"""Evaluate the optimal attacker on one report of these rows, whose guess is a function of the code.

    .. math::

        P_1 = 1 - \sum_c \max_u \sum_{i: u_i = u} \frac{q(c | x_i)}{n}, \qquad
        P_2 = \sum_c \min_z \sum_i \frac{q(c | x_i)}{n} \lVert z - z_i \rVert_2

    where: q is the channel, c a code, :math:`u_i` and :math:`z_i` user and place of row i.

    Parameters
    ----------
    channel : Channel
        From rows to codes.
    rows : ndarray of float32, shape (runs, L x features)
        Normalised.
    users : ndarray of int64, shape (runs,)
        Codes from 0.
    length : int
        Measurements of a run (L); :math:`P_2` is the mean over them.
    """
    sent = channel.weights[nearest_centre(rows, channel.centres)]
    counts = np.zeros((users.max() + 1, sent.shape[1]))
    np.add.at(counts, users, sent)
    places = _places(rows, length)
    guesses = np.tile(np.median(places, axis=0), (sent.shape[1], 1)).astype(np.float32)
    for _ in range(4 * _SETTLING):
        guesses = _towards(sent, row_distances(places, guesses, length), places, guesses)
    off = row_distances(places, guesses, length)
    distortion = row_distances(rows, channel.codes.astype(np.float32), length)
    return Certificate(
        user_error=float(1 - counts.max(axis=0).sum() / len(rows)),
        place_error=float((sent * off).sum() / len(rows)),
        distortion=float((sent * distortion).sum() / len(rows)),
    )


def _sample(rows: Rows32, nearest: IntArray, mass: FloatArray, length: int) -> _Sample:
    order = np.argsort(nearest, kind="stable")
    cells = nearest[order]
    share = (mass / np.bincount(cells, minlength=len(mass)))[cells].astype(np.float32)
    return _Sample(
        rows[order], _places(rows[order], length), cells, np.searchsorted(cells, np.arange(len(mass))), share
    )


def _places(rows: Rows32, length: int) -> Rows32:
    return np.ascontiguousarray(rows.reshape(len(rows), length, -1)[:, :, :2].reshape(len(rows), -1))


def _play(
    funnel: Funnel, sample: _Sample, who: Rows32, generator: np.random.Generator, progress: Progress
) -> tuple[Rows32, Rows32]:
    length, rho = funnel.sequence, np.float32(funnel.rho)
    codes = find_centres(sample.rows, funnel.codes, generator, rounds=8)[0]
    guesses = _places(codes, length)
    mass = np.add.reduceat(sample.share, sample.starts)
    within = (sample.share / mass[sample.cells])[:, None]
    preference = np.zeros((len(mass), len(codes)), dtype=np.float32)
    total = np.zeros_like(preference)
    channel = np.full_like(preference, 1 / len(codes))
    for at in range(funnel.rounds):
        distortion = row_distances(sample.rows, codes, length)
        off = row_distances(sample.places, guesses, length)
        per_cell = np.add.reduceat(distortion * within, sample.starts)
        if at == 0:
            preference -= _STARTING * per_cell
        sent = channel * mass[:, None]
        belief = (sent.T @ who) / np.maximum(sent.sum(axis=0), 1e-12)[:, None]
        named = np.exp((belief - belief.max(axis=1, keepdims=True)) / np.float32(_SOFTNESS))
        named /= named.sum(axis=1, keepdims=True)
        loss = rho * np.float32(funnel.w1) * per_cell
        loss += (1 - rho) * np.float32(funnel.v1) * (who @ named.T)
        loss -= (1 - rho) * np.float32(funnel.v2) * np.add.reduceat(off * within, sample.starts)
        preference -= np.float32(_STEP) * loss
        preference -= preference.max(axis=1, keepdims=True)
        channel = np.exp(preference)
        channel /= channel.sum(axis=1, keepdims=True)
        if at >= funnel.rounds // 2:
            total += channel
        weights = channel[sample.cells] * sample.share[:, None]
        codes = _towards(weights, distortion, sample.rows, codes)
        guesses = _towards(weights, off, sample.places, guesses)
        progress("play", (at + 1) / funnel.rounds)
    return total / total.sum(axis=1, keepdims=True), codes


def _settle(codes: Rows32, channel: Rows32, sample: _Sample, length: int) -> Rows32:
    weights = channel[sample.cells] * sample.share[:, None]
    for _ in range(_SETTLING):
        codes = _towards(weights, row_distances(sample.rows, codes, length), sample.rows, codes)
    return codes


def _towards(weights: Rows32, distances: Rows32, points: Rows32, at: Rows32) -> Rows32:
    """One step of Weiszfeld's iteration for every code at once; a code nobody sends stays where it is."""
    pull = weights / distances
    strength = pull.sum(axis=0)
    moved = (pull.T @ points) / np.maximum(strength, 1e-20)[:, None]
    return np.where(strength[:, None] > 1e-12, moved, at).astype(np.float32)


def _match(
    funnel: Funnel,
    channel: Channel,
    sample: _Sample,
    kept: Rows32,
    model: FloatArray,
    generator: np.random.Generator,
) -> Channel:
    """Codes whose linear model of signal strength is the pilot's, with as many residuals as serve utility.

    Residuals carry signal beyond the linear model. Where features nearly depend on each other they make the
    parameters of few codes swing, so what they cost is measured on rows that took no part.
    """
    length = funnel.sequence
    mass = (channel.weights[sample.cells] * sample.share[:, None]).sum(axis=0)
    sent = channel.weights[nearest_centre(kept, channel.centres)]
    reached = np.cumsum(sent, axis=1, dtype=np.float64)
    trials = []
    for _ in range(_TRIALS):
        again = reached[generator.integers(len(kept), size=len(kept))]
        chosen = (again <= (generator.random(len(again)) * again[:, -1])[:, None]).sum(axis=1)
        trials.append(np.minimum(chosen, sent.shape[1] - 1))
    # Features that depend on each other nearly: codes so near to a plane of theirs that no regression tells would have
    # parameters of their own choice.
    spread = channel.codes + _SPREAD * generator.standard_normal(channel.codes.shape)
    best, found = -np.inf, channel
    for part in _KEPT_RESIDUALS:
        codes = _with_model(spread, mass, model, part, length)
        distortion = float((sent * row_distances(kept, codes.astype(np.float32), length)).sum() / len(kept))
        off = [
            float(np.abs(linear_parameters(codes[drawn].reshape(len(drawn) * length, -1)) - model).sum())
            for drawn in trials
        ]
        useful = -funnel.w1 * distortion - funnel.w2 * sum(off) / _TRIALS
        if useful > best:
            best, found = useful, channel._replace(codes=codes)
    return found


def _with_model(codes: FloatArray, mass: Rows32, model: FloatArray, part: float, length: int) -> FloatArray:
    """Move codes across the pilot's plane until their regression, weighted by use, is the plane."""
    rows = codes.reshape(len(codes) * length, -1).copy()
    root = np.sqrt(np.repeat(mass, length).astype(np.float64))[:, None]
    others = np.arange(rows.shape[1]) != RSS
    normal = np.insert(-model[1:], RSS, 1.0)

    def residual(off: FloatArray) -> FloatArray:
        design = np.hstack([np.ones((len(rows), 1)), rows[:, others]])
        return np.asarray(off - design @ np.linalg.lstsq(design * root, off * root[:, 0], rcond=1e-10)[0])

    kept = part * residual(rows @ normal - model[0])
    for _ in range(_MATCHING):
        # Straight across the plane is the shortest way, but it moves the other features too.
        off = rows @ normal - model[0]
        rows += ((residual(kept) - off) / (normal @ normal))[:, None] * normal
    rows[:, RSS] += residual(kept) - (rows @ normal - model[0])
    return np.asarray(rows.reshape(codes.shape))
