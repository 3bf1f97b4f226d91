"""The answers file: exact replies, durable one by one, held by one process, and readable by its owner only."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mapveil.analysis.origin_destination import PairReports
from mapveil.local.randomizers.randomizer import Tally
from mapveil.mechanisms.private_fourier_kde import FeatureSums
from mapveil.privacy.answers import Answers, answers_files, decode, encode
from mapveil.trust.queries import NoisySums
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.local.randomizer import Reports
from mapveil_client.morton import PrefixTree

SUMS = NoisySums(np.array([0.1, -2.5, 1e300]), 2 / 3, 1.0, Fraction(1, 3), 1 << 28, 1 << 28, None)


def parts(reply: object) -> list[object]:
    names = getattr(reply, "_fields", None) or list(vars(reply))
    return [getattr(reply, name) for name in names]


@pytest.mark.parametrize(
    "reply",
    [
        SUMS,
        SUMS._replace(values=np.empty(0), clients=300),
        FeatureSums(np.array([np.pi, -0.0]), float("inf")),
        PrefixTree.of_nodes(2, [0, 1, 2], [0, 3, 12]),
        Tally(np.array([3, 0, -1]), 2),
        PairReports(Reports(np.array([1, 2])), Reports(np.array([[255], [0]], dtype=np.uint8))),
    ],
    ids=lambda reply: type(reply).__name__,
)
def test_a_reply_comes_back_to_the_last_bit(reply: object) -> None:
    again = decode(type(reply), encode(reply))
    assert type(again) is type(reply)
    for one, other in zip(parts(reply), parts(again), strict=True):
        if isinstance(one, Reports):
            one, other = one.values, other.values  # type: ignore[attr-defined]
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


def test_a_pickle_is_never_read() -> None:
    with pytest.raises(ValueError, match="pickle"):
        decode(FeatureSums, encode(FeatureSums(np.array([print]), 1.0)))


def test_replies_are_kept_in_order_and_drawn_once(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    made = Answers.create(ledger, "ab", "the request")
    (path,) = answers_files(ledger)
    assert path.stat().st_mode & 0o777 == 0o600
    made.keep("level 1", NoisySums, lambda: SUMS)
    with pytest.raises(InputError, match="another process"):
        Answers(path)
    made.close()
    again = Answers(path)
    assert (again.spend, again.request) == ("ab", "the request")
    kept = again.keep("level 1", NoisySums, lambda: pytest.fail("drawn again"))
    np.testing.assert_array_equal(kept.values, SUMS.values)
    assert again.keep("level 2", NoisySums, lambda: SUMS) is SUMS
    again.close()
    with pytest.raises(PromiseError, match="'level 1', but 'level 7'"):
        Answers(path).keep("level 7", NoisySums, lambda: SUMS)


def test_a_reply_that_cannot_be_stored_is_not_used(tmp_path: Path) -> None:
    made = Answers.create(tmp_path / "ledger.sqlite", "ab", "the request")
    large = SUMS._replace(values=np.zeros(100_000))
    pages = made._connection.execute("PRAGMA page_count").fetchone()[0]
    made._connection.execute(f"PRAGMA max_page_count = {pages + 1}")  # a disk of so many pages
    with pytest.raises(PromiseError, match="cannot be kept"):
        made.keep("level 1", NoisySums, lambda: large)
    assert made._connection.execute("SELECT COUNT(*) FROM replies").fetchone() == (0,)
    made.close()


def test_a_file_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromiseError, match="nothing is charged"):
        Answers.create(tmp_path / "nowhere" / "ledger.sqlite", "ab", "the request")
    foreign = tmp_path / "ledger.sqlite.ab.answers"
    foreign.write_bytes(b"something else entirely, and long enough to be looked at")
    with pytest.raises(InputError, match="cannot be used"):
        Answers(foreign)
    with pytest.raises(PromiseError, match="nothing is charged"):
        Answers.create(tmp_path / "ledger.sqlite", "ab", "the request")
    assert foreign.exists()
    with pytest.raises(InputError, match=r"cannot be (opened|used)"):
        Answers.of(tmp_path / "ledger.sqlite", "cd")
    assert [path.name for path in tmp_path.iterdir()] == [foreign.name]
