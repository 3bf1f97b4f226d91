"""Coverage by sums: a pilot's map, corrected by noisy sums of what phones measured against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.analysis.coverage_contributions import coverage_contributions
from mapveil.analysis.coverage_nodes import NodeSums, node_sums
from mapveil.analysis.signal_models.kriging import FittedKriging, Kriging
from mapveil.geo.collection_roles import user_days
from mapveil.geo.measurements import LAT, LON, RSS, Measurements
from mapveil.geo.tiling import Tiling
from mapveil.local.signal_reports import SignalReports
from mapveil.maps.density_map import DensityMap
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.maps.signal_map import HOLE_DBM, SignalMap
from mapveil.mechanisms.mechanism import check_tiling
from mapveil.mechanisms.signal_sums import SignalSums
from mapveil.privacy.account import OWN, Account
from mapveil.privacy.claim import Unit
from mapveil.trust.queries import Progress
from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.errors import InputError, ParameterError, check
from mapveil_client.randomness.random import Randomness, as_randomness

if TYPE_CHECKING:
    from mapveil.secure_sum.drivers import SecureSum

_CLIP: Final = 2.0  # deviations of one measurement around the map, where the map is least sure
_UNSURE: Final = 0.9  # quantile of the deviations over the cells
_CLIPS_DB: Final = (2.0, 30.0)  # the range of a clip that is chosen so
_CELLS: Final = 4096  # whose covariances are held at once
_ODD: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)
_TOLD_USERS: Final = 2.0  # deviations of the noise, from which on a node's users are told from zero
_LEAST_TRACES: Final = 2  # of a pilot
_TOLD: Final = 0.5  # fraction of the field's variance that must be explained where a cell counts as known


class Correction(NamedTuple):
    """The correction of a pilot's map, of every cell."""

    released: DensityMap  # the sums it rests on
    change_db: FloatArray  # added to the pilot's map, shape (cells,)
    variance: FloatArray  # of the field's mean given the pilot and the sums, dB^2
    clip_db: float


def coverage_by_sums(
    reports: Measurements,
    pilot: Measurements | FittedKriging,
    tiling: Tiling,
    sums: SignalSums | SignalReports,
    *,
    hole_dbm: float = HOLE_DBM,
    rng: Randomness | int | None = None,
    **collection: Any,
) -> SignalMap:
    """Map coverage from a pilot and from noisy sums, epsilon-DP for each unit. Run by: the curator, or a simulation.

    The pilot's map is published; every unit contributes its residuals from the map
    (:func:`~mapveil.analysis.coverage_contributions.coverage_contributions`), of which only noisy sums are revealed
    (:class:`~mapveil.mechanisms.signal_sums.SignalSums`), and :func:`correct` corrects the map by them. Nothing but the
    released sums is used of the reports, so the correction costs no privacy. A cell whose variance given pilot and sums
    is above half of the field's own is unknown.

    Parameters
    ----------
    reports : Measurements
        The true rows of those who report.
    pilot : Measurements or FittedKriging
        Rows of people who opted in, whom nothing protects; or their map.
    tiling : Tiling
        The cells; public.
    sums : SignalSums
        The mechanism: epsilon, unit, trust model.
    hole_dbm : float
        A cell with a lower mean is a coverage hole, dBm.
    rng, collection
        As for :func:`release_correction`.

    Returns
    -------
    SignalMap
        The field at the centre of each cell, with its standard deviation: field, pilot and noise of privacy together,
        widened by the factor that the pilot's own traces ask for.

    Raises
    ------
    InputError
        The pilot is too small for a map, of one user's day, outside the cells, or holds most of the reports themselves.
    BudgetExceeded
        The account does not allow the epsilon.
    """
    check_tiling(tiling)
    if isinstance(pilot, Measurements):
        _check_pilot(pilot, reports, tiling)
    stream = as_randomness(rng)
    prior = pilot if isinstance(pilot, FittedKriging) else Kriging().fit(pilot, rng=stream.child("pilot"))
    made = release_correction(reports, prior, tiling, sums, rng=stream, **collection)
    centres = tiling.centres()
    mean = prior.at(centres.lat, centres.lon).mean_dbm + made.change_db
    known = made.variance < _TOLD * prior.law.variance
    released, moved = made.released, np.abs(made.change_db[known]).max(initial=0.0)
    return SignalMap(
        np.where(known, mean, np.nan),
        np.where(known, prior.interval_factor() * np.sqrt(made.variance), np.nan),
        np.rint(np.maximum(released.values, 0.0)).astype(np.int64),
        tiling,
        released.guarantee,
        "coverage by sums",
        hole_dbm=hole_dbm,
        extrapolated=~(_piloted(prior, tiling) | _visited(released)),
        counted=f"{sums.unit}s who measured, estimated",
        parameters={**released.parameters, "clip_db": round(made.clip_db, 3)},
        notes=(
            *released.notes,
            f"residuals from the pilot's map were clipped to {made.clip_db:.1f} dB; their sums moved it by at most "
            f"{moved:.1f} dB",
        ),
    )


