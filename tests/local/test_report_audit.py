"""Every randomizer audited from its reports alone: within its claim, and caught when the noise is halved."""

from __future__ import annotations

import importlib.util
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta

import mapveil as mv
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

spec = importlib.util.spec_from_file_location("local_conftest", Path(__file__).parent / "conftest.py")
common = importlib.util.module_from_spec(spec)
spec.loader.exec_module(common)

ALL = {**common.SYMBOLS, **common.SETS}
REPORTS = 120_000
DOUBT = 1e-9 / 2


def reports(randomizer, site: int, seed: int) -> np.ndarray:
    """What a phone at one site sends, as numbers."""
    cells = np.full(REPORTS, randomizer.domain.cells[site])
    values = randomizer.randomize(cells, Randomness(seed)).values
    if values.ndim == 1:
        return values
    bits = np.unpackbits(values, axis=1, count=randomizer.size)
    return bits @ (1 << np.arange(randomizer.size)[::-1])


def shown(randomizer, first: int, second: int) -> float:
    """A lower bound on the epsilon, sure but for 1e-9: an event is chosen on one half, counted on the other."""
    halves = [np.array_split(reports(randomizer, site, 20 + site), 2) for site in (first, second)]
    size = 1 + max(int(values.max()) for parts in halves for values in parts)
    chosen, other = (np.bincount(parts[0], minlength=size) + 0.5 for parts in halves)
    best = 0.0
    for level in np.quantile(np.log(chosen / other), np.linspace(0.02, 0.98, 25)):
        event = np.log(chosen / other) > level
        hits, misses = (int(event[parts[1]].sum()) for parts in halves)
        n = halves[0][1].size
        low = beta.ppf(DOUBT / 25, hits, n - hits + 1) if hits else 0.0
        high = beta.ppf(1 - DOUBT / 25, misses + 1, n - misses)
        best = max(best, math.log(low / high) if low > 0 else 0.0)
    return best


@pytest.mark.parametrize("kind", ALL)
def test_reports_show_no_more_than_the_claim_and_half_the_noise_is_caught(kind: str) -> None:
    domain = Domain(mv.Grid(common.REGION, rows=2, columns=3))
    claimed = Fraction(1)
    honest, careless = (ALL[kind](epsilon=k).on(domain) for k in (claimed, 2 * claimed))
    far = domain.size - 1
    assert 0.5 < shown(honest, 0, far) <= 1
    assert shown(careless, 0, far) > 1
