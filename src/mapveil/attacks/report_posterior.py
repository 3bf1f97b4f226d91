"""The best adversary on one randomized report of coverage: its posterior over where a phone measured, and whose it is.

It knows the law of the reports, and users, places and signals of labelled rows, whose fractions are its prior. It
answers every report with the place of least expected distance, of the squares' mean places, and with the likeliest
user. An adversary who is trained on reports has to learn that law. Not private.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_score import AdversaryScore, privacy
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError
from mapveil_client.local.cell_labels import LABELS, CellLabelReports
from mapveil_client.randomness.random import Randomness

_FUNCTIONS: Final = 64  # hash functions of a mean over all: every one is as good as any other
_ROWS: Final = 4096  # judged at a time


class ReportedRows(NamedTuple):
    """Rows as they would be reported."""

    evidence: SignalEvidence  # runs of one row: users and places
    square: IntArray  # shape (rows,)
    strong: FloatArray  # chance of the label strong, shape (rows,)

    def by_pair(self, columns: IntArray, count: int, pairs: int) -> FloatArray:
        """Rows' weights by pair and column, shape (pairs, count)."""
        made = np.zeros((pairs, count))
        for label, weight in enumerate((1 - self.strong, self.strong)):
            np.add.at(made, (self.square * LABELS + label, columns), weight)
        return made


def attack_reports(
    law: CellLabelReports, known: ReportedRows, judged: ReportedRows, rng: Randomness
) -> AdversaryScore:
    r"""Judge the best adversary on one report.

    .. math:: \hat x(y) = \arg\min_z \sum_{i} q(y \mid a_i) \lVert z - x_i \rVert_2, \qquad
              \hat u(y) = \arg\max_u \sum_{i:\, u_i = u} q(y \mid a_i)

    where: i are the labelled rows with users :math:`u_i`, places :math:`x_i` and pairs :math:`a_i`, q is the law of one
    report, and z one of the squares' mean places.

    Parameters
    ----------
    law : CellLabelReports
        The law of one report.
    known, judged : ReportedRows
        Labelled rows, and those whose reports are judged. Users that no labelled row has cannot be named.
    rng : Randomness
        The source of bits for the hash functions that are tried.

    Raises
    ------
    InputError
        No row to learn from or to judge.

    Source: R. Shokri et al., "Protecting location privacy: optimal strategy against localization attacks" (CCS 2012).
    """
    if not len(known.square) or not len(judged.square):
        raise InputError("no report to attack; expected rows in the region of both kinds")
    places, users = known.evidence.places[:, 0], known.evidence.users
    own = np.unique(known.square, return_inverse=True)[1]
    count = np.bincount(own).astype(np.float64)
    centres = np.stack([np.bincount(own, each) / count for each in places.T], axis=1)
    whole = np.concatenate([centres, places.mean(axis=0)[None]])
    away = np.stack([np.hypot(*(places - centre).T) for centre in whole], axis=1)  # (rows, candidates)
    # Cost of answering a pair's row with each candidate, and the number of each user's rows, by pair.
    cost = np.zeros((law.pairs, len(whole)))
    for label, weight in enumerate((1 - known.strong, known.strong)):
        np.add.at(cost, known.square * LABELS + label, weight[:, None] * away)
    names, person = np.unique(users, return_inverse=True)
    people = known.by_pair(person, names.size, law.pairs)
    functions = rng.generator().choice(
        law.hashes.functions, min(_FUNCTIONS, law.hashes.functions), replace=False
    )
    answered = np.zeros((law.pairs, len(whole)))
    named = np.zeros((law.pairs, names.size))
    buckets = np.arange(law.hashes.buckets)
    for function in functions:
        bucket = law.hashes.values(np.full(law.pairs, function), np.arange(law.pairs))
        channel = (law.surplus * (buckets[:, None] == bucket) + law.weights.less) / law.total
        np.add.at(answered.T, (channel @ cost).argmin(axis=1), channel / functions.size)
        np.add.at(named.T, (channel @ people).argmax(axis=1), channel / functions.size)
    p1, p2, metres = _judged(judged, whole, answered, named, names)
    return AdversaryScore("posterior", "own", p1, math.nan, p2, metres, privacy(p1, p2), len(judged.square))


def _judged(
    judged: ReportedRows, whole: FloatArray, answered: FloatArray, named: FloatArray, names: IntArray
) -> tuple[float, float, float]:
    """Errors of user and place over the judged rows: the expectation over their reports."""
    evidence = judged.evidence
    apart, metres, right, nameable = 0.0, 0.0, 0.0, np.isin(evidence.users, names)
    for at in range(0, len(evidence), _ROWS):
        part = evidence.take(np.arange(at, min(at + _ROWS, len(evidence))))
        square, strong = judged.square[at : at + _ROWS] * LABELS, judged.strong[at : at + _ROWS, None]
        answer, name = ((1 - strong) * each[square] + strong * each[square + 1] for each in (answered, named))
        for column, place in enumerate(whole):
            guess = np.broadcast_to(place, part.places.shape)
            apart += float(answer[:, column] @ np.hypot(*(part.places[:, 0] - place).T))
            metres += float(answer[:, column] @ part.metres_from(guess)[:, 0])
        kept = np.flatnonzero(nameable[at : at + _ROWS])
        right += float(name[kept, np.searchsorted(names, part.users[kept])].sum())
    p1 = 1 - right / nameable.sum() if nameable.any() else math.nan
    return float(p1), apart / len(evidence), metres / len(evidence)
