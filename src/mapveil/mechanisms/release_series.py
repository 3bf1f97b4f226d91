"""Release a series: a map for each window, with one promise over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any, Literal

from mapveil.geo.points import Points
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import check_times
from mapveil.geo.windows import Windows
from mapveil.maps.density_map import DensityMap
from mapveil.maps.prior import Prior
from mapveil.maps.series_map import SeriesMap
from mapveil.mechanisms.default_tiling import default_tiling
from mapveil.mechanisms.methods import SERIES
from mapveil.mechanisms.multiscale_series import MultiscaleSeries
from mapveil.mechanisms.release import Aim, SecureSumName, release
from mapveil.privacy.account import OWN, Account
from mapveil.trust.queries import Progress
from mapveil_client.epsilon import EpsilonLike
from mapveil_client.errors import ParameterError, check
from mapveil_client.randomness.random import Randomness


def release_series(
    points: Points,
    windows: Windows,
    tiling: Tiling | str | None = None,
    *,
    epsilon: EpsilonLike,
    per: Literal["user", "user-week"] = "user",
    windows_per_user: int | None = None,
    trust: Literal["central", "distributed"] = "central",
    options: Mapping[str, Any] | None = None,
    aim: Aim | None = None,
    prior: Prior | DensityMap | str | PathLike[str] | None = None,
    region: Region | None = None,
    places_are_public: bool = False,
    accept_large_epsilon: bool = False,
    secure_sum: SecureSumName | None = None,
    dropout: float | None = None,
    account: Account | None = OWN,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
) -> SeriesMap:
    """Release a private map of where the users are in each window, with one promise over all windows.

    Parameters
    ----------
    points : Points
        A table of visits, with a column of times or categories.
    windows : Windows
        The windows, which are public.
    tiling : Tiling or str, optional
        The cells, or their specification in ``region``; a quadtree of the default depth without.
    epsilon : int, float, str, Decimal or Fraction
        The privacy budget of the unit, over all windows, above 0.
    per : str
        The unit: ``"user"``, or ``"user-week"``, where a user's epsilon is that of all their weeks together.
    windows_per_user : int, optional
        Number of windows in which a user counts at most, 1 in each, instead of 1 divided over all windows.
    trust : str
        ``"central"`` or ``"distributed"``; see :func:`mapveil.release`.
    options : mapping, optional
        Further parameters of :class:`~mapveil.mechanisms.multiscale_series.MultiscaleSeries` or of its trust model.
    region : Region, optional
        The region, needed unless ``tiling`` brings one.
    aim, prior, places_are_public, accept_large_epsilon, secure_sum, dropout, account, rng, progress
        See :func:`mapveil.release`.

    Raises
    ------
    InputError
        The table, its times or a parameter cannot be used.
    BudgetExceeded
        The account does not allow the epsilon.
    PromiseError
        The guarantee cannot be kept; nothing is released.

    Examples
    --------
    >>> import numpy as np
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=500, seed=1)
    >>> rows = city.arrays()
    >>> day = np.datetime64("2026-01-05") + np.arange(rows.users.size) % 14
    >>> visits = mv.Points.from_arrays(rows.users, rows.lon, rows.lat, time=day)
    >>> weeks = mv.Windows(every="1w", start="2026-01-05", until="2026-01-19")
    >>> cells = mv.Quadtree(city.region, depth=4)
    >>> series = mv.release_series(visits, weeks, cells, epsilon=1, account=None)
    >>> len(series), series.window("2026-W03").guarantee.epsilon
    (2, Fraction(1, 1))
    """
    check(isinstance(points, Points), "points", "Points, with a column of times or categories", points)
    check(trust in ("central", "distributed"), "trust", "central or distributed for a series", trust)
    if region is None and not isinstance(tiling, Tiling):
        raise ParameterError(
            "region (--region) is required: every window of a series is of one public region"
        )
    own = {"windows": windows, "per": per, "windows_per_user": windows_per_user}
    mechanism = SERIES[trust].make(epsilon, {**(options or {}), **own})
    assert isinstance(mechanism, MultiscaleSeries)
    mechanism = replace(mechanism, accept_large_epsilon=accept_large_epsilon)
    numbered = mechanism.numbered(points)
    if tiling is None:
        assert region is not None
        tiling = default_tiling(mechanism, points, region).spec
    check_times(numbered, points)
    made = release(
        numbered,
        tiling,
        method=mechanism,
        aim=aim,
        prior=prior,
        region=region,
        places_are_public=places_are_public,
        secure_sum=secure_sum,
        dropout=dropout,
        account=account,
        rng=rng,
        progress=progress,
    )
    assert isinstance(made, SeriesMap)
    return made
