"""Measure a released map against the true one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.positions import positions_m
from mapveil.geo.tiling import Tiling
from mapveil.inference.heatmap import heatmap
from mapveil.local.estimators.site_metrics import squares
from mapveil.maps.frame import RasterFrame, raster_frame
from mapveil.metrics.distribution import distribution_pair
from mapveil.metrics.emd import emd_of_points
from mapveil.metrics.emd_bounds import emd_within
from mapveil.metrics.emd_euclidean import emd_euclidean
from mapveil.metrics.metrics import METRICS
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError

EMD_METRES: Final = "emd_m"
"""The earth mover's distance in city-block metres, along the axes; ``emd`` is in region widths and heights."""

EMD_EUCLIDEAN: Final = "emd_euclidean_m"
"""The earth mover's distance in Euclidean metres (:func:`mapveil.metrics.emd_euclidean.emd_euclidean`)."""

L1_SQUARES: Final = "l1_2km"
"""L1 distance of the distributions summed in squares of 2 km, from 0 to 2."""

TITLES: Final[dict[str, str]] = {
    "l1": "L1, users",
    "kl": "KL, nats",
    "jensen_shannon": "Jensen-Shannon, nats",
    "emd": "EMD (city-block), region widths",
    EMD_METRES: "EMD (city-block), m",
    EMD_EUCLIDEAN: "EMD (Euclidean), m",
    L1_SQUARES: "L1 on squares of 2 km",
    "top_ten": "top-ten mass",
    "density_mse": "MSE of densities",
}
"""Names of metrics in tables, where the metric's own name would not say enough."""

_SQUARE_M: Final = 2000.0
_DIGITS: Final = 12  # of the L1 distance of sums
_OF_METRES: Final = (EMD_METRES, EMD_EUCLIDEAN, L1_SQUARES)

_OF_VALUES: Final = frozenset({"mse", "l1", "l2", "mape", "floored_mape", "smape", "maape"})


def metric_names() -> tuple[str, ...]:
    """Every metric a comparison can report."""
    return (*METRICS, *_OF_METRES)


def higher_is_better(metric: str) -> bool:
    """True for a metric that grows as two maps become alike."""
    return metric not in _OF_METRES and METRICS[metric].higher_is_better


class _Ground(NamedTuple):
    """Ground of a distance: the sides of a raster's cell, or every cell's position; region widths or metres."""

    cell: tuple[float, float] | None
    position: tuple[FloatArray, FloatArray] | None


