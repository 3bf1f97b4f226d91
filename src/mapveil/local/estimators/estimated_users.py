"""The unbiased estimates behind a map, as measurements: for bounds, supported blocks and totals of zones."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np

from mapveil.local.randomizers.randomizer import NodeEstimates, Randomizer, Tally
from mapveil.maps.measurement import INTERVAL_ALPHA, EstimatedUsers
from mapveil.maps.window_estimates import WindowEstimates
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError

_UNIT: Final = 256
"""Estimates are rounded to this fraction of a user, far below their noise: a file holds them in fewer bytes."""


def estimated_users(
    randomizer: Randomizer, tally: Tally, distribution: FloatArray, epsilon: Fraction
) -> tuple[EstimatedUsers, ...]:
    """The number of users who reported, and the unbiased estimates of a tally, the coarsest nodes first.

    The noise is that at the estimated map ``distribution``, shape (sites,). Levels whose bounds say no more than that
    number are left out.
    """
    found = _all_levels(randomizer, tally, distribution, epsilon)
    return tuple(each for each in found if _tells(each))


def estimates_by_window(
    randomizer: Randomizer, tallies: Sequence[Tally], distributions: FloatArray, epsilon: Fraction
) -> tuple[WindowEstimates, ...]:
    """As :func:`estimated_users`, of each window, where every window keeps nodes that answer for zones.

    A level is left out where its bounds say nothing in any window, but for the coarsest that a window has without
    the others: its wide bounds are honest. A window without reports has none of any node, exactly.
    ``distributions`` are the estimated maps, shape (windows, sites).
    """
    found: dict[int, list[EstimatedUsers | None]] = {}  # by the number of nodes, in which levels differ
    for window, (tally, distribution) in enumerate(zip(tallies, distributions, strict=True)):
        for each in _all_levels(randomizer, tally, distribution, epsilon):
            level = found.setdefault(each.noisy.size, [None] * len(tallies))
            groups = next((one.groups for one in level if one is not None), each.groups)
            level[window] = replace(each, groups=groups)
    for level in found.values():
        known = next(each for each in level if each is not None)
        for window, tally in enumerate(tallies):
            if not tally.reports:
                none = np.zeros(known.noisy.size)
                level[window] = replace(known, noisy=none, reports=0, variance=0.0, step=0.0, slope=0.0)
    ordered = [level for _, level in sorted(found.items())]
    kept = [any(each is not None and _tells(each) for each in level) for level in ordered]
    for window in range(len(tallies)):
        of_window = [at for at, level in enumerate(ordered) if level[window] is not None and at > 0]
        if of_window and not any(kept[at] for at in of_window):
            kept[of_window[0]] = True
    return tuple(WindowEstimates.of_windows(level) for level, keep in zip(ordered, kept, strict=True) if keep)


def _tells(each: EstimatedUsers) -> bool:
    """Whether the bounds say more than the number of reports."""
    return each.noisy.size == 1 or each.half_width(INTERVAL_ALPHA) < each.reports


def _all_levels(
    randomizer: Randomizer, tally: Tally, distribution: FloatArray, epsilon: Fraction
) -> list[EstimatedUsers]:
    domain, n = randomizer.domain, tally.reports

    def of(node: IntArray, users: FloatArray, noise: NodeEstimates | None = None) -> EstimatedUsers:
        groups = np.full(domain.tiling.size, -1, dtype=np.int64)
        groups[domain.cells] = node
        rounded = np.rint(_UNIT * users) / _UNIT
        plain = EstimatedUsers(groups, rounded, epsilon, _UNIT, reports=n, independent=True)
        if noise is None:
            return plain
        fullest = float(np.bincount(node, distribution).max())
        variance = noise.variance + noise.slope * fullest
        return replace(plain, variance=variance, step=noise.step, slope=noise.slope)

    found = [of(np.zeros(domain.size, dtype=np.int64), np.array([float(n)]))]
    levels = randomizer.node_estimates(tally) if n else ()
    found += [of(each.node, n * each.estimates, each) for each in levels]
    if n and not levels:
        try:
            site, sites = randomizer.site_noise(distribution), np.arange(domain.size)
            alone = of(sites, n * randomizer.invert(tally))
        except ParameterError:
            return found
        variance = float(site.variance.max())
        found.append(replace(alone, variance=variance, step=site.step, independent=False))
    return found
