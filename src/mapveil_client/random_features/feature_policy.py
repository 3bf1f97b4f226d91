r"""The policy by which a device answers or refuses a query before it reads its place, and the public parameters.

Lemma 3 (one feature): at least j bands cross a region whose largest inscribed square has side l, with probability no
less than :math:`1 - C(\gamma)`, if

.. math:: h \le \frac{\sqrt{\gamma}\, l}{2 \pi j}

where: C is the law of :math:`\lVert u \rVert^2` for bandwidth 1, chi-squared with two degrees of freedom for the
Gaussian in two dimensions. For other laws :math:`\sqrt\gamma` is the quantile at the same probability. With several
axes l / h is the least over them.

Lemma 4 (Algorithm 3): bandwidths of one device are among :math:`h_0 (4 n + 1)`, n = 0, 1, ..., so that every fifth,
ninth, ... band stays where it was. Source: Zong et al. (2023), section 3.5 and appendix A.

Deviation: the lemma does not count what several such answers say together. Phases at :math:`\omega / m_1, \dots,
\omega / m_k` tell of one place as much as the phase at :math:`\omega / \mathrm{lcm}(m_1, \dots, m_k)`, which five
bandwidths of the ladder bring below one band in any city. So a device answers one bandwidth; where its owner allows the
ladder, Lemma 3 holds for the least common multiple of all answers, with one multiple for all axes: another on each axis
would turn the bands, and bands of two directions cross.
"""

import math
from collections.abc import Sequence
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

_MOST_GAMMA: Final = 50.0  # of 75 the probability of too few bands is 1 in double precision
LEAST_SIDE_M: Final = 1000.0
"""Least extent of a query's region along x and y, metres."""

LEAST_SIGNAL: Final = 0.1
"""Floor of the predicted signal to noise. Of the public data in tests/random_features/test_signal_to_noise.py the four
samples above it (from 0.11) have a map nearer to the truth than the uniform one; eight of the ten below have not."""


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
        :math:`h_0` of each axis, metres (seconds): the bandwidth of every query.
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
    answers : int
        Largest number of queries that the device answers in its life, those outside whose region it is counted too.
    ladder : bool
        Whether bandwidths of 1, 5, 9, ... times :math:`h_0` are answered (Lemma 4), held to Lemma 3 all together.

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
    answers: int = 8  # as many as docs/explanation/localisation.md measures of a device on its way
    ladder: bool = False

    def __post_init__(self) -> None:
        kernel_named(self.kernel)
        if not all(math.isfinite(value) and value > 0 for value in self.bandwidth) or not self.bandwidth:
            raise ParameterError(f"bandwidth must be numbers of metres above 0, got {self.bandwidth!r}")
        if min(self.features, self.bands, self.answers) < 1:
            given = f"{self.features}, {self.bands} and {self.answers}"
            raise ParameterError(f"features, bands and answers must be 1 or more, got {given}")
        if not (0 < self.gamma <= _MOST_GAMMA and 0 <= self.smallest_side < math.inf):
            raise ParameterError(
                f"gamma must be above 0, at most {_MOST_GAMMA:g}, and smallest_side 0 or more, got {self.gamma} "
                f"and {self.smallest_side}"
            )

    @property
    def dimension(self) -> int:
        """Number of axes of a query."""
        return len(self.bandwidth)

    def multiple(self, query: Query) -> int | None:
        """The m of a query's bandwidth :math:`m h_0`, the same on every axis; None where it may not be asked."""
        m = max(1, round(query.bandwidth[0] / self.bandwidth[0]))
        pairs = zip(query.bandwidth, self.bandwidth, strict=True)
        same = all(abs(asked / base - m) <= _SLACK * m for asked, base in pairs)
        return m if same and (m == 1 or (self.ladder and m % 4 == 1)) else None

    def bands_left(self, query: Query, answered: Sequence[int]) -> float:
        """Bands of :math:`\\omega / \\mathrm{lcm}` of the answered multiples across the region, at least.

        Fewer than that appear with probability :math:`1 - e^{-\\gamma/2}` at most (Lemma 3).

        Examples
        --------
        >>> policy = Policy((20.0, 20.0), ladder=True)
        >>> city = Query((20.0, 20.0), (0.0, 0.0), (11_000.0, 11_000.0))
        >>> [round(policy.bands_left(city, (1, 5, 9, 13, 17)[:k]), 2) for k in range(1, 6)]
        [27.68, 5.54, 0.62, 0.05, 0.0]
        """
        once = [
            largest_bandwidth(extent, bands=1, gamma=self.gamma, kernel=query.law, dimension=self.dimension)
            for extent in query.sides
        ]
        together = math.lcm(*answered)
        return min(most / (base * together) for most, base in zip(once, self.bandwidth, strict=True))

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
        self,
        query: Query,
        *,
        side: float | None = None,
        plane: Projection | None = None,
        answered: Sequence[int] = (),
    ) -> str | None:
        """The rule that refuses a query after answers at some multiples of :math:`h_0`; None where it is allowed."""
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
        m = self.multiple(query)
        if m is None:
            rule = "times 1, 5, 9, ... (Lemma 4), the same on each axis" if self.ladder else "exactly"
            given = " and ".join(f"{asked:.6g}" for asked in query.bandwidth)
            return f"bandwidth must be {self.bandwidth[0]:.6g} {rule}, got {given}"
        together = math.lcm(m, *answered)
        sides = query.sides if side is None else (side, side, *query.sides[2:])
        for extent, base in zip(sides, self.bandwidth, strict=False):
            largest = largest_bandwidth(
                extent, bands=self.bands, gamma=self.gamma, kernel=query.law, dimension=self.dimension
            )
            if base * together > largest * (1 + _SLACK):
                said = f" (answers at {', '.join(map(str, sorted({m, *answered})))} times {base:.6g} say as much)"
                return (
                    f"bandwidth must be at most {largest:.6g} for {self.bands} bands in a region of side "
                    f"{extent:.6g} (Lemma 3), got {base * together:.6g}{said if together != m else ''}"
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
        Report of a device with several places: that of the ``most-visited`` cell, or the ``mean`` over their features.
    jitter_m : float
        Standard deviation of the offset that each device keeps for each place, a square of this side, metres; it
        smooths the map.
    bands : int
        j of Lemma 3, in the devices' policy.
    gamma : float
        :math:`\gamma` of Lemma 3.
    least_signal : float
        The least predicted signal to noise (mapveil.random_features.signal_to_noise) of a map that is drawn.
    """

    name: ClassVar[str] = "fourier-kde"

    bandwidth_m: float | None = None
    features: int = 1
    kernel: str = "gaussian"
    bandwidth_rule: BandwidthRule = "public"
    neighbours: int = 500
    smoothing: Literal["none", "reports"] = "none"
    places: PlaceChoice = "most-visited"
    jitter_m: float = 0.0
    bands: int = 3
    gamma: float = 0.1
    least_signal: float = LEAST_SIGNAL

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
        self._check(0 <= self.least_signal < math.inf, "least_signal", "a number from 0")
        self._check(0 < self.gamma <= _MOST_GAMMA, "gamma", f"above 0, at most {_MOST_GAMMA:g}")

    def policy(self, bandwidth: float, *, smallest_side: float = LEAST_SIDE_M) -> Policy:
        """The policy of the queried devices. Run by: the client."""
        h = float(bandwidth)
        return Policy((h, h), self.kernel, self.features, self.bands, self.gamma, smallest_side)