@dataclass(frozen=True)
class Scoring:
    r"""Smooth both maps alike and take the metrics.

    Metrics between distributions normalise both maps and count negative estimates as zero; metrics of values
    (mse, l1, l2, mape, floored_mape, smape, maape) take users per cell as they are. Run by: the evaluator.

    Parameters
    ----------
    metrics : tuple of str
        From :func:`metric_names`.
    sigma_cells : float
        Standard deviation of the filter of :func:`mapveil.inference.heatmap.heatmap` in cells, 0 for none.
    emd_tolerance : float
        The earth mover's distance is off by at most half this fraction of itself, from certified bounds
        (:func:`mapveil.metrics.emd_bounds.emd_within`), on rasters of up to ``emd_side`` rows and columns.
    emd_side : int
        A raster with more rows or columns is summed over blocks before its earth mover's distance is taken.
        Blocks of b x b cells move it by at most
        :math:`\tfrac{b - 1}{2} (w + h) \sum_i |p_i - q_i|` (w, h the sides of a cell), and by far less on
        smoothed maps: measured 0.03 % at b = 2 and 0.1 % at b = 4 with a sigma of 8 cells.
    euclidean_side : int
        The same for the Euclidean one, which is a flow between 16 neighbours and slower.

    Raises
    ------
    ParameterError
        No such metric, or a sigma that is negative or not finite.
    """

    metrics: tuple[str, ...]
    sigma_cells: float = 0.0
    emd_tolerance: float = 1e-3
    emd_side: int = 1024
    euclidean_side: int = 48

    def __post_init__(self) -> None:
        known = metric_names()
        for metric in self.metrics:
            if metric not in known:
                raise ParameterError(f"no metric is called {metric!r}; expected one of {', '.join(known)}")
        if not self.metrics:
            raise ParameterError(f"no metric is given; expected one of {', '.join(known)}")
        if not (np.isfinite(self.sigma_cells) and self.sigma_cells >= 0):
            raise ParameterError(f"sigma must be a number of at least 0, got {self.sigma_cells!r}")

    def against(self, truth: FloatArray, tiling: Tiling) -> Callable[[FloatArray], dict[str, float]]:
        """Prepare one true map (users per cell); the result measures estimates against it."""
        distances = ("emd", EMD_METRES, EMD_EUCLIDEAN)
        grounds = {name: _ground(tiling, name) for name in self.metrics if name in distances}
        areas = squares(np.stack(positions_m(tiling)), _SQUARE_M) if L1_SQUARES in self.metrics else None
        frame = raster_frame(tiling)
        smoothed = self.heatmap(truth, tiling)

        def score(estimate: FloatArray) -> dict[str, float]:
            values = self.heatmap(estimate, tiling)
            # Negative estimates must go before smoothing, or they eat into their neighbours.
            kept = self.heatmap(np.maximum(estimate, 0.0), tiling) if estimate.min() < 0 else values
            found: dict[str, float] = {}
            for metric in self.metrics:
                if metric in grounds:
                    found[metric] = self._distance(metric, grounds[metric], smoothed, kept)
                elif areas is not None and metric == L1_SQUARES:
                    cells = [image if frame is None else frame.cells(image) for image in (smoothed, kept)]
                    p, q = (np.bincount(areas, part) for part in distribution_pair(*cells))
                    # Sums in another order differ by rounding, which a comparison of paired trials would judge.
                    found[metric] = round(float(np.abs(p - q).sum()), _DIGITS)
                else:
                    found[metric] = METRICS[metric](smoothed, values if metric in _OF_VALUES else kept)
            return found

        return score

    def heatmap(self, values: FloatArray, tiling: Tiling) -> FloatArray:
        """Users per cell as the image (rows, columns) that is compared; as they are where there is no raster."""
        frame = raster_frame(tiling)
        if frame is None:
            if self.sigma_cells > 0:
                raise ParameterError(
                    f"sigma must be 0 for cells that are no raster ({tiling.spec}), got {self.sigma_cells:g}"
                )
            return values
        image: FloatArray = frame.image(np.asarray(values, dtype=np.float64))
        return (
            heatmap(image, sigma_cells=self.sigma_cells, mask=_mask(tiling, frame))
            if self.sigma_cells
            else image
        )

    def _distance(self, metric: str, ground: _Ground, truth: FloatArray, estimate: FloatArray) -> float:
        if ground.position is None:
            rows, columns = truth.shape
            width, height = ground.cell or (1 / columns, 1 / rows)
            side = self.euclidean_side if metric == EMD_EUCLIDEAN else self.emd_side
            block = -(-max(rows, columns) // side)
            images = [_block_sums(image, block) for image in (truth, estimate)]
            cell = (width * block, height * block)
            if metric == EMD_EUCLIDEAN:
                return emd_euclidean(*images, cell=cell)
            return emd_within(*images, cell=cell, tolerance=self.emd_tolerance)
        pair = distribution_pair(truth, estimate)
        moved = pair.truth - pair.estimate
        differing = np.flatnonzero(moved)
        x, y = ground.position
        return emd_of_points(x[differing], y[differing], moved[differing])


def _block_sums(image: FloatArray, block: int) -> FloatArray:
    if block == 1:
        return image
    rows, columns = image.shape
    padded = np.pad(image, ((0, -rows % block), (0, -columns % block)))
    blocks = padded.reshape(padded.shape[0] // block, block, padded.shape[1] // block, block)
    return np.asarray(blocks.sum(axis=(1, 3)))


def _ground(tiling: Tiling, metric: str) -> _Ground:
    frame = raster_frame(tiling)
    if metric == "emd" and frame is not None:
        return _Ground(None, None)
    x, y = positions_m(tiling)
    if frame is not None:
        return _Ground((_pitch(x, frame.columns), _pitch(y, frame.rows)), None)
    if metric == EMD_EUCLIDEAN:
        raise ParameterError(f"{EMD_EUCLIDEAN} needs cells in rows and columns, which {tiling.spec} has not")
    if metric == EMD_METRES:
        return _Ground(None, (x, y))
    return _Ground(None, (x / tiling.region.width_m, y / tiling.region.height_m))


def _pitch(position: FloatArray, count: int) -> float:
    """The distance between neighbouring columns (or rows); any number where there is only one."""
    return float(np.ptp(position)) / (count - 1) if count > 1 else 1.0


def _mask(tiling: Tiling, frame: RasterFrame) -> npt.NDArray[np.bool_] | None:
    inside = getattr(tiling, "inside", None)
    if tiling.region.polygon is None or inside is None:
        return None
    return np.asarray(frame.image(inside()))