def _check_pilot(pilot: Measurements, reports: Measurements, tiling: Tiling) -> None:
    """Refuse a pilot that is no pilot, before anything is charged."""
    if not (tiling.locate(pilot.rows[:, LON], pilot.rows[:, LAT]) >= 0).any():
        raise InputError(
            f"{pilot.source}: no row of the pilot lies in the region (are latitude and longitude swapped?)"
        )
    if np.unique(user_days(pilot)).size < _LEAST_TRACES:
        raise InputError(
            f"{pilot.source}: the pilot is of one user's day, which tells nothing of how phones and days differ; "
            f"expected at least {_LEAST_TRACES}"
        )
    shared = int(np.isin(_marks(reports), _marks(pilot)).sum())
    if 2 * shared > len(reports):
        raise InputError(
            f"{pilot.source}: the pilot must be measurements of people who opted in, got {shared:,} of the "
            f"{len(reports):,} rows of those who report: nothing protects the pilot's users"
        )


def _marks(measurements: Measurements) -> npt.NDArray[np.uint64]:
    """A number of each row's place and signal: equal rows have equal ones, and others hardly ever."""
    bits = np.ascontiguousarray(measurements.rows[:, [LAT, LON, RSS]]).view(np.uint64)
    mixed: npt.NDArray[np.uint64] = (bits * _ODD).sum(axis=1, dtype=np.uint64)
    return mixed ^ (mixed >> np.uint64(29))


def _piloted(prior: FittedKriging, tiling: Tiling) -> BoolArray:
    """Cells in which the pilot measured, to some metres."""
    lat, lon = prior.plane.degrees(prior.measured)
    cell = tiling.locate(lon, lat)
    found = np.zeros(tiling.size, dtype=np.bool_)
    found[cell[cell >= 0]] = True
    return found


def _visited(released: DensityMap) -> BoolArray:
    """Cells of nodes whose noisy number of units is told from zero, and is one for each of their cells."""
    levels = [each for each in released.measurements if isinstance(each, LabelMeasurement)]
    visited = np.zeros(released.tiling.size, dtype=np.bool_)
    for level in levels:
        if level.noisy.size == 1 < len(levels):  # nobody is spread evenly over the whole region
            continue
        cells = np.bincount(level.groups[level.groups >= 0], minlength=level.noisy.size)
        told = level.noisy > np.maximum(_TOLD_USERS * level.deviation(), cells)
        visited |= np.append(told, False)[level.groups]
    return visited


