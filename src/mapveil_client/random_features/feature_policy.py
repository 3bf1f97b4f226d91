r"""The policy by which a device answers or refuses a query before it reads its place, and the public parameters.

Lemma 3 (one feature): at least j bands cross a region whose largest inscribed square has side l, with probability no
less than :math:`1 - C(\gamma)`, if

.. math:: h \le \frac{\sqrt{\gamma}\, l}{2 \pi j}

where: C is the law of :math:`\lVert u \rVert^2` for bandwidth 1, chi-squared with two degrees of freedom for the
Gaussian in two dimensions. For other laws :math:`\sqrt\gamma` is the quantile at the same probability. With several
axes l / h is the least over them.

Lemma 4 (Algorithm 3): bandwidths of one device are among :math:`h_0 (4 n + 1)`, n = 0, 1, ..., so that every fifth,
ninth, ... band stays where it was. Source: Zong et al. (2023), section 3.5 and appendix A.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np

from mapveil_client.errors import Checked, ParameterError, PromiseError
from mapveil_client.plane import EqualAreaCylinder, Projection, closed_projection
from mapveil_client.random_features.kernels import Kernel, kernel_named
from mapveil_client.random_features.query import Query

_LARGEST_GRID = 1 << 26  # points
_SLACK = 1e-9  # relative; rounding of bandwidths
_STRETCH = 1.5  # largest factor between a metre of the query's plane and one on the ground

PlaceChoice = Literal["mean", "most-visited"]
BandwidthRule = Literal["public", "neighbours"]

LEAST_SIDE_M: Final = 1000.0
"""Least extent of a query's region along x and y, metres."""


def largest_bandwidth(side: float, *, bands: int, gamma: float, kernel: Kernel, dimension: int = 2) -> float:
    r"""Lemma 3's bound on the bandwidth, in the unit of ``side``.

    Parameters
    ----------
    side : float
        l, the side of the largest square inside the region.
    bands : int
        j.
    gamma : float
        :math:`\gamma` for the Gaussian kernel in two dimensions; other laws keep the same probability.
    kernel : Kernel
        The law of the frequencies.
    dimension : int
        Number of axes.

    Examples
    --------
    >>> round(largest_bandwidth(11_000, bands=3, gamma=0.1, kernel=kernel_named("gaussian")), 2)
    184.54
    """
    probability = -math.expm1(-gamma / 2)  # C(gamma), chi-squared with two degrees of freedom
    return kernel.length_quantile(probability, dimension) * side / (2 * math.pi * bands)


@dataclass(frozen=True)
class Policy:
    """The rules of one device, known to everybody; the same for every query.

    Parameters
    ----------
    bandwidth : tuple of float
        :math:`h_0` of each axis, metres (seconds): the smallest bandwidth of a query.
    kernel : str
        The one kernel: another has other frequencies, and a second set may reveal the place.
    features : int
        B, the largest number of features of a query. With more than 1 few places remain possible, or one.
    bands : int
        j of Lemma 3, at least 1; the paper says 2 or more, and that 3 protect corners too.
    gamma : float
        :math:`\\gamma` of Lemma 3: fewer bands appear with probability :math:`1 - e^{-\\gamma/2}` at most.
    smallest_side : float
        Least extent of a region along x and y, metres.

    Raises
    ------
    ParameterError
        A rule outside its range.
    """

    bandwidth: tuple[float, ...]
    kernel: str = "gaussian"
    features: int = 1
    bands: int = 3
    gamma: float = 0.1
    smallest_side: float = 1000.0

    def __post_init__(self) -> None:
        kernel_named(self.kernel)
        if not all(math.isfinite(value) and value > 0 for value in self.bandwidth) or not self.bandwidth:
            raise ParameterError(f"bandwidth must be numbers of metres above 0, got {self.bandwidth!r}")
        if self.features < 1 or self.bands < 1:
            raise ParameterError(
                f"features and bands must be 1 or more, got {self.features} and {self.bands}"
            )
        if not (0 < self.gamma < math.inf and 0 <= self.smallest_side < math.inf):
            raise ParameterError(
                f"gamma must be above 0 and smallest_side 0 or more, got {self.gamma} and {self.smallest_side}"
            )

    @property
    def dimension(self) -> int:
        """Number of axes of a query."""
        return len(self.bandwidth)

    def check(self, query: Query, *, side: float | None = None, plane: Projection | None = None) -> None:
        """Refuse a query outside the policy. Run by: the client, before it reads its place.

        Parameters
        ----------
        query : Query
            The server's query.
        side : float, optional
            Side of the largest square in a region that is no box, metres; the box's shorter side by default.
        plane : Projection, optional
            The query's plane, where it has no closed form.

        Raises
        ------
        PromiseError
            The query is outside. The error names the rule, and does not depend on the device's place or past.
        """
        refusal = self.refusal(query, side=side, plane=plane)
        if refusal is not None:
            raise PromiseError(f"the device's policy refuses the query: {refusal}")

    def refusal(
        self, query: Query, *, side: float | None = None, plane: Projection | None = None
    ) -> str | None:
        """The rule that refuses a query; None where the policy allows it."""
        if query.dimension != self.dimension:
            return f"number of axes must be {self.dimension}, got {query.dimension}"
        if query.kernel != self.kernel:
            return f"kernel must be {self.kernel}, got {query.kernel}"
        if query.features > self.features:
            return f"features must be at most {self.features}, got {query.features}"
        if query.grid is not None and query.grid.size > _LARGEST_GRID:
            return f"points of the grid must be at most {_LARGEST_GRID}, got {query.grid.size}"
        plane = plane or closed_projection(query.crs)
        if plane is None:
            return f"crs must be a plane that this device projects, got {query.crs!r:.40}"
        if query.crs and not _true_to_scale(query, plane):
            return f"a metre of the query's plane is not within a factor of {_STRETCH:g} of one on the ground"
        least = min(query.sides[:2]) if side is None else side
        if least < self.smallest_side:
            hint = "; are its corners degrees?" if least < 1 else ""
            return f"side of the region must be at least {self.smallest_side:g} m, got {least:.6g} m{hint}"
        for asked, base in zip(query.bandwidth, self.bandwidth, strict=True):
            steps = (asked / base - 1) / 4
            if steps < -_SLACK or abs(steps - round(steps)) > _SLACK * max(1.0, steps):
                return f"bandwidth must be {base:.6g} times 1, 5, 9, ... (Lemma 4), got {asked:.6g}"
        sides = query.sides if side is None else (side, side, *query.sides[2:])
        for extent, asked in zip(sides, query.bandwidth, strict=False):
            largest = largest_bandwidth(
                extent, bands=self.bands, gamma=self.gamma, kernel=query.law, dimension=self.dimension
            )
            if asked > largest * (1 + _SLACK):
                return (
                    f"bandwidth must be at most {largest:.6g} for {self.bands} bands in a region of side "
                    f"{extent:.6g} (Lemma 3), got {asked:.6g}"
                )
        return None


