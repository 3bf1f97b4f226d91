"""The codebook: its law against the exact one, and where its codes come from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mapveil.obfuscation.privatizers.codebook import Codebook, choose_codes
from mapveil.obfuscation.utility import utility
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

USERS = np.zeros(1, dtype=np.int64)


def quiet(_step: str, _part: float) -> None:
    pass


def pilot(rows: int = 500, width: int = 4, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width))


def exact_law(codes: np.ndarray, row: np.ndarray, mu: float, length: int) -> np.ndarray:
    off = [
        np.mean(
            [
                np.linalg.norm(a - b)
                for a, b in zip(row.reshape(length, -1), code.reshape(length, -1), strict=True)
            ]
        )
        for code in codes
    ]
    weights = np.exp(-mu * np.array(off))
    return weights / weights.sum()


@pytest.mark.parametrize("length", [1, 2])
def test_codes_are_chosen_by_the_stated_law(length: int) -> None:
    book = Codebook(mu=1.5, size=6, sequence=length)
    state = book.learn(pilot(), USERS, Randomness(2), quiet)
    codes = state["codes"][:, 0].astype(np.float64)
    row = pilot(seed=9)[0]
    sent = book.privatize(state, np.repeat(row[None], 40_000, axis=0), Randomness(3))
    counts = (np.abs(sent[:, None] - codes).sum(axis=2) < 1e-9).sum(axis=0)
    assert counts.sum() == 40_000

    def likely(mu: float) -> bool:
        return bool(stats.chisquare(counts, 40_000 * exact_law(codes, row, mu, length)).pvalue > 1e-6)

    assert likely(1.5)
    assert not likely(1.5 * 1.3)
    assert not likely(1.5 * 0.7)


def test_the_raw_row_leaves_as_often_as_the_promise_says() -> None:
    book = Codebook(mu=0.0, size=5, raw=True)
    state = book.learn(pilot(), USERS, Randomness(2), quiet)
    assert len(state["codes"]) == 4
    rows = pilot(20_000, seed=4)
    unchanged = int((book.privatize(state, rows, Randomness(5)) == rows).all(axis=1).sum())
    assert stats.binomtest(unchanged, 20_000, 1 / 5).pvalue > 1e-6
    assert "at least 1/5" in book.promise(state, 4).in_words()
    # Utility favours what is unchanged.
    assert (Codebook(mu=2.0, size=5, raw=True).privatize(state, rows, Randomness(5)) == rows).all(
        axis=1
    ).mean() > 0.5


def test_without_the_raw_row_nothing_leaves_unchanged() -> None:
    book = Codebook(mu=50.0)
    state = book.learn(pilot(), USERS, Randomness(2), quiet)
    rows = pilot(2_000, seed=4)
    sent = book.privatize(state, rows, Randomness(5))
    assert not (sent == rows).all(axis=1).any()
    assert len(np.unique(sent, axis=0)) <= 51
    assert "the raw row" not in book.promise(state, 4).in_words()


def test_more_weight_on_utility_is_less_distortion() -> None:
    rows = pilot(3_000, seed=4)
    kept = []
    for mu in (0.0, 1.0, 10.0):
        book = Codebook(mu=mu)
        state = book.learn(pilot(), USERS, Randomness(2), quiet)
        kept.append(utility(rows, book.privatize(state, rows, Randomness(5))).u1)
    assert kept[0] < kept[1] < kept[2]


def test_one_code_replaces_a_whole_batch() -> None:
    book = Codebook(mu=0.3, size=4, batch=100)
    state = book.learn(pilot(), USERS, Randomness(2), quiet)
    assert state["codes"].shape == (4, 100, 4)
    rows = pilot(250, seed=4)
    sent = book.privatize(state, rows, Randomness(5))
    for start in (0, 100, 200):
        part = sent[start : start + 100]
        assert any(np.array_equal(part, code[: len(part)].astype(np.float64)) for code in state["codes"])


def test_batches_are_chosen_by_distortion_and_map_error() -> None:
    book = Codebook(mu=2.0, size=3, batch=40)
    state = book.learn(pilot(), USERS, Randomness(2), quiet)
    rows = pilot(40, seed=4)
    codes = state["codes"].astype(np.float64)
    weights = np.exp([2.0 * utility(rows, code).total for code in codes])
    sent = book.privatize(state, np.tile(rows, (1_000, 1)), Randomness(5)).reshape(1_000, 40, 4)
    counts = np.array([(sent == code).all(axis=(1, 2)).sum() for code in codes])
    assert stats.chisquare(counts, 1_000 * weights / weights.sum()).pvalue > 1e-6


def test_codes_have_the_law_of_the_kernel_density_estimate() -> None:
    rows = pilot(2_000) @ np.diag([1.0, 2.0, 0.5, 1.0]) + [0, 3, 0, 0]
    state = Codebook(size=1 << 14).learn(rows, USERS, Randomness(2), quiet)
    drawn = state["codes"][:, 0]
    widened = np.cov(rows, rowvar=False) * (1 + 2_000 ** (-2 / 8))
    np.testing.assert_allclose(drawn.mean(axis=0), rows.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(np.cov(drawn, rowvar=False), widened, atol=0.25)
    assert np.abs(np.diag(np.cov(drawn, rowvar=False)) / np.diag(widened) - 1).max() < 0.06


@pytest.mark.parametrize(("scale", "likely"), [(1.0, True), (1.3, False), (0.7, False)])
def test_choice_follows_the_weights(scale: float, likely: bool) -> None:
    weights = np.array([2.0, 0.0, 5.0, 3.0])
    counts = np.bincount(choose_codes(np.tile(weights, (50_000, 1)), Randomness(8)), minlength=4)
    assert counts[1] == 0
    claimed = np.array([0.2 * scale, 0.5, 0.3])
    assert bool(stats.chisquare(counts[[0, 2, 3]], 50_000 * claimed / claimed.sum()).pvalue > 1e-6) is likely


@pytest.mark.parametrize(
    "options", [{"mu": -1.0}, {"mu": float("nan")}, {"size": 1}, {"size": 2.5}, {"batch": 0}, {"sequence": 0}]
)
def test_parameters_outside_their_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=r"must be|expected"):
        Codebook(**options)  # type: ignore[arg-type]


def test_a_codebook_beyond_memory_is_refused() -> None:
    with pytest.raises(InputError, match=r"must be|expected"):
        Codebook(size=1 << 16, batch=1 << 16).learn(pilot(), USERS, Randomness(2), quiet)
