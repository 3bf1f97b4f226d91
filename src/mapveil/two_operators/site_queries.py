"""A plan's query as one of the sites whose shares two operators hold, which a series divides by window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.encodings import Encoding, SiteEncoding


@dataclass(frozen=True, eq=False)
class _OfLabelledSites(Encoding):
    """A query by label, put to sites that are divided by label: a path or a vector of numbers has no labels."""

    kind = "labelled sites"
    by_label: Encoding
    sites: SiteEncoding

    @property
    def length(self) -> int:
        return self.by_label.length

    @property
    def copies(self) -> int:
        return self.by_label.copies

    def positions(self, sites: npt.NDArray[np.integer], labels: IntArray | None = None) -> IntArray:
        return self.by_label.positions(*self.sites.divided(sites.astype(np.int64)))


def of_sites(query: Encoding, sites: SiteEncoding) -> Encoding:
    """The query's groups of the sites that clients share. Run by: each operator.

    Parameters
    ----------
    query : Encoding
        Of locations, by label or of all labels together.
    sites : SiteEncoding
        The sites of a report.

    Examples
    --------
    >>> from mapveil_client.encodings import LabelEncoding, NodeEncoding
    >>> from mapveil_client.morton import PrefixTree
    >>> whole = LabelEncoding(NodeEncoding(PrefixTree.uniform(1, 0)), 2)
    >>> of_sites(whole, SiteEncoding(1, labels=2)).positions(np.arange(16)).ravel().tolist()
    [0, 1, -1, -1, 0, 1, -1, -1, 0, 1, -1, -1, 0, 1, -1, -1]
    """
    return query if sites.labels == 1 else _OfLabelledSites(query, sites)