def release_correction(
    reports: Measurements,
    prior: FittedKriging,
    tiling: Tiling,
    sums: SignalSums | SignalReports,
    *,
    clip_db: float | None = None,
    account: Account | None = OWN,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
    secure_sum: SecureSum | None = None,
) -> Correction:
    """Collect residuals from a map by noisy sums, and correct the map. Run by: the curator, or a simulation.

    Parameters
    ----------
    reports, tiling, sums
        As for :func:`coverage_by_sums`.
    prior : FittedKriging
        The published map.
    clip_db : float, optional
        Largest residual that counts, dB; :func:`default_clip_db` of the map otherwise.
    account, rng, progress, secure_sum
        As for :meth:`mapveil.mechanisms.sum_mechanism.SumMechanism.release`; a unit smaller than a user is charged to
        no account.

    Raises
    ------
    ParameterError
        An account is named, and the unit is smaller than a user.
    BudgetExceeded
        The account does not allow the epsilon.
    """
    centres = tiling.centres()
    public = prior.at(centres.lat, centres.lon)
    clip = default_clip_db(public.deviation_db) if clip_db is None else clip_db
    unit = Unit(sums.unit)
    if unit is not Unit.USER and account is not None:
        account = account.unaccounted(unit)
    contributions = coverage_contributions(reports, tiling, public.mean_dbm, clip, unit=unit)
    made: dict[str, Any] = {"account": account, "rng": rng, "progress": progress}
    if secure_sum is not None:
        if isinstance(sums, SignalReports):
            raise ParameterError("secure_sum must be None where every client randomizes its own report")
        made["secure_sum"] = secure_sum
    return correct(sums.release(contributions, tiling, **made), prior, clip)


def default_clip_db(deviation_db: FloatArray) -> float:
    """Twice the deviation of one measurement where the map is least sure, dB, from 2 to 30.

    Clipping leaves a slope of 0.95 there, of a normal residual. The factor is not tuned.
    """
    return float(np.clip(_CLIP * np.quantile(deviation_db, _UNSURE), *_CLIPS_DB))


def correct(released: DensityMap, prior: FittedKriging, clip_db: float) -> Correction:
    r"""Correct a pilot's map by released sums of residuals. Run by: anybody who holds both; costs no privacy.

    .. math:: y = M\, \operatorname{diag}(N b)\, \delta + e, \qquad
              \hat\delta = C A^T \big(M F M^T + \operatorname{diag}(B^2 \sigma_v^2)\big)^{-1} y, \qquad
              A = M \operatorname{diag}(\hat N b)

    .. math:: F = (b b^T \circ C + h h^T \circ C^{\circ 3}) \circ (\hat N \hat N^T + V)
              + \operatorname{diag}\big((w + s + \tau_c)\, \hat N_c b_c\big)

    where: :math:`y_v` is B times the difference of the noisy sums of strong and weak in node v, B is ``clip_db``,
    :math:`\sigma_v^2` the variance of the difference's noise, M is 1 where the finest node c lies in v,
    :math:`\hat N_c` the number of units in c, consistent over the levels by least squares and none below zero, V the
    covariance of its error, :math:`\delta_c` the mean over c of the field's distance from the pilot's map, C its
    covariance given the pilot, :math:`\tau_c` the field's variance around the mean inside c, :math:`b_c` the slope
    that clipping leaves, :math:`h_c` what it bends, w the variance that rows of one trace share and s that of their
    spread; :math:`\circ` is the product by entries.

    One contribution is in the sums of every level, so F, of the finest nodes, is added up by M. The diagonal bounds
    what the units add, whatever the lengths of their traces and the numbers of their rows: a unit of weights
    :math:`W_c` adds at most :math:`w\, W W^T \circ K` for a correlation K, and
    :math:`\operatorname{diag}(W) - W W^T \circ K` is positive semidefinite where the weights sum to 1. Many rows of a
    unit add less spread than one; their number is unknown, so the deviation of the map is too wide there. Units are
    taken to be spread evenly over the cells of a finest node. Clipping leaves at most :math:`b_c` of a variance:

    .. math:: \operatorname{var}[\operatorname{clip}_B(r)] \le \operatorname{var}[r]\, \Pr[|r| < B]

    for normal residuals r. Source: H. Chernoff, "A note on an inequality involving the normal distribution" (Annals of
    Probability, 1981).

    Parameters
    ----------
    released : DensityMap
        Made by :class:`~mapveil.mechanisms.signal_sums.SignalSums`.
    prior : FittedKriging
        The pilot's map that residuals were taken from.
    clip_db : float
        B, dB.

    Raises
    ------
    InputError
        The map holds no sums of residuals.
    """
    check(clip_db > 0, "clip_db", "above 0 dB", clip_db)
    centres, size = released.tiling.centres(), released.tiling.size
    cells = _rows_at(prior, centres.lat, centres.lon)
    deviation = prior.predict(cells).deviation_db
    seen = node_sums(released, clip_db)
    means = prior.means(cells[seen.points], seen.averages)
    covariance = np.asarray(seen.averages @ prior.covariance(cells[seen.points], means))
    single = seen.averages @ np.square(deviation[seen.points])
    slope, bend = _clipped(clip_db, np.sqrt(single))
    shared = covariance * np.outer(slope, slope) + covariance**3 * np.outer(bend, bend)
    told, weight = _told(seen, slope, shared, np.maximum(single - np.diag(covariance), 0.0))
    change, variance = np.empty(size), np.square(deviation) - prior.row_variance
    for at in range(0, size, _CELLS):
        part = slice(at, at + _CELLS)
        cross = prior.covariance(cells[part], means)
        change[part] = cross @ told
        # A variance of seven digits: half the time of a matrix product that is most of the work.
        single = cross.astype(np.float32)
        variance[part] -= np.einsum("ij,ij->i", single @ weight.astype(np.float32), single)
    return Correction(released, change, np.maximum(variance, 0.0), clip_db)


