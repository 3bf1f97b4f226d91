"""The server half of unary encoding."""

from dataclasses import dataclass

from mapveil.local.estimators.covariance import Covariance, ExchangeableCovariance
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SetRandomizer
from mapveil_client.arrays import FloatArray
from mapveil_client.local import unary_encoding as client


class UnaryRandomizer(client.UnaryRandomizer, SetRandomizer):
    """Both halves of :class:`mapveil_client.local.unary_encoding.UnaryRandomizer`."""

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

    randomizer = UnaryRandomizer
