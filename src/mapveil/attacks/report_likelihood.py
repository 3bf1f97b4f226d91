r"""One device's randomized reports, and what an auditor reads from each: which of two locations made it likelier.

.. math:: \ell(y) = \ln \frac{q(y \mid x)}{q(y \mid x')}

where: q is the channel that the server inverts, y a report, x and x' are two locations. No statistic of one report
tells the two locations further apart (Neyman and Pearson). Where a report is a set of sites, :math:`\ell` grows with
[x in y] - [x' in y], which stands for it.
"""

from __future__ import annotations

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SymbolRandomizer
from mapveil_client.arrays import FloatArray
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness


def report_likelihoods(
    mechanism: LocalMechanism,
    tiling: Tiling,
    cell: int,
    other: int,
    present: bool,
    runs: int,
    rng: Randomness,
) -> FloatArray:
    """Log-likelihood ratios of reports of a device in one of two cells, shape (runs,). Run by: an auditor.

    Parameters
    ----------
    mechanism : LocalMechanism
        The mechanism under audit.
    tiling : Tiling
        The cells.
    cell, other : int
        The two cells, x and x'.
    present : bool
        Whether the device is in ``cell``; otherwise it is in ``other``.
    runs : int
        Number of reports.
    rng : Randomness
        The device's source of bits.
    """
    randomizer = mechanism.on(Domain(tiling))
    x, y = randomizer.domain.sites_of(np.array([cell, other]))
    reports = randomizer.randomize(np.full(runs, cell if present else other), rng).values
    if isinstance(randomizer, SymbolRandomizer):
        here, there = (randomizer.forward(np.eye(1, randomizer.size, site)[0])[reports] for site in (x, y))
        tiny = np.finfo(np.float64).tiny
        return np.asarray(np.log(np.maximum(here, tiny)) - np.log(np.maximum(there, tiny)))
    held = np.unpackbits(reports, axis=1, count=randomizer.size).astype(np.float64)
    return np.asarray(held[:, x] - held[:, y])
