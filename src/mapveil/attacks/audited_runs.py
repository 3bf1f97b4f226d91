"""Runs of audited mechanisms: a collection with the least noise its guarantee allows, and one device's reports.

In the collection as many devices drop out as are tolerated, and as many are corrupt and add no noise: the shares of the
others must carry the guarantee alone. One device holds a place or none; its participation is public.
"""

from collections.abc import Callable

import numpy as np

from mapveil.engines import UNIT
from mapveil.geo.tiling import Tiling
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SymbolRandomizer
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.trust.queries import Estimate, Execution, Raster, run
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.contribution import Devices
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.morton import interleave
from mapveil_client.randomness.random import Randomness

_CROWD = 60


def audited_devices(tiling: Tiling, without: IntArray, user: IntArray | None) -> Devices:
    """Devices of whole users, one more that holds ``user`` or nothing, and others outside the map; all of label 0.

    Parameters
    ----------
    tiling : Tiling
        The cells.
    without : ndarray of int64, shape (tiling.size,)
        Sums without the one, units of 1 / UNIT user; whole users.
    user : ndarray of int64, shape (tiling.size,), or None
        What the one holds, in the same units; nothing for ``None``.
    """
    lattice = tiling.lattice()
    site = interleave(lattice.row, lattice.col)
    held = np.flatnonzero(user) if user is not None else np.array([-1])
    crowd = np.repeat(site, without // UNIT)
    one = site[held] if user is not None else held
    idle = max(_CROWD - crowd.size, 0)
    sites = np.concatenate([one, crowd, np.full(idle, -1)])
    lengths = np.concatenate([[held.size], np.ones(crowd.size + idle, dtype=np.int64)])
    weights = np.ones(sites.size, dtype=np.int64)
    if user is not None:
        weights[: held.size] = user[held]
    return Devices(sites, np.concatenate([[0], np.cumsum(lengths)]), weights, np.zeros_like(sites))


def least_noise(
    mechanism: SumMechanism, tiling: Tiling, devices: Devices
) -> Callable[[Randomness], Estimate]:
    """One run of a whole collection of these devices in one shard, under the least noise; estimates of cells.

    Run by: an auditor.
    """
    raster, model = Raster.of(tiling.lattice()), mechanism.trust
    if not isinstance(model, SecureAggregation):
        raise ParameterError(f"trust must be SecureAggregation, got {model!r}")

    def once(rng: Randomness) -> Estimate:
        execution = Execution(rng, dropout=float(model.tolerated_dropout))
        simulation = model.answerer(devices, tiling, raster, execution, silent=float(model.corrupt))
        return raster.on_cells(run(mechanism.plan(simulation.setting), simulation.answer))

    return once


def report_likelihoods(
    mechanism: LocalMechanism,
    tiling: Tiling,
    cell: int,
    other: int,
    present: bool,
    runs: int,
    rng: Randomness,
) -> FloatArray:
    r"""Log-likelihood ratios of reports of a device in one of two cells, shape (runs,). Run by: an auditor.

    .. math:: \ell(y) = \ln \frac{q(y \mid x)}{q(y \mid x')}

    where: q is the channel that the server inverts, y a report, and x and x' are ``cell`` and ``other``. No statistic
    of one report tells the two further apart (Neyman and Pearson). Where a report is a set of sites, :math:`\ell` grows
    with [x in y] - [x' in y], which stands for it.

    Parameters
    ----------
    mechanism : LocalMechanism
        The mechanism under audit.
    tiling : Tiling
        The cells.
    cell, other : int
        The two cells.
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
