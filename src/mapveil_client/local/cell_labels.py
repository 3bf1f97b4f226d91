"""Reports of (cell, label) pairs: a phone's measurements, each a cell and a weak or strong signal, randomized.

A phone's contribution is a list of pairs with weights (:mod:`mapveil.analysis.coverage_contributions`). The phone draws
a bounded number of them in proportion to the weights, and reports each by local hashing over all pairs
(:mod:`mapveil_client.local.local_hashing`) with an equal part of its epsilon.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError, check
from mapveil_client.local.local_hashing import HashedReports, best_buckets
from mapveil_client.randomness.random import Randomness, uniform_below_each

LABELS = 2
"""Labels of a signal: weak and strong. Two are enough for a mean: a value between them is one of both by chance."""


class CellLabelReports(HashedReports):
    """The law of one report about ``cells * LABELS`` pairs; pair ``cell * LABELS + label``.

    Parameters
    ----------
    cells : int
        Number of cells, at least 1.
    epsilon : Fraction
        Privacy parameter of all reports of one phone together.
    reports : int
        Reports of a phone, at least 1.
    """

    def __init__(self, cells: int, epsilon: Fraction, reports: int) -> None:
        check(cells >= 1, "cells", "at least 1", cells)
        check(reports >= 1, "reports", "at least 1", reports)
        self.pairs, self.reports = cells * LABELS, reports
        each = epsilon / reports
        super().__init__(self.pairs, each, best_buckets(each, self.pairs))

    def randomize(self, starts: IntArray, pairs: IntArray, weights: IntArray, rng: Randomness) -> IntArray:
        """Draw and randomize the reports of phones. Run by: the client, or a simulation of many.

        Parameters
        ----------
        starts : ndarray of int64, shape (phones + 1,)
            Phone p's pairs are ``starts[p]:starts[p + 1]``, at least one.
        pairs : ndarray of int64, shape (entries,)
            From 0 to ``cells * LABELS - 1``.
        weights : ndarray of int64, shape (entries,)
            Above 0.
        rng : Randomness
            The source of bits; every probability is a ratio of integers and exact.

        Returns
        -------
        ndarray of int64, shape (phones * reports,)
            One symbol for each report.

        Raises
        ------
        InputError
            A pair or a weight outside its range, or a phone without a pair.
        """
        if (np.diff(starts) < 1).any() or (weights < 1).any():
            raise InputError("every phone needs a pair, with a weight of at least 1, got one without")
        if pairs.size and (pairs.min() < 0 or pairs.max() >= self.pairs):
            raise InputError(f"each pair must be from 0 to {self.pairs - 1}, got another number")
        phone = np.repeat(np.arange(starts.size - 1), self.reports)
        running = np.cumsum(weights)
        before = np.concatenate([[0], running])[starts[:-1]]
        total = np.concatenate([[0], running])[starts[1:]] - before
        drawn = before[phone] + uniform_below_each(total[phone], rng)
        entry = np.searchsorted(running, drawn, side="right")
        return self.draw(pairs[entry].astype(np.int64), rng)
