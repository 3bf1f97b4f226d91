from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from reproductions.bagdasaryan.claims import (
    BASELINES,
    BUDGETS,
    rounds_claim,
    table_1_claims,
    table_2_claims,
    table_3_claims,
)
from reproductions.bagdasaryan.runs import Found
from reproductions.bagdasaryan.sections import Shown, at_most, within
from reproductions.report import Claim, joint_verdict
from reproductions.results import Results

SETTINGS = {"table 1, 10k users": 0, "table 1, 100k users": 1, "table 1, 100k users, 10 % drop out": 2}
PAPER = {
    "non-private": (7.75, 6.19, 6.55),
    "flat": (41.4, 21.4, 21.9),
    "hierarchical": (8.81, 7.75, 7.79),
    "CM sketch": (11.62, 11.69, 11.73),
    "adaptive grid": (9.67, 9.89, 9.96),
    "spatial decomposition": (8.56, 7.72, 7.78),
    "Algorithm 2": (7.88, 6.99, 7.02),
    "multiscale (ours)": (7.3, 6.3, 6.4),
}
LENGTHS = {"Algorithm 2": 340, "adaptive grid": 460, "multiscale (ours)": 1024, "non-private": 2}


def results(
    values: Mapping[str, float],
    group: str = "g",
    metric: str = "mse",
    against: str = "density",
    length: Callable[[str], int] = lambda label: LENGTHS.get(label, 400_000),
) -> list[Found]:
    """Three trials of each row, close to its value."""
    return [
        Found(
            group, "i", 1, trial, label, against, metric, value * part, length(label), 14, 1,
            " ".join(map(str, BUDGETS.get(group, (1.0,)))), 0.1,
        )
        for label, value in values.items()
        for trial, part in enumerate((0.999, 1.0, 1.001))
    ]  # fmt: skip


def table_1(changed: Mapping[str, tuple[float, float, float]] | None = None) -> list[Claim]:
    figures = {**PAPER, **(changed or {})}
    rows = [
        row
        for group, place in SETTINGS.items()
        for row in results({label: value[place] * 1e-13 for label, value in figures.items()}, group)
    ]
    return table_1_claims(Results(rows, {}, {}))


def verdicts(claims: list[Claim], words: str) -> list[str]:
    return [claim.verdict for claim in claims if words in claim.claim]


def test_the_papers_own_figures_hold() -> None:
    claims = table_1()
    assert {claim.verdict for claim in claims} == {"holds"}
    assert len(verdicts(claims, "within 2%")) == 2
    assert len(verdicts(claims, "within 3%")) == 3
    assert set(BASELINES) < set(PAPER)


def test_figures_that_are_off_do_not_hold() -> None:
    off = table_1({"non-private": (7.92, 6.19, 6.55), "Algorithm 2": (8.7, 7.3, 7.02)})
    assert verdicts(off, "Non-private, 10k") == ["does not hold"]
    assert verdicts(off, "Non-private, 100k users:") == ["holds"]
    assert verdicts(off, "Algorithm 2, 10k users:") == ["does not hold"]
    assert verdicts(off, "less error than every baseline") == ["holds in part"]
    assert verdicts(off, "1.7 %") == ["does not hold"]
    slow = table_1({"multiscale (ours)": (9.0, 9.0, 9.0), "adaptive grid": (9.7, 9.0, 9.0)})
    assert verdicts(slow, "Mapveil's default") == ["does not hold"]
    assert verdicts(slow, "does not improve") == ["does not hold"]


def test_rounds_of_other_budgets_do_not_hold() -> None:
    rows = results({"Algorithm 2": 7.88e-13}, "table 1, 10k users") + results(
        {"Algorithm 2": 7e-13}, "table 1, 100k users"
    )
    assert rounds_claim(Results(rows, {}, {})).verdict == "holds"
    fewer = [row._replace(epsilons="0.5 0.5") for row in rows]
    assert rounds_claim(Results(fewer, {}, {})).verdict == "does not hold"
    dearer = [row._replace(epsilons=row.epsilons.replace("0.0453", "0.0473")) for row in rows]
    assert rounds_claim(Results(dearer, {}, {})).verdict == "holds in part"


