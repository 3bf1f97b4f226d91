"""Planar Laplace on a finite list of sites: the server half."""

from __future__ import annotations

from dataclasses import dataclass

from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.weight_table import TableRandomizer
from mapveil_client.local import planar_laplace as client
from mapveil_client.local.domain import Domain


class PlanarLaplaceRandomizer(client.PlanarLaplaceRandomizer, TableRandomizer):
    """The server half of :class:`mapveil_client.local.planar_laplace.PlanarLaplaceRandomizer`."""


@dataclass(frozen=True, kw_only=True)
class PlanarLaplace(client.PlanarLaplace, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.planar_laplace.PlanarLaplace`."""

    def on(self, domain: Domain) -> PlanarLaplaceRandomizer:
        """Both halves on a domain; see :meth:`LocalMechanism.on`."""
        return PlanarLaplaceRandomizer(domain, self.budget, self.weights(domain))