def _clipped(clip_db: float, deviation_db: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Factors b and h of a clipped residual's mean given the field, linear and cubic.

    .. math:: \operatorname{cov}[\operatorname{E}[\operatorname{clip}_B(r) \mid \delta]]
              = b b^T \circ C + \sum_{k = 3, 5, \dots} a_k a_k^T \circ C^{\circ k}, \qquad
              b = \operatorname{erf}(\beta / \sqrt 2)

    .. math:: h^2 s^6 = \operatorname{var}[\operatorname{clip}_B(r)] - b^2 s^2
              = s^2 \big(b - 2 \beta\, \varphi(\beta) + \beta^2 (1 - b) - b^2\big), \qquad \beta = B / s

    where: B is ``clip_db``, s is ``deviation_db`` of a normal residual r around the map, C the field's covariance,
    :math:`\varphi` the normal density. All terms are counted at k = 3: their variances add up, their covariances are
    approximated, which matters where B is below s.
    Source: J. J. Bussgang, MIT Research Laboratory of Electronics, technical report 216 (1952).
    """
    from scipy.special import erf

    beta = clip_db / deviation_db
    slope = np.asarray(erf(beta / np.sqrt(2)))
    density = np.exp(-np.square(beta) / 2) / np.sqrt(2 * np.pi)
    left = slope - 2 * beta * density + np.square(beta) * (1 - slope) - np.square(slope)
    return slope, np.sqrt(np.maximum(left, 0.0)) / np.square(deviation_db)


def _rows_at(prior: FittedKriging, lat: FloatArray, lon: FloatArray) -> FloatArray:
    rows = np.tile(prior.mean, (lat.size, 1))
    rows[:, LAT], rows[:, LON] = lat, lon
    return rows


def _told(
    seen: NodeSums, slope: FloatArray, shared: FloatArray, single: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """A^T S^-1 y, shape (nodes,), and A^T S^-1 A, where S = M F M^T + R.

    Parameters
    ----------
    slope : ndarray of float64, shape (nodes,)
        b.
    shared : ndarray of float64, shape (nodes, nodes)
        Covariance of clipped residuals by the field, dB^2.
    single : ndarray of float64, shape (nodes,)
        Variance of one unit's residual around the mean of the field in its node, dB^2.
    """
    from scipy.linalg import cho_factor, cho_solve

    users = seen.users * slope
    if not users.any() and not seen.noise.any():  # randomized reports of nobody
        return np.zeros(users.size), np.zeros((users.size, users.size))
    finest = shared * (np.outer(seen.users, seen.users) + seen.error)
    finest[np.diag_indices_from(finest)] += single * users
    total = seen.members @ (seen.members @ finest).T
    total[np.diag_indices_from(total)] += seen.noise
    design = seen.members.toarray() * users
    solved = cho_solve(cho_factor(total, lower=True), np.column_stack([seen.residuals, design]))
    told = design.T @ solved
    return np.asarray(told[:, 0]), np.asarray(told[:, 1:])
