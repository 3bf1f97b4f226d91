"""Heatmaps: a map seen through a Gaussian filter that loses no mass at the border."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from mapveil.geo.positions import ground_cylinder, positions_m
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.maps.frame import RasterFrame, is_raster, raster_frame
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError, check
from mapveil_client.plane import Degrees

LARGEST_SCATTERED = 20_000
"""Most cells of a tiling that is no raster (hexagons, places) that are smoothed pair by pair."""

_DENSE_SIDE = 2048
_TRUNCATION = 8.0


def heatmap(
    raster: npt.ArrayLike,
    *,
    sigma_cells: float | tuple[float, float],
    mask: npt.NDArray[np.bool_] | None = None,
) -> FloatArray:
    r"""The heatmap :math:`H_\sigma` of a raster: each cell's value spread as a Gaussian that stays inside.

    .. math:: H_\sigma p(x, y) = \sum_{(x', y')} \frac{1}{Z(x', y')}
        e^{-((x - x')^2 + (y - y')^2) / 2 \sigma^2}\, p(x', y')

    where: :math:`p` is ``raster``, :math:`\sigma` is ``sigma_cells`` and :math:`Z(x', y')` is the sum of the
    exponentials over all cells :math:`(x, y)`, so that every source, and the total, keeps its mass. With sides above
    2048 the filter is a convolution cut off at 8 sigma. With a mask, Z and the result run over its cells only.

    Run by: the evaluator, or whoever holds a released map (post-processing). Source: Ghazi et al. (2023),
    section 2.3. Deviation: the paper does not give its sigma; there is no default.

    Parameters
    ----------
    raster : array_like, shape (rows, columns)
        Values per cell, of either sign.
    sigma_cells : float or (float, float)
        Standard deviation in cells, of both axes or of (rows, columns); 0 changes nothing.
    mask : ndarray of bool, shape (rows, columns), optional
        The cells that belong to the region, all by default; values outside stay where they are.

    Raises
    ------
    ParameterError
        The raster is not two-dimensional or has a value that is not finite, sigma is negative or not finite,
        or the mask has another shape.

    Examples
    --------
    >>> heat = heatmap([[0, 0, 0], [0, 6, 0], [0, 0, 0]], sigma_cells=1)
    >>> float(round(heat.sum(), 12)), bool(heat.argmax() == 4)
    (6.0, True)
    """
    values = np.asarray(raster, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ParameterError(f"the raster must have rows and columns, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ParameterError("the raster must be finite: a value is not")
    down, along = sigma_cells if isinstance(sigma_cells, tuple) else (sigma_cells, sigma_cells)
    if not (np.isfinite([down, along]).all() and down >= 0 and along >= 0):
        raise ParameterError(f"sigma_cells must be at least 0, got {sigma_cells!r}")
    if mask is None:
        return _spread(_spread(values, down, axis=0), along, axis=1)
    if mask.shape != values.shape:
        raise ParameterError(f"the mask must have shape {values.shape}, got {mask.shape}")
    inside = mask.astype(np.float64)
    # Every cell of the mask reaches itself, so Z is at least one there.
    reach = np.where(mask, _weighted(inside, down, along), 1.0)
    spread = _weighted(inside * values / reach, down, along)
    return np.where(mask, spread, values)


def smooth(
    density_map: DensityMap,
    *,
    sigma_m: float | None = None,
    sigma_cells: float | None = None,
) -> DensityMap:
    """A released map seen through the Gaussian filter: post-processing, it costs no privacy.

    On a raster as :func:`heatmap`, the cells outside the region's polygon masked. Other cells (hexagons, places) are
    smoothed pair by pair, by the distance of their centres. Bounds of
    :meth:`~mapveil.maps.density_map.DensityMap.error` remain those of the sums before smoothing. Run by: anybody who
    holds the map.

    Parameters
    ----------
    density_map : DensityMap
        The map.
    sigma_m : float
        Standard deviation in metres on the ground.
    sigma_cells : float
        Standard deviation in cells of a raster, instead.

    Raises
    ------
    ParameterError
        Neither or both of the sigmas, a negative one, metres without georeference, cells of no raster, or
        more than ``LARGEST_SCATTERED`` cells that are no raster.
    """
    tiling = density_map.tiling
    given = check_smoothing(tiling, sigma_m=sigma_m, sigma_cells=sigma_cells)
    if given == 0:
        return density_map
    frame = raster_frame(tiling)
    if frame is not None:
        inside = getattr(tiling, "inside", None)
        mask = None
        if tiling.region.polygon is not None and inside is not None:
            mask = frame.image(inside().astype(np.float64)) > 0
        deviation = (given, given) if sigma_m is None else _in_cells(density_map, frame, given)
        values = frame.cells(heatmap(frame.image(density_map.values), sigma_cells=deviation, mask=mask))
    else:
        values = _spread_scattered(density_map, given)
    unit = "cells" if sigma_m is None else "m"
    note = f"smoothed by a Gaussian filter of {given:g} {unit}; bounds are those of the sums before smoothing"
    return replace(density_map, values=values, notes=(*density_map.notes, note))


def check_smoothing(
    tiling: Tiling | str, *, sigma_m: float | None = None, sigma_cells: float | None = None
) -> float:
    """The sigma that is given; refuse what :func:`smooth` refuses, from the cells alone or their specification."""
    name, given = ("sigma_cells", sigma_cells) if sigma_m is None else ("sigma_m (--smooth-m)", sigma_m)
    if given is None or (sigma_m is not None and sigma_cells is not None):
        raise ParameterError("one of sigma_m and sigma_cells must be given")
    check(bool(np.isfinite(given)) and given >= 0, name, "at least 0", given)
    spec = tiling if isinstance(tiling, str) else tiling.spec
    if given == 0:
        return given
    if sigma_m is not None and not isinstance(tiling, str) and not tiling.region.georeferenced:
        raise ParameterError(f"{name} needs a georeferenced region; sigma_cells does not")
    if not is_raster(tiling):
        if sigma_m is None:
            raise ParameterError(f"the cells of {spec} are no raster; give sigma_m")
        if isinstance(tiling, str):
            raise ParameterError(f"{name} needs a region (--region): the cells of {spec} are no raster")
        if tiling.size > LARGEST_SCATTERED:
            raise ParameterError(
                f"{spec} has {tiling.size} cells that are no raster; up to {LARGEST_SCATTERED} are smoothed"
            )
    return given


def _spread(values: FloatArray, sigma: float, axis: int) -> FloatArray:
    """One axis with the per-source normalisation."""
    reach = _convolved(np.ones((values.shape[axis], 1)), sigma, axis=0)
    return _convolved(values / (reach if axis == 0 else reach.T), sigma, axis)


def _weighted(values: FloatArray, down: float, along: float) -> FloatArray:
    """Both axes without normalisation."""
    return _convolved(_convolved(values, down, axis=0), along, axis=1)


def _convolved(values: FloatArray, sigma: float, axis: int) -> FloatArray:
    """One axis of the unnormalised Gaussian, whole by a matrix product or cut off by a convolution."""
    size = values.shape[axis]
    if sigma == 0:
        return values
    if size <= _DENSE_SIDE:
        place = np.arange(size)
        kernel = np.exp(-(((place[:, None] - place) / sigma) ** 2) / 2)
        return np.asarray(kernel @ values if axis == 0 else values @ kernel)
    from scipy.signal import oaconvolve

    radius = min(int(np.ceil(_TRUNCATION * sigma)), size - 1)
    weights = np.exp(-((np.arange(-radius, radius + 1) / sigma) ** 2) / 2)
    spread = oaconvolve(values, np.expand_dims(weights, 1 - axis), mode="same", axes=axis)
    # The transform leaves rounding of either sign where nothing is.
    return np.asarray(np.maximum(spread, 0.0) if values.min() >= 0 else spread)


def _in_cells(density_map: DensityMap, frame: RasterFrame, sigma_m: float) -> tuple[float, float]:
    """A length on the ground as cells down and along, at the region's middle."""
    region = density_map.tiling.region
    x0, y0, x1, y1 = frame.bounds
    if isinstance(region.projection, Degrees):
        west, south, east, north = region.bbox
        x, y = ground_cylinder(region).project(np.array([west, east]), np.array([south, north]))
        x0, x1, y0, y1 = float(x[0]), float(x[1]), float(y[0]), float(y[1])
        ground = 1.0
    else:
        # A plane may stretch lengths (Web Mercator does); its mean stretch is known from the area.
        area = region.projection.box_area_m2(*(np.asarray(value) for value in (x0, y0, x1, y1)))
        ground = float(np.sqrt(area / ((x1 - x0) * (y1 - y0))))
    cell_height, cell_width = (y1 - y0) * ground / frame.rows, (x1 - x0) * ground / frame.columns
    return sigma_m / cell_height, sigma_m / cell_width


def _spread_scattered(density_map: DensityMap, sigma_m: float) -> FloatArray:
    x, y = positions_m(density_map.tiling)
    values = np.zeros(x.size)
    for start in range(0, x.size, 512):
        part = slice(start, start + 512)
        apart = np.hypot(x[part] - x[:, None], y[part] - y[:, None])
        kernel = np.exp(-((apart / sigma_m) ** 2) / 2)
        values += kernel @ (density_map.values[part] / kernel.sum(axis=0))
    return values
