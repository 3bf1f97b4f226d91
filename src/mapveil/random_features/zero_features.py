"""Zero features: every device answers with a constant, the best privacy and the worst map (section 4.2.3)."""

from dataclasses import dataclass
from typing import ClassVar

from mapveil.engines.contributions import count_users
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.privacy.claim import Assumes, Assumption, Disclosure, Measured, Quantity, Reveals
from mapveil.random_features.map_points import MapPoints, prior_cells
from mapveil.random_features.posterior import blind_error
from mapveil.random_features.projection_mechanism import Collected, ProjectionMechanism, uniform_users
from mapveil.trust.queries import Progress
from mapveil_client.randomness.random import Randomness


@dataclass(frozen=True, kw_only=True)
class ZeroFeatures(ProjectionMechanism):
    """Every device reports that it is in the region, and nothing else: a uniform map of all users who answered."""

    name: ClassVar[str] = "zero-features"
    summary: ClassVar[str] = "each device answers with a constant: a flat map, and nothing learnt"
    source: ClassVar[str] = "Zong et al. 2023, section 4.2.3"

    @property
    def disclosure(self) -> Disclosure:
        """See :class:`ProjectionMechanism`."""
        return Reveals.PRESENCE()

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """See :class:`ProjectionMechanism`."""
        return (Assumes.PARTICIPATION_PUBLIC(),)

    def collect(
        self, points: Points | Counts, tiling: Tiling, rng: Randomness, progress: Progress
    ) -> Collected:
        """See :class:`ProjectionMechanism`."""
        progress("count the devices", 0.0)
        devices = count_users(points, tiling)
        progress("count the devices", 1.0)
        return Collected(uniform_users(devices, tiling), devices)

    def measure(self, tiling: Tiling, where: MapPoints, made: Collected) -> tuple[Measured, ...]:
        """The error of a server that knows the region only."""
        unit = "m" if tiling.region.georeferenced else "cells"
        error = blind_error(prior_cells(tiling, where))
        return (Measured(Quantity.POSTERIOR_ERROR, error, unit, "a server that knows the region only"),)