def _true_to_scale(query: Query, plane: Projection) -> bool:
    """Whether the plane's metres are metres: a server that stretches them has larger bandwidths."""
    ends = [(low, (low + high) / 2, high) for low, high in zip(query.low[:2], query.high[:2], strict=True)]
    x, y = (part.ravel() for part in np.meshgrid(*ends))
    step = min(query.sides[:2]) * 1e-4
    lon, lat = plane.unproject(np.stack([x, x + step, x]), np.stack([y, y, y + step]))
    if not bool(np.isfinite(lon).all() and np.isfinite(lat).all()):
        return False
    for at in range(x.size):
        ground = EqualAreaCylinder(float(lat[0, at]), float(lon[0, at]))
        east, north = ground.project(lon[:, at], lat[:, at])
        along = np.hypot(east[1:] - east[0], north[1:] - north[0])
        if not bool(((along > step / _STRETCH) & (along < step * _STRETCH)).all()):
            return False
    return True


@dataclass(frozen=True, kw_only=True)
class FourierParameters(Checked):
    r"""The public parameters of Federated KDE by random Fourier features; client and server share them.

    Parameters
    ----------
    bandwidth_m : float, optional
        h, metres (cells without georeference); without one the rule chooses it.
    features : int
        B, random Fourier features per device. With two, few places remain possible; with three one, the place itself.
    kernel : str
        ``gaussian``, ``laplace``, ``cauchy``, ``matern-3/2``, ``matern-5/2`` or ``matern-7/2``.
    bandwidth_rule : str
        Where none is given: ``public`` reads no place (:func:`mapveil.random_features.bandwidth.public_bandwidth`);
        ``neighbours`` is the paper's and reads a tenth of the places in the clear. Either gives at most Lemma 3's.
    neighbours : int
        k of either rule.
    smoothing : str
        ``reports`` smooths the surface further, as much as the reports say (Gaussian kernel on an even grid); or
        ``none``.
    places : str
        Report of a device with several places: the ``mean`` over their features, or that of the ``most-visited`` cell.
    jitter_m : float
        Standard deviation of the offset that each device draws once and keeps, metres; it smooths the map.
    bands : int
        j of Lemma 3, in the devices' policy.
    gamma : float
        :math:`\gamma` of Lemma 3.
    """

    name: ClassVar[str] = "fourier-kde"

    bandwidth_m: float | None = None
    features: int = 1
    kernel: str = "gaussian"
    bandwidth_rule: BandwidthRule = "public"
    neighbours: int = 500
    smoothing: Literal["none", "reports"] = "none"
    places: PlaceChoice = "mean"
    jitter_m: float = 0.0
    bands: int = 3
    gamma: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bandwidth_m is not None:
            self._check_positive("bandwidth_m")
        for name in ("features", "bands", "neighbours"):
            self._check(getattr(self, name) >= 1, name, "a whole number of at least 1")
        kernel_named(self.kernel)
        self._check(
            self.smoothing == "none" or self.kernel == "gaussian", "smoothing", "none for this kernel"
        )
        self._check(0 <= self.jitter_m < math.inf, "jitter_m", "a number of metres from 0")
        self._check_positive("gamma")

    def policy(self, bandwidth: float, *, smallest_side: float = LEAST_SIDE_M) -> Policy:
        """The policy of the queried devices. Run by: the client."""
        h = float(bandwidth)
        return Policy((h, h), self.kernel, self.features, self.bands, self.gamma, smallest_side)
