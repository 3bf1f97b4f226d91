"""Unary encoding: a bit for every site, each randomized by itself: the server half."""

from __future__ import annotations

from dataclasses import dataclass

from mapveil.local.estimators.covariance import (
    Covariance,
    ExchangeableCovariance,
)
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SetRandomizer
from mapveil_client.arrays import FloatArray
from mapveil_client.local import unary_encoding as client
from mapveil_client.local.domain import Domain


class UnaryRandomizer(client.UnaryRandomizer, SetRandomizer):
    """The server half of :class:`mapveil_client.local.unary_encoding.UnaryRandomizer`."""

    def covariance(self, distribution: FloatArray) -> Covariance:
        """See :meth:`Randomizer.covariance`: bits are independent."""
        p, q = self.held, self.other
        scale = (p - q) ** 2
        return ExchangeableCovariance(
            lambda number: (p * (1 - p) + (number - 1) * q * (1 - q)) / scale,
            lambda number: number * q * (1 - q) / scale,
            distribution,
        )


@dataclass(frozen=True, kw_only=True)
class UnaryEncoding(client.UnaryEncoding, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.unary_encoding.UnaryEncoding`."""

    def on(self, domain: Domain) -> UnaryRandomizer:
        """Both halves on a domain; see :meth:`LocalMechanism.on`."""
        return UnaryRandomizer(domain, self.budget, self.variant)
