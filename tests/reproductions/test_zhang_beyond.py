"""Every privatizer at equal utility: the interpolation, the report, and one judgement from end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mapveil.attacks.signal_attack import signal_adversaries
from mapveil.attacks.signal_score import AdversaryScore, SignalAttack
from mapveil.evaluation.signal_trials import SignalTask, run_signal_task
from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.gaussian_noise import GaussianNoise
from mapveil.obfuscation.utility import Utility
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from reproductions.zhang.beyond import (
    CONTENDERS,
    OWN,
    BeyondRow,
    at_equal_utility,
    report_beyond,
)
from reproductions.zhang.data import SIGNAL_SETS, read_signal
from reproductions.zhang.funnel import Funnel

SHARED = Path(__file__).resolve().parents[2] / "../shared/data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not here")


def row(label: str, value: float, u: float, p1: float, p2: float) -> BeyondRow:
    scores = (
        AdversaryScore("trees", "own", p1, 1.0, p2 + 0.1, 100.0, p1 + p2 + 0.1, 50),
        AdversaryScore("network", "own", p1 + 0.1, 1.0, p2, 90.0, p1 + p2 + 0.1, 50),
    )
    return BeyondRow("sea", label, "rho", value, Utility(u + 0.5, -0.5, u), SignalAttack(scores, (1.0, 1.0)))


def test_privacy_is_that_against_the_best_of_each_kind() -> None:
    assert row("a", 0.1, -2.0, 0.3, 0.4).privacy == pytest.approx(0.7)


def test_between_measured_values_privacy_is_linear() -> None:
    rows = [row("a", 0.1, -4.0, 0.5, 1.0), row("a", 0.9, -1.0, 0.2, 0.4), row("a", 0.5, -2.0, 0.4, 0.8)]
    assert at_equal_utility(rows, -3.0) == pytest.approx(1.35)
    assert at_equal_utility(rows, -1.5) == pytest.approx(0.9)
    assert at_equal_utility(rows, -2.0) == pytest.approx(1.2)


def test_what_is_more_useful_counts_and_what_is_less_does_not() -> None:
    rows = [row("a", 0.1, -4.0, 0.5, 1.0), row("a", 0.9, -3.0, 0.2, 0.4)]
    assert at_equal_utility(rows, -2.5) is None
    assert at_equal_utility(rows, -4.5) == pytest.approx(1.5)
    assert at_equal_utility([], -2.5) is None


def test_a_parameter_that_does_not_order_utility_counts_at_its_best() -> None:
    rows = [row("a", 0.1, -3.0, 0.5, 1.0), row("a", 0.2, -2.0, 0.2, 0.4), row("a", 0.3, -3.0, 0.1, 0.1)]
    assert at_equal_utility(rows, -2.5) == pytest.approx((1.5 + 0.6) / 2)


@pytest.mark.parametrize(("own", "verdict"), [(0.9, "holds"), (0.1, "does not hold")])
def test_the_report_says_who_is_ahead(own: float, verdict: str) -> None:
    pytest.importorskip("matplotlib")
    rows = [row("noise", value, u, 0.2, 0.3) for value, u in ((0.1, -4.5), (0.2, -1.0))]
    rows += [row(OWN, value, u, own, 0.2) for value, u in ((0.1, -3.2), (0.2, -1.7))]
    report = report_beyond(rows)
    assert [claim.verdict for claim in report.claims] == [verdict]
    assert "at -2.5" in report.claims[0].evidence
    equal = {cells[0]: cells[1:] for cells in report.tables[0].rows}
    best = f"{own + 0.2:.2f}"
    assert equal["sea, U = -2.5"] == (["0.50", f"*{best}"] if own > 0.5 else ["*0.50", best])
    assert equal["sea, U = -1.5"][1] == "-"
    assert len(report.tables[1].rows) == 4
    assert report.pictures[0].png.startswith(b"\x89PNG")


def test_every_contender_is_made_at_every_value() -> None:
    for contender in CONTENDERS:
        for value in contender.values:
            assert getattr(contender.make(value), contender.parameter) == value
    assert OWN in [each.label for each in CONTENDERS]


def people(rows: int) -> Measurements:
    draw = np.random.default_rng(1)
    users = draw.integers(3, size=rows)
    place = np.array([[40.0, -40.0], [40.1, -40.1], [40.0, -40.1]])[users] + 0.01 * draw.standard_normal(
        (rows, 2)
    )
    signal = -80 + 100 * (place[:, :1] - 40) + 2 * draw.standard_normal((rows, 1))
    table = np.hstack([place, signal, draw.standard_normal((rows, 1))])
    names = ("lat", "lon", "rss_dbm", "speed")
    return Measurements(table, names, users, ("a", "b", "c"), None, np.arange(rows), "sea")


def test_the_funnel_hides_more_than_noise_of_its_utility() -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    split = people(1_200).split("random", Randomness(3))
    funnel = Funnel(rho=0.4, codes=24, cells=100, rounds=80)
    trained = signal_adversaries(quick=True, as_reported=False)
    hidden, noisy = (
        run_signal_task(SignalTask("sea", split, privatizer, "", 0.0, 0, 4, trained))
        for privatizer in (funnel, GaussianNoise(sigma=0.9))
    )
    assert {"codes", "trees", "neighbours", "network", "blind"} == {
        score.adversary for score in hidden.attack.scores
    }
    assert hidden.u > noisy.u - 0.2
    assert hidden.floor > noisy.floor + 0.3


@needs_shared
@pytest.mark.parametrize("name", SIGNAL_SETS)
def test_shared_sets_are_read_with_place_signal_and_more(name: str) -> None:
    found = read_signal(name, SHARED)
    assert len(found) > 5_000
    assert found.names[:2] == ("lat", "lon")
    assert found.names[2].endswith("_dbm")
    assert found.features >= 8


def test_no_such_set() -> None:
    with pytest.raises(ParameterError, match="chania"):
        read_signal("athens", SHARED)
