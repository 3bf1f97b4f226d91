"""One round as both halves see it: the question, and the noisy sums that answer it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from mapveil.maps.density_map import Measurement
from mapveil.privacy.claim import Share
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.encodings import Encoding


class Setting(NamedTuple):
    """What is public before any device is asked; all the server half starts from."""

    depth: int  # of the raster of sites
    members: IntArray  # cells on each site, in Morton order; 0 where nobody can be
    devices: int  # asked in each round
    shards: int  # sums of one round
    alpha: Fraction  # of the noise share: the part of a discrete Laplace variable each device adds
    scale: int  # units that one device divides over its places

    @property
    def least_terms(self) -> float:
        """Discrete Laplace variables in a round's noise if nobody drops out."""
        return float(self.alpha * self.devices)


@dataclass(frozen=True)
class Query:
    """What one round asks.

    Parameters
    ----------
    purpose : str
        What it is for, for the guarantee and the ledger.
    encoding : Encoding
        How places become coordinates.
    epsilon : Fraction
        What its answer costs every device that was asked.
    """

    purpose: str
    encoding: Encoding
    epsilon: Fraction

    @property
    def share(self) -> Share:
        """Its entry in the guarantee."""
        return Share(self.purpose, self.epsilon)


class NoisySums(NamedTuple):
    """The answer to a query: all that the server half ever learns of people."""

    values: FloatArray  # users per coordinate, unbiased, shape (length,)
    variance: float  # of the noise on each, users squared
    terms: float  # discrete Laplace variables in each
    epsilon: Fraction
    sensitivity: int  # units one device changes the vector by, in L1
    scale: int  # units per user
    devices: int  # in the sums

    def measurement(self, groups: IntArray, values: FloatArray | None = None) -> Measurement:
        """The sums as a measurement of groups of cells; of some of them, given their ``values``."""
        return Measurement(
            groups,
            self.values if values is None else values,
            self.epsilon,
            self.scale,
            terms=self.terms,
            sensitivity=self.sensitivity,
        )
