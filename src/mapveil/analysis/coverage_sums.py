"""Coverage by sums: a pilot's map, corrected by noisy sums of what phones measured against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.analysis.coverage_contributions import coverage_contributions
from mapveil.analysis.signal_models.kriging import FittedKriging, Kriging
from mapveil.geo.measurements import LAT, LON, RSS, Measurements
from mapveil.geo.tiling import Tiling
from mapveil.inference.tree_least_squares import nested_least_squares
from mapveil.local.signal_reports import SignalReports
from mapveil.maps.density_map import DensityMap
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.maps.signal_map import HOLE_DBM, SignalMap
from mapveil.mechanisms.mechanism import check_tiling
from mapveil.mechanisms.signal_sums import STRONG, WEAK, SignalSums
from mapveil.privacy.account import OWN, Account
from mapveil.privacy.claim import Unit
from mapveil.trust.queries import Progress
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError, check
from mapveil_client.randomness.random import Randomness, as_randomness

if TYPE_CHECKING:
    from mapveil.secure_sum.drivers import SecureSum

_CLIP: Final = 2.0  # deviations of one measurement around the map, where the map is least sure
_UNSURE: Final = 0.9  # quantile of the deviations over the cells
_CLIPS_DB: Final = (2.0, 30.0)  # the range of a clip that is chosen so
_CELLS: Final = 4096  # whose covariances are held at once
_ODD: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)
_NOBODY: Final = 1e-9  # users
_TOLD_USERS: Final = 2.0  # deviations of the noise, from which on a node's users are told from zero
_TOLD: Final = 0.5  # fraction of the field's variance that must be explained where a cell counts as known


class NodeSums(NamedTuple):
    """Noisy sums over nodes as observations of the field in the finest nodes."""

    centres: FloatArray  # latitude and longitude of each finest node, degrees
    weights: FloatArray  # users in each finest node, estimated, shape (nodes,)
    slope: FloatArray  # of a clipped residual's mean in the field, shape (nodes,)
    above: tuple[
        IntArray, ...
    ]  # the node of each level in which every finest node lies, the finest level last
    residuals: FloatArray  # sums of clipped residuals of all levels, dB, shape (observations,)
    noise: FloatArray  # variance of each, dB^2
    doubt: FloatArray  # variance of the number of users behind each, users^2


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
        The field's mean in each cell, with its standard deviation: field, pilot and noise of privacy together.

    Raises
    ------
    InputError
        The pilot is too small for a map, lies outside the cells, or holds most of the reports themselves.
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
    released = made.released
    return SignalMap(
        np.where(known, mean, np.nan),
        np.where(known, np.sqrt(made.variance), np.nan),
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
            f"residuals from the pilot's map were clipped to {made.clip_db:.1f} dB; their sums corrected it",
        ),
    )


def _check_pilot(pilot: Measurements, reports: Measurements, tiling: Tiling) -> None:
    """Refuse a pilot that is no pilot, before anything is charged."""
    if not (tiling.locate(pilot.rows[:, LON], pilot.rows[:, LAT]) >= 0).any():
        raise InputError(
            f"{pilot.source}: no row of the pilot lies in the region (are latitude and longitude swapped?)"
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
    """Cells in which the pilot measured: those of its blocks' centres."""
    lat, lon = prior.plane.degrees(prior.averages.centres)
    cell = tiling.locate(lon, lat)
    found = np.zeros(tiling.size, dtype=np.bool_)
    found[cell[cell >= 0]] = True
    return found


def _visited(released: DensityMap) -> BoolArray:
    """Cells of finest nodes whose noisy number of units is told from zero, and is one for each of their cells."""
    finest = max(
        (each for each in released.measurements if isinstance(each, LabelMeasurement)),
        key=lambda each: each.noisy.size,
    )
    cells = np.bincount(finest.groups[finest.groups >= 0], minlength=finest.noisy.size)
    told = finest.noisy > np.maximum(_TOLD_USERS * finest.deviation(), cells)
    return np.asarray(np.append(told, False)[finest.groups])


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

    On simulated cities half of the median deviation gains 0.1 dB more. A map that is wrong by more than it knows is
    corrected by so little of its error then (docs/explanation/coverage-sums.md).
    """
    return float(np.clip(_CLIP * np.quantile(deviation_db, _UNSURE), *_CLIPS_DB))


def correct(released: DensityMap, prior: FittedKriging, clip_db: float) -> Correction:
    r"""Correct a pilot's map by released sums of residuals. Run by: anybody who holds both; costs no privacy.

    .. math:: y_v = \sum_{c \in v} \hat N_c\, b_c\, \delta_c + e_v, \qquad
              \operatorname{var} e_v = B^2 \sigma_v^2 + \operatorname{var}[\bar\delta_v] \operatorname{var} \hat N_v
              + w \sum_{c \in v} \hat N_c\, b_c, \qquad
              \hat\delta = C A^T (A C A^T + R)^{-1} y

    where: :math:`y_v` is B times the difference of the noisy sums of strong and weak in node v, B is ``clip_db``,
    :math:`\sigma_v^2` the variance of the difference's noise, :math:`\hat N_c` the number of users in the finest node
    c, consistent over the levels by least squares and none below zero, :math:`\delta_c` the field's distance from the
    pilot's map there, :math:`\bar\delta_v` its mean weighted by :math:`\hat N_c b_c`, :math:`b_c` the slope that
    clipping leaves, w the variance that rows of one trace share; C is the field's covariance given the pilot, A holds
    :math:`\hat N b`, R the variances of e. Clipping leaves at most :math:`w b_c` of w: the mean of a clipped residual
    given the trace's error g has the variance

    .. math:: \operatorname{var}_g \operatorname{E}[\operatorname{clip}_B(r) \mid g]
              \le w \operatorname{E}\big[\Pr[|r| < B \mid g]^2\big] \le w \Pr[|r| < B] = w\, b_c

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
    seen = _node_sums(released, clip_db)
    nodes = _rows_at(prior, *seen.centres.T)
    seen = seen._replace(slope=_slope(clip_db, prior.predict(nodes).deviation_db))
    told, weight = _told(seen, prior.covariance(nodes, nodes), prior.law.trace_variance)
    change, variance = np.empty(size), np.square(deviation) - prior.row_variance
    for at in range(0, size, _CELLS):
        part = slice(at, at + _CELLS)
        cross = prior.covariance(cells[part], nodes)
        change[part] = cross @ told
        # A variance of seven digits: half the time of a matrix product that is most of the work.
        single = cross.astype(np.float32)
        variance[part] -= np.einsum("ij,ij->i", single @ weight.astype(np.float32), single)
    return Correction(released, change, np.maximum(variance, 0.0), clip_db)


