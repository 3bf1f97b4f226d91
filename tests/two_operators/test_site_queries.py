"""A query of locations and labels asked of sites that are divided by label: the groups of the locations themselves."""

from __future__ import annotations

import numpy as np

from mapveil.two_operators.site_queries import of_sites
from mapveil_client.encodings import LabelEncoding, MarginsEncoding, NodeEncoding, SiteEncoding
from mapveil_client.morton import PrefixTree

DEPTH, LABELS = 2, 3


def test_labelled_sites_are_in_the_groups_of_their_locations() -> None:
    sites = SiteEncoding(DEPTH, LABELS)
    site, label = (each.ravel() for each in np.indices((4**DEPTH, LABELS)))
    coordinate = sites.positions(site, label)[:, 0]
    nodes = NodeEncoding(PrefixTree.uniform(DEPTH, 1))
    for query in (nodes, MarginsEncoding(DEPTH), LabelEncoding(nodes, LABELS)):
        asked = of_sites(query, sites)
        assert (asked.length, asked.copies) == (query.length, query.copies)
        every = asked.positions(np.arange(sites.length))
        assert every[coordinate].tolist() == query.positions(site, label).tolist()


def test_a_label_that_there_is_not_is_in_no_group_by_label() -> None:
    """A malicious device may fill the sites that no label has: it counts 1 on the map of all labels at most."""
    sites = SiteEncoding(DEPTH, LABELS)
    beyond = (np.arange(4**DEPTH) << 2 * sites.levels) + LABELS
    whole = NodeEncoding(PrefixTree.uniform(DEPTH, 0))
    assert set(of_sites(LabelEncoding(whole, LABELS), sites).positions(beyond).ravel()) == {-1}
    assert set(of_sites(whole, sites).positions(beyond).ravel()) == {0}


def test_of_one_map_the_query_is_asked_as_it_is() -> None:
    query = NodeEncoding(PrefixTree.uniform(DEPTH, 1))
    assert of_sites(query, SiteEncoding(DEPTH)) is query
