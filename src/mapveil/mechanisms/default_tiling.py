r"""The cells of a map where none are asked for: a quadtree as deep as users and epsilon allow.

.. math:: D = \operatorname{round} \log_4 \frac{k\, n}{s}, \qquad D_{least} \le D \le D_{most}

where: n is the number of users (public, declared, or bought under noise), s the deviation of the noise on one cell
(users), and k the crowding of a cell over the average that the map should still show. At depth D a cell so crowded
holds about one deviation. Deeper cells would show noise and smoothing, coarser ones hide what was measured.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from mapveil.engines.contributions import NobodyInside, count_users
from mapveil.geo.parse_tiling import DEFAULT_TILING
from mapveil.geo.quadtree import Quadtree
from mapveil.mechanisms.mechanism import AnyMechanism
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.trust.curator import Curator

if TYPE_CHECKING:
    from mapveil.geo.counts import Counts
    from mapveil.geo.points import Points
    from mapveil.geo.region import Region

_CROWDING: Final = 4.0
"""k of noisy sums. On the default cells of eight tuning tables at epsilon 1, 2 adds 9 % +- 22 to the divergence (KL), 8
takes 5 % +- 8 and adds 2 % +- 4 to the L1 of districts (benchmarks/declared_users.py --default-cells)."""

_CROWDING_OF_REPORTS: Final = 8.0
"""k of local reports, whose estimate borrows from neighbouring cells. For 800 users of the tuning cities at epsilon 2
the depth that it gives has the least L1 on squares of 2 km of the depths 4, 5, 6 and 8; 16 gives one more."""
_SHALLOWEST: Final = 3  # 64 cells: below, a map says less than its total
_DEEPEST: Final = 10  # a million cells: what pages and pictures can hold


class DefaultTiling(NamedTuple):
    """The specification of a quadtree, and the reason for its depth."""

    spec: str
    reason: str


def default_tiling(mechanism: AnyMechanism, points: Points | Counts, region: Region) -> DefaultTiling:
    """The default cells of a release, from what is public. Run by: whoever releases.

    Parameters
    ----------
    mechanism : mechanism
        The mechanism, with its epsilon; a curator's declares the number of users, or nothing is known of it.
    points : Points or Counts
        The table. Of a curator's nothing is read. Under the other trust models who takes part is public, and counted.
    region : Region
        The region.
    """
    from mapveil.local.level_design import report_information
    from mapveil.local.local_mechanism import LocalMechanism

    if isinstance(mechanism, LocalMechanism):
        # Where everybody reports, whoever is inside the region is not public.
        users = mechanism.expected_reports(
            _reporting(points, region if mechanism.outside == "drop" else None)
        )
        deviation = math.sqrt(max(users, 1.0) / report_information(mechanism.budget))
        return quadtree_for(users, float(mechanism.budget), deviation, _CROWDING_OF_REPORTS)
    if not isinstance(mechanism, SumMechanism):
        return DefaultTiling(DEFAULT_TILING, f"{DEFAULT_TILING}, since there is no epsilon")
    epsilon = float(mechanism.budget)
    if isinstance(mechanism.trust, Curator):
        if mechanism.trust.users is None:
            reason = f"{DEFAULT_TILING}, because no number of users was declared (--option users=N)"
            return DefaultTiling(DEFAULT_TILING, reason)
        return declared_tiling(mechanism.trust.users, mechanism.budget)
    users = mechanism.trust.asked(float(count_users(points, None)))
    deviation = math.sqrt(2 * mechanism.trust.noise_terms(users)) / epsilon
    return quadtree_for(users, epsilon, deviation, _CROWDING)


def declared_tiling(users: int, epsilon: Fraction, counted: str = "") -> DefaultTiling:
    """The default cells of a curator's map of a declared number of users, or of one ``counted`` as words say."""
    return quadtree_for(users, float(epsilon), math.sqrt(2) / float(epsilon), counted=counted)


def _reporting(points: Points | Counts, region: Region | None) -> float:
    """Clients that report: those in the region, or all."""
    try:
        return float(count_users(points, None if region is None else Quadtree(region, depth=1)))
    except NobodyInside:
        return 0.0


def quadtree_for(
    users: float, epsilon: float, deviation: float, crowding: float = _CROWDING, *, counted: str = ""
) -> DefaultTiling:
    """The quadtree of the module's header, and why.

    Parameters
    ----------
    users : float
        n; at least 1 is taken.
    epsilon : float
        Budget of the map, for the reason.
    deviation : float
        s, users.
    crowding : float
        k.
    counted : str
        Words on n for the reason, where it is no more than a rough number.

    Examples
    --------
    >>> quadtree_for(767, 2, 0.7).reason
    'depth 6, because of about 767 users at epsilon 2: the nearest to one at which a cell 4 times as crowded as the \
average holds as many of them as the noise deviates by, here 0.75 beside 0.7'
    """
    users = max(users, 1.0)
    nearest = round(math.log(max(crowding * users / deviation, 1.0), 4))
    depth = min(max(nearest, _SHALLOWEST), _DEEPEST)
    clipped = "least there is, above one" if depth > nearest else "most there is, below one"
    which = "nearest to one" if depth == nearest else clipped
    held = crowding * users / 4**depth
    counted = counted or f"about {users:,.0f} user{'s' * (round(users) != 1)}"
    return DefaultTiling(
        f"quadtree:{depth}",
        f"depth {depth}, because of {counted} at epsilon {epsilon:g}: the {which} at which a cell {crowding:g} times "
        "as crowded as the average holds as many of them as the noise deviates by, here "
        f"{_plain(held)} beside {_plain(deviation)}",
    )


def _plain(users: float) -> str:
    """Two digits that count, without an exponent."""
    return f"{float(f'{users:.2g}'):,g}"
