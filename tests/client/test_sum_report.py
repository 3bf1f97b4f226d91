"""The client half: exact vectors, exact norms, and noise that is that of the law."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil.trust.queries import Query
from mapveil_client.contribution import Devices, client_noise, client_report, encode_places, sensitivity
from mapveil_client.encodings import LabelEncoding, NodeEncoding
from mapveil_client.level_encoding import LevelEncoding, SketchEncoding
from mapveil_client.morton import PrefixTree
from mapveil_client.randomness.random import Randomness

CERTAIN = 1e-9
DEPTH = 2
EVERYWHERE = np.ones(16, dtype=np.int64)
ENCODINGS = {
    "sites": NodeEncoding(PrefixTree.uniform(DEPTH, DEPTH)),
    "some nodes": NodeEncoding(PrefixTree.of_nodes(DEPTH, [1, 2, 2], [0, 1, 13])),
    "levels": LevelEncoding.of_members(DEPTH, (0, 1, 2), EVERYWHERE),
    "some levels": LevelEncoding.of_members(DEPTH, (1, 2), np.array([0, 1] * 8)),
    "sketch": SketchEncoding(DEPTH, (1, 2), 5, 3, "collides"),  # several sites share a coordinate
}
OF_ENCODING = pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS.keys())


@st.composite
def travellers(draw):
    """Devices with any number of places, some outside, with weights or without."""
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    places = sum(lengths)
    site = draw(st.lists(st.integers(-1, 15), min_size=places, max_size=places))
    weight = draw(st.lists(st.integers(1, 10**6), min_size=places, max_size=places))
    return Devices(
        np.array(site, dtype=np.int64),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.array(weight, dtype=np.int64) if draw(st.booleans()) else None,
    )


def exact_shares(devices, encoding, scale, device):
    """What each coordinate of a device would hold if units could be divided, copy by copy."""
    share = [Fraction(0)] * encoding.length
    first, last = devices.starts[device : device + 2]
    position = encoding.positions(devices.sites[first:last])
    weight = [1] * (last - first) if devices.weights is None else devices.weights[first:last].tolist()
    for copy in range(encoding.copies):
        held = [(at, w) for at, w in zip(position[:, copy].tolist(), weight, strict=True) if at >= 0]
        for at, w in held:
            share[at] += Fraction(scale * w, sum(w for _, w in held))
    return share


@OF_ENCODING
@settings(max_examples=40)
@given(devices=travellers(), scale=st.sampled_from([1, 2, 7, 1024, 1 << 28]))
def test_the_norm_is_exactly_the_scale_and_no_unit_is_far_from_its_share(encoding, devices, scale):
    made = encode_places(devices, encoding, scale, "largest-remainder", Randomness(seed=1))
    assert (made.clients, made.length) == (devices.count, encoding.length)
    assert made.value.min(initial=0) >= 0
    for device in range(devices.count):
        vector, share = made.dense(device), exact_shares(devices, encoding, scale, device)
        copies = sum(share) / scale  # those at which any of its places counts
        assert copies.denominator == 1
        assert vector.sum() == copies * scale <= sensitivity(encoding, scale, "largest-remainder")
        assert all(abs(int(unit) - exact) < 1 for unit, exact in zip(vector, share, strict=True))


@OF_ENCODING
@settings(max_examples=40)
@given(devices=travellers(), scale=st.sampled_from([1, 3, 100]), seed=st.integers(0, 2**32))
def test_stochastic_rounding_stays_within_its_sensitivity(encoding, devices, scale, seed):
    made = encode_places(devices, encoding, scale, "stochastic", Randomness(seed=seed))
    for device in range(devices.count):
        vector, share = made.dense(device), exact_shares(devices, encoding, scale, device)
        assert vector.sum() <= sensitivity(encoding, scale, "stochastic")
        assert all(int(unit) - 1 < exact < int(unit) + 1 for unit, exact in zip(vector, share, strict=True))


def test_stochastic_rounding_is_unbiased():
    count, scale = 20_000, 2
    devices = Devices(np.tile([0, 5, 9], count), np.arange(count + 1) * 3, np.tile([1, 2, 4], count))
    made = encode_places(devices, ENCODINGS["sites"], scale, "stochastic", Randomness(seed=3)).sum()
    for site, weight in ((0, 1), (5, 2), (9, 4)):
        whole, part = divmod(scale * weight / 7, 1)
        law = stats.binom(count, part)
        assert CERTAIN < law.cdf(made[site] - whole * count) < 1 - CERTAIN
    assert made.sum() == made[[0, 5, 9]].sum()


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(1, 9)), min_size=1, max_size=8))
def test_a_scale_of_one_reports_the_place_it_was_at_most(visits):
    site, weight = (np.array(column, dtype=np.int64) for column in zip(*visits, strict=True))
    devices = Devices(site, np.array([0, site.size]), weight)
    vector = encode_places(devices, ENCODINGS["sites"], 1, "largest-remainder", Randomness(seed=1)).dense(0)
    total = np.bincount(site, weight, 16)
    assert vector.sum() == 1
    assert total[vector.argmax()] == total.max()


def test_a_device_outside_sends_zeros():
    encoding = ENCODINGS["some nodes"]
    for devices in (Devices(np.array([-1, 15])), Devices(np.array([-1, 15, -1]), np.array([0, 0, 3]))):
        made = encode_places(devices, encoding, 5, "largest-remainder", Randomness(seed=1))
        assert made.clients == 2
        assert not made.value.any()


def test_places_outside_leave_the_whole_to_those_inside():
    devices = Devices(np.array([-1, 3]), np.array([0, 2]), np.array([9, 1]))
    made = encode_places(devices, ENCODINGS["sites"], 10, "largest-remainder", Randomness(seed=1))
    assert made.dense(0)[3] == 10


@OF_ENCODING
@given(devices=travellers())
def test_a_device_alone_sends_what_it_sends_in_a_crowd(encoding, devices):
    together = encode_places(devices, encoding, 100, "largest-remainder", Randomness(seed=1))
    for device in range(devices.count):
        alone = encode_places(
            devices.between(device, device + 1), encoding, 100, "largest-remainder", Randomness(seed=2)
        )
        np.testing.assert_array_equal(alone.dense(0), together.dense(device))


def test_one_place_each_is_a_special_case_of_many():
    sites = np.array([3, -1, 15, 3])
    for encoding in ENCODINGS.values():
        few = encode_places(Devices(sites), encoding, 7, "largest-remainder", Randomness(seed=1))
        many = encode_places(
            Devices(sites, np.arange(5)), encoding, 7, "largest-remainder", Randomness(seed=1)
        )
        for device in range(4):
            np.testing.assert_array_equal(few.dense(device), many.dense(device))


def test_labels_divide_a_device_among_its_places():
    encoding = LabelEncoding(ENCODINGS["sites"], 2)
    devices = Devices(np.array([3, 3, 4]), np.array([0, 3]), np.array([1, 2, 1]), np.array([0, 1, 5]))
    vector = encode_places(devices, encoding, 6, "largest-remainder", Randomness(seed=1)).dense(0)
    assert vector[[6, 7]].tolist() == [2, 4]  # the third place's label is unknown: it counts nowhere
    assert vector.sum() == 6


@pytest.mark.parametrize(
    ("encoding", "scale", "rounding", "wanted"),
    [
        ("sites", 1, "largest-remainder", 1),
        ("levels", 1, "largest-remainder", 3),
        ("levels", 1024, "largest-remainder", 3072),
        ("sketch", 2, "largest-remainder", 12),
        ("sites", 100, "stochastic", 116),  # section 5.7: gamma + d
        ("levels", 10, "stochastic", 30 + 21),
    ],
)
def test_the_sensitivity_is_stated(encoding, scale, rounding, wanted):
    assert sensitivity(ENCODINGS[encoding], scale, rounding) == wanted


@OF_ENCODING
def test_a_report_is_its_places_and_noise_that_knows_nothing_of_them(encoding):
    query = Query("where", encoding, Fraction(1, 2))
    asked = (query, Fraction(1, 3), 4, "largest-remainder")
    crowds = [Devices(np.array(sites)) for sites in ([0, 1, 2], [15, 15, -1])]
    noise = client_noise(3, *asked, Randomness(seed=4))
    assert noise.value.any()
    for devices in crowds:
        report = client_report(devices, *asked, Randomness(seed=4))
        places = encode_places(devices, encoding, 4, "largest-remainder", Randomness(seed=4))
        for device in range(3):
            np.testing.assert_array_equal(report.dense(device) - places.dense(device), noise.dense(device))


@pytest.mark.parametrize("rounding", ["largest-remainder", "stochastic"])
@pytest.mark.parametrize("encoding", ["sites", "levels"])
def test_enough_devices_add_one_discrete_laplace_variable_to_every_coordinate(encoding, rounding):
    clients, epsilon, scale, repeats = 40, Fraction(2, 3), 3, 600
    query = Query("where", ENCODINGS[encoding], epsilon)
    outside = Devices(np.full(clients * repeats, -1))
    report = client_report(outside, query, Fraction(1, clients), scale, rounding, Randomness(seed=6))
    totals = np.zeros((repeats, query.encoding.length))
    np.add.at(totals, (report.client // clients, report.position), report.value)
    moves = sensitivity(query.encoding, scale, rounding)
    q = np.exp(-float(epsilon) / moves)
    edges = np.arange(-3 * moves, 3 * moves + 1, max(moves // 3, 1))

    def fits(ratio):
        """The p-value of the law with so much wider noise."""
        wider = q ** (1 / ratio)
        at_most = np.where(
            edges < 0, wider ** (-edges.astype(float)) / (1 + wider), 1 - wider ** (edges + 1.0) / (1 + wider)
        )
        parts = np.diff(np.concatenate([[0], at_most, [1]]))
        seen = np.bincount(np.searchsorted(edges, totals.ravel()), minlength=parts.size)
        return stats.chisquare(seen, parts * totals.size).pvalue

    assert fits(1.0) > CERTAIN
    assert fits(0.7) < CERTAIN
    assert fits(1.3) < CERTAIN
    spread = totals.var() / laplace_variance(epsilon, moves)
    assert 0.8 < spread < 1.25