def tokyo(multi: Mapping[tuple[float, int], float], single: float, exact: float) -> list[Claim]:
    values = {
        "single location": single,
        "multiscale (ours)": 3e-7,
        "multiscale at the grid's depth (ours)": 2e-7,
        "multiscale, two rounds (ours)": 2e-7,
    }
    for (gamma, bits), value in multi.items():
        values[f"multi-location, stochastic, scale {gamma:g}, {bits} bits"] = value
        values[f"multi-location, largest-remainder, scale {gamma:g}, {bits} bits"] = value * exact
    return table_2_claims(Results(results(values, against="visits"), {}, {}))


def test_tokyo_is_judged_by_scale_overflow_and_rounding() -> None:
    good = {(1, 16): 40e-7, (100, 16): 44e-7, (100, 32): 32e-7, (1e4, 32): 9e-7, (1e6, 32): 7e-7}
    assert {claim.verdict for claim in tokyo(good, 13e-7, 0.9)} == {"holds"}
    bad = tokyo({**good, (100, 16): 30e-7, (1e4, 32): 33e-7, (1e6, 32): 33e-7}, 6e-7, 1.1)
    assert verdicts(bad, "larger scale improves") == ["holds in part"]
    assert verdicts(bad, "overflow") == ["does not hold"]
    assert verdicts(bad, "single most visited") == ["does not hold"]
    assert verdicts(bad, "Largest-remainder") == ["does not hold"]


def test_a_lead_within_the_noise_is_not_one() -> None:
    rows = results({"a": 1.0, "b": 1.1})
    assert Results(rows, {}, {}).ahead("a", "b").clear
    noisy = [row._replace(value=row.value + (0.5, -0.2, 0.1)[row.trial] * (row.label == "b")) for row in rows]
    ahead = Results(noisy, {}, {}).ahead("a", "b")
    assert ahead.mean > 0.1
    assert not ahead.clear


def test_the_ablation_is_judged_by_error_and_length() -> None:
    labels = ("no noise, T = 10", "fixed ε, T = 10", "scheduled ε, T = 10", "scheduled ε, adaptive T")
    mse = dict(zip(labels, (7.75e-13, 8.81e-13, 7.95e-13, 7.88e-13), strict=True))
    mse["multiscale (ours)"] = 7.3e-13
    length = {labels[0]: 12_734, labels[1]: 43_450, labels[2]: 340, labels[3]: 340}
    rows = results(mse, length=lambda label: length.get(label, 1024))
    for metric, ratio in (("l1", 1.02), ("floored_mape", 1.11), ("smape", 1.09), ("maape", 1.0)):
        rows += results({labels[0]: 1.0, labels[3]: ratio}, metric=metric)
    claims = table_3_claims(Results(rows, {}, {}))
    assert {claim.verdict for claim in claims} == {"holds"}
    worse = [row._replace(value=row.value * 1.2) if row.label == labels[3] else row for row in rows]
    judged = table_3_claims(Results(worse, {}, {}))
    assert verdicts(judged, "adapts to the noise") == ["does not hold"]
    assert verdicts(judged, "every measure") == ["does not hold"]


def test_verdicts_and_means_in_words() -> None:
    assert [within(found, 10.0, 0.02) for found in (9.79, 9.81, 10.19, 10.21)] == [
        "does not hold", "holds", "holds", "does not hold",
    ]  # fmt: skip
    assert (at_most(1.0, 1.0), at_most(1.01, 1.0)) == ("holds", "does not hold")
    assert [joint_verdict(held) for held in ([True], [True, False], [False])] == [
        "holds", "holds in part", "does not hold",
    ]  # fmt: skip
    found = Results(results({"a": 2.0}), {}, {}).of(label="a")
    half = found.high - found.mean
    assert Shown(1.0, 2)(found) == f"2.00 ± {half:.1g}"  # below the last digit
    assert Shown(1.0, 4)(found) == f"2.0000 ± {half:.4f}"
    assert Shown(1.0, 2)(found._replace(high=2.0 + 1e-15)) == "2.00"
    assert Shown(10.0, 1)(found._replace(high=np.inf)) == "20.0"
