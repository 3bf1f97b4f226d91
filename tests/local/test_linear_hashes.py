"""Hash functions by their definition, and their sums one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil_client.errors import ParameterError
from mapveil_client.local.local_hashing import LinearHashes, is_prime

PRIMES = st.sampled_from([2, 3, 5, 7, 17, 19])


def values_of_all(hashes: LinearHashes) -> np.ndarray:
    """The bucket of every site under every function, shape (functions, sites)."""
    function = np.repeat(np.arange(hashes.functions), hashes.sites)
    site = np.tile(np.arange(hashes.sites), hashes.functions)
    return hashes.values(function, site).reshape(hashes.functions, hashes.sites)


@settings(max_examples=30)
@given(PRIMES, st.integers(2, 40))
def test_any_two_sites_collide_equally_often(buckets: int, sites: int) -> None:
    hashes = LinearHashes(buckets, sites)
    made = values_of_all(hashes)
    assert made.min() >= 0
    assert made.max() < buckets
    together = (made[:, :, None] == made[:, None, :]).sum(axis=0)
    off = together[~np.eye(sites, dtype=bool)]
    assert (off == round(hashes.collision * hashes.functions)).all()
    assert (off == buckets ** (hashes.digits - 1) - 1).all()


@settings(max_examples=30)
@given(PRIMES, st.integers(2, 60), st.integers(0, 10**6))
def test_sums_and_tables_are_those_of_the_definition(buckets: int, sites: int, seed: int) -> None:
    hashes = LinearHashes(buckets, sites)
    generator = np.random.default_rng(seed)
    made = values_of_all(hashes)
    table = generator.normal(size=(hashes.functions, buckets))
    slow = table[np.arange(hashes.functions)[:, None], made].sum(axis=0)
    np.testing.assert_allclose(hashes.sums(table), slow, atol=1e-8)
    p = generator.random(sites)
    whole = np.zeros_like(table)
    for site in range(sites):
        np.add.at(whole, (np.arange(hashes.functions), made[:, site]), p[site])
    np.testing.assert_allclose(hashes.table(p), whole, atol=1e-9)


def test_primes() -> None:
    assert [n for n in range(40) if is_prime(n)] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37]
    with pytest.raises(ParameterError, match="prime"):
        LinearHashes(4, 10)
