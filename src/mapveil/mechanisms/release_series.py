"""Release a series: a map for each window, with one promise over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Unpack

from mapveil.geo.points import Points
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import check_times
from mapveil.geo.windows import Windows
from mapveil.local.local_series import LocalSeries
from mapveil.maps.series_map import SeriesMap
from mapveil.mechanisms.default_tiling import default_tiling
from mapveil.mechanisms.methods import SERIES
from mapveil.mechanisms.multiscale_series import MultiscaleSeries
from mapveil.mechanisms.release import ReleaseChoices, release
from mapveil.mechanisms.window_error import check_error
from mapveil_client.epsilon import EpsilonLike, readable
from mapveil_client.errors import BudgetExceeded, ParameterError, check


def release_series(
    points: Points,
    windows: Windows,
    tiling: Tiling | str | None = None,
    *,
    epsilon: EpsilonLike,
    per: Literal["user", "user-week"] = "user",
    windows_per_user: int | None = None,
    window_error: float | None = None,
    trust: Literal["central", "distributed", "operators", "local"] = "central",
    options: Mapping[str, Any] | None = None,
    region: Region | None = None,
    accept_large_epsilon: bool = False,
    **given: Unpack[ReleaseChoices],
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
        Number of windows in which a user counts at most, 1 in each, instead of 1 divided over all windows. Under trust
        ``"local"`` the number that each client draws, 1 by default, with an equal part of epsilon for each.
    window_error : float, optional
        Largest half width of the 95 % interval around the noisy sum of a block in a window, users, of a curator's
        series. More windows of a user than the budget allows at that error are refused.
    trust : str
        ``"central"``, ``"distributed"``, ``"operators"`` or ``"local"``; see :func:`mapveil.release`.
    options : mapping, optional
        Further parameters of :class:`~mapveil.mechanisms.multiscale_series.MultiscaleSeries` or of its trust model,
        or of :class:`~mapveil.local.local_series.LocalSeries`.
    region : Region, optional
        The region, needed unless ``tiling`` brings one.
    accept_large_epsilon : bool
        Whether epsilon may be above 20, or delta above 1/100.
    **given
        ``aim``, ``prior``, ``places_are_public``, ``secure_sum``, ``dropout``, ``account``, ``rng`` and ``progress`` as
        for :func:`mapveil.release`.

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
    check(trust in SERIES, "trust (--trust)", f"one of {', '.join(SERIES)} for a series", trust)
    check(
        trust != "local" or per == "user",
        "per (--per)",
        "user under trust local, whose clients report once",
        per,
    )
    if region is None and not isinstance(tiling, Tiling):
        raise ParameterError(
            "region (--region) is required: every window of a series is of one public region"
        )
    own: dict[str, Any] = {"windows": windows, "windows_per_user": windows_per_user}
    own |= {} if trust == "local" else {"per": per}
    made = SERIES[trust].make(epsilon, {**(options or {}), **own})
    assert isinstance(made, MultiscaleSeries | LocalSeries)
    mechanism = replace(made, accept_large_epsilon=accept_large_epsilon)
    if window_error is not None:
        check(trust == "central", "window_error (--window-error)", "left out without a curator", window_error)
        assert isinstance(mechanism, MultiscaleSeries)
        check_error(mechanism.window_budget, mechanism.contribution, window_error, fix="raise epsilon")
    numbered = mechanism.numbered(points)
    notes = windows.clock_notes
    if tiling is None:
        assert region is not None
        tiling, reason = default_tiling(mechanism, points, region)
        notes = (reason, *notes)
    check_times(numbered)
    try:
        series = release(numbered, tiling, method=mechanism, trust=trust, region=region, **given)
    except BudgetExceeded as error:
        if per == "user-week" and error.left is not None:
            weeks, allowed = mechanism.charged / mechanism.budget, error.left // mechanism.budget
            each = readable(mechanism.budget)
            error.add_note(
                f"each of the {weeks} weeks costs {each}, and the account allows {max(allowed, 0)} of them"
            )
        raise
    assert isinstance(series, SeriesMap)
    return replace(series, notes=(*series.notes, *notes))