def _slope(clip_db: float, deviation_db: FloatArray) -> FloatArray:
    r"""Slope of the mean of a clipped residual in the field's distance from the map.

    .. math:: \operatorname{E}[\operatorname{clip}_B(r) \mid \delta] \approx \operatorname{erf}(B / \sqrt 2 s)\, \delta

    where: B is ``clip_db`` and s is ``deviation_db``, of one measurement around the map: the linear coefficient for
    residuals r that are normal. Source: J. J. Bussgang, MIT Research Laboratory of Electronics, technical report 216
    (1952).
    """
    from scipy.special import erf

    return np.asarray(erf(clip_db / (np.sqrt(2) * deviation_db)))


def _rows_at(prior: FittedKriging, lat: FloatArray, lon: FloatArray) -> FloatArray:
    rows = np.tile(prior.mean, (lat.size, 1))
    rows[:, LAT], rows[:, LON] = lat, lon
    return rows


def _node_sums(released: DensityMap, clip_db: float) -> NodeSums:
    levels = sorted(
        (each for each in released.measurements if isinstance(each, LabelMeasurement)),
        key=lambda each: each.noisy.size,
    )
    if not levels:
        raise InputError(
            f"a map by {released.method} holds no sums of residuals; expected one by signal-sums"
        )
    finest = levels[-1].groups
    kept = np.flatnonzero(finest >= 0)
    nodes, first = np.unique(finest[kept], return_index=True)
    count = levels[-1].noisy.size
    if nodes.size != count:
        raise InputError(f"the finest sums are of {count} nodes, of which {nodes.size} hold a cell")
    above = tuple(each.groups[kept[first]] for each in levels)
    # The parent of a node is the node of the level above in which any of its finest nodes lies.
    parents = []
    for upper, own, level in zip(above, above[1:], levels[1:], strict=False):
        parent = np.zeros(level.noisy.size, dtype=np.int64)
        parent[own] = upper
        parents.append(parent)
    variances = [each.deviation() ** 2 for each in levels]
    users = nested_least_squares([each.noisy for each in levels], variances, parents)
    centres = released.tiling.centres()
    inside = np.bincount(finest[kept], minlength=count)
    middle = [np.bincount(finest[kept], each[kept], count) / inside for each in (centres.lat, centres.lon)]
    residuals = [clip_db * (each.by_label[:, STRONG] - each.by_label[:, WEAK]) for each in levels]
    noise = [
        clip_db**2 * each.contrast_variance(np.maximum(own, 0.0))
        for each, own in zip(levels, users.values, strict=True)
    ]
    return NodeSums(
        np.stack(middle, axis=1),
        np.maximum(users.values[-1], 0.0),
        np.ones(count),
        above,
        np.concatenate(residuals),
        np.concatenate(noise),
        np.concatenate(
            [
                np.broadcast_to(each, level.noisy.shape)
                for each, level in zip(users.variances, levels, strict=True)
            ]
        ),
    )


def _sums_of(weights: FloatArray, above: IntArray) -> FloatArray:
    """The rows of A of one level, shape (nodes of the level, finest nodes)."""
    made = np.zeros((int(above.max()) + 1, weights.size))
    made[above, np.arange(weights.size)] = weights
    return made


def _told(seen: NodeSums, covariance: FloatArray, shared: float) -> tuple[FloatArray, FloatArray]:
    """A^T S^-1 y, shape (nodes,), and A^T S^-1 A, where S = A C A^T + R."""
    from scipy.linalg import cho_factor, cho_solve

    design = np.concatenate([_sums_of(seen.weights * seen.slope, above) for above in seen.above])
    total = design.sum(axis=1)
    spread = design @ covariance
    own = np.einsum("ij,ij->i", spread, design)
    anywhere = np.full(own.shape, float(covariance.mean()))
    mean = np.divide(own, np.square(total), out=anywhere, where=total > _NOBODY)
    noise = seen.noise + np.maximum(mean, 0.0) * seen.doubt + shared * total
    factor = cho_factor(spread @ design.T + np.diag(noise), lower=True)
    solved = cho_solve(factor, np.column_stack([seen.residuals, design]))
    told = design.T @ solved
    return np.asarray(told[:, 0]), np.asarray(told[:, 1:])
