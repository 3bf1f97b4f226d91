"""The server's side of a collection's terms: mechanism, tiling with outlines, both halves of a randomizer."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil.geo.tiling import Tiling
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import Randomizer
from mapveil.mechanisms.mechanism import AnyMechanism
from mapveil.mechanisms.methods import find_method
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.terms import CollectionTerms

_MOST_KEPT: Final = 64  # offers, each with a randomizer's tables


class Offer:
    """What the server makes of the terms that devices were told; see :func:`offer`.

    Parameters
    ----------
    terms : CollectionTerms
        Of the collection.
    """

    def __init__(self, terms: CollectionTerms) -> None:
        self._terms = terms

    @cached_property
    def mechanism(self) -> AnyMechanism:
        """The mechanism with the terms' parameters.

        Raises
        ------
        ParameterError
            The method does not exist, or an option is none of it.
        """
        terms = self._terms
        return find_method(terms.method, terms.trust).make(terms.epsilon, terms.options)

    @cached_property
    def tiling(self) -> Tiling:
        """The tiling.

        Raises
        ------
        InputError
            The record is none.
        """
        return tiling_from_dict(self._terms.tiling)

    @property
    def local(self) -> LocalMechanism:
        """The mechanism of a local collection.

        Raises
        ------
        ParameterError
            The terms are of another trust model.
        """
        if not isinstance(self.mechanism, LocalMechanism):
            raise ParameterError(f"{self._terms.method} does not randomize reports; choose a local method")
        return self.mechanism

    @cached_property
    def randomizer(self) -> Randomizer:
        """Both halves of the randomizer of a local collection.

        Raises
        ------
        InputError
            The terms are of another trust model, or their parameters do not fit the cells.
        """
        return self.local.on(Domain(self.tiling))


_kept: dict[bytes, Offer] = {}


def offer(terms: CollectionTerms) -> Offer:
    """The server's side of some terms, made once for terms of one digest."""
    found = _kept.get(terms.digest)
    if found is None:
        found = _kept[terms.digest] = Offer(terms)
        while len(_kept) > _MOST_KEPT:
            del _kept[next(iter(_kept))]
    return found
