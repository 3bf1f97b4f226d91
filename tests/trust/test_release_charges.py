"""When ``release`` charges a ledger: never for a refusal, always before the first noisy sum is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import mapveil as mv
from mapveil.engines import user_sums
from mapveil.mechanisms.emd_heatmap import EmdHeatmap
from mapveil.mechanisms.release_after_search import split_region
from mapveil.trust import curator
from mapveil.trust.queries import Execution
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError, PromiseError
from mapveil_client.randomness.random import Randomness

CITY = mv.synthetic.city(users=2000, seed=1)
TILING = mv.Quadtree(CITY.region, depth=4)


@pytest.fixture
def ledger(tmp_path: Path) -> mv.Ledger:
    return mv.Ledger(tmp_path / "ledger.sqlite")


def spent(ledger: mv.Ledger) -> Fraction:
    return ledger.account(ledger.recognise(CITY)).spent


@pytest.mark.parametrize(
    ("method", "epsilon", "options"),
    [
        ("hierarchical", 1, {"level": 99}),
        ("spatial-decomposition", 1, {"level": 99}),
        ("private-fourier-kde", 1, {"bandwidth_m": 0.001}),
        ("privtree", 1, {"theta": 1e300}),
        ("privtree", 1, {"theta": float("nan")}),
        *((name, "1e-9", {}) for name in ("laplace", "multiscale", "privtree", "private-fourier-kde")),
        *((name, "1e-20", {}) for name in ("laplace", "multiscale", "privtree", "private-fourier-kde")),
        ("private-fourier-kde", "1e-12", {"users": 2000}),
    ],
)
def test_a_curator_s_refusal_costs_nothing(
    ledger: mv.Ledger, method: str, epsilon: str | int, options: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        mv.release(
            CITY, TILING, epsilon=epsilon, method=method, options=options, account=mv.Account(ledger=ledger)
        )
    assert spent(ledger) == 0


@pytest.mark.parametrize(
    "tiling",
    ["nonsense", "h3:99", "tiles:99", "quadtree:30", "places:/nonexistent.csv", "grid:100000x100000"],
)
@pytest.mark.parametrize("trust", ["central", "distributed"])
def test_a_bad_specification_costs_no_search_for_a_region(ledger: mv.Ledger, tiling: str, trust: str) -> None:
    with pytest.raises(InputError):
        mv.release(CITY, tiling, epsilon=1, trust=trust, account=mv.Account(ledger=ledger))
    assert spent(ledger) == 0


@pytest.mark.parametrize(
    ("method", "options"), [("hierarchical", {"level": 99}), ("spatial-decomposition", {"level": 99})]
)
@pytest.mark.parametrize("trust", ["central", "distributed"])
def test_a_bad_option_costs_no_search_for_a_region(
    ledger: mv.Ledger, trust: str, method: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="level"):
        mv.release(
            CITY,
            "quadtree:4",
            epsilon=1,
            method=method,
            trust=trust,
            options=options,
            account=mv.Account(ledger=ledger),
        )
    assert ledger.entries() == ()


def test_noise_that_a_later_query_cannot_draw_is_refused_before_the_charge(ledger: mv.Ledger) -> None:
    fine = mv.Quadtree(CITY.region, depth=8)
    queries = []
    with pytest.raises(ParameterError, match="wider than"):
        EmdHeatmap(epsilon="1e-6").execute(
            user_sums(CITY, fine), fine, Execution(Randomness(1), before_reveal=queries.append)
        )
    assert queries, "it is a later query that cannot be drawn"
    with pytest.raises(ParameterError, match="wider than"):
        EmdHeatmap(epsilon="1e-6").release(CITY, fine, account=mv.Account(ledger=ledger))
    assert ledger.entries() == ()


@pytest.mark.parametrize("tiling", ["h3:0", "h3:15", "tiles:3", "grid:2x3", "quadtree:8", "places:FILE"])
def test_a_good_specification_is_searched_for(
    ledger: mv.Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiling: str
) -> None:
    class Searched(Exception):
        pass

    def search(*given: object) -> None:
        raise Searched

    monkeypatch.setattr("mapveil.mechanisms.private_region.find_region", search)
    sites = tmp_path / "sites.csv"
    sites.write_text("lon,lat\n-74.0,40.7\n-73.95,40.8\n")
    with pytest.raises(Searched):
        mv.release(CITY, tiling.replace("FILE", str(sites)), epsilon=1, account=mv.Account(ledger=ledger))


@pytest.mark.parametrize(
    ("method", "estimator"),
    [("subset", "em"), ("unary", "em"), ("subset", "candidate-sets"), ("unary", "candidate-sets"),
     ("olh", "candidate-sets")],
)  # fmt: skip
def test_an_estimator_that_cannot_use_the_reports_costs_nothing(
    ledger: mv.Ledger, method: str, estimator: str
) -> None:
    with pytest.raises(ParameterError, match=estimator):
        mv.release(
            CITY,
            TILING,
            epsilon=1,
            method=method,
            trust="local",
            options={"estimator": estimator},
            account=mv.Account(ledger=ledger),
        )
    assert spent(ledger) == 0


def test_a_secure_sum_of_another_name_is_refused(ledger: mv.Ledger) -> None:
    with pytest.raises(ParameterError, match="secure_sum must be ideal or protocol or active"):
        mv.release(
            CITY, TILING, epsilon=1, trust="distributed", secure_sum="x", account=mv.Account(ledger=ledger)
        )  # type: ignore[arg-type]
    assert spent(ledger) == 0


@pytest.fixture
def at_each_draw(ledger: mv.Ledger, monkeypatch: pytest.MonkeyPatch) -> list[Fraction]:
    """Epsilon spent at each draw of a curator's noise."""
    seen: list[Fraction] = []
    draw: Callable[..., Any] = curator.noisy_sums

    def watch(*given: Any) -> Any:
        seen.append(spent(ledger))
        return draw(*given)

    monkeypatch.setattr(curator, "noisy_sums", watch)
    return seen


@pytest.mark.parametrize(("cells", "charged"), [(TILING, [2]), ("quadtree:4", [*split_region(Fraction(2))])])
def test_a_curator_s_epsilon_is_charged_before_any_noise(
    ledger: mv.Ledger, at_each_draw: list[Fraction], cells: mv.Quadtree | str, charged: list[Fraction]
) -> None:
    made = mv.release(
        CITY, cells, epsilon=2, method="spatial-decomposition", account=mv.Account(ledger=ledger)
    )
    assert len(at_each_draw) > 1
    assert set(at_each_draw) == set(itertools.accumulate(charged))
    assert [entry.epsilon for entry in ledger.entries()] == charged
    assert made.guarantee.account is not None
    assert made.guarantee.account.entries == tuple(entry.id for entry in ledger.entries())


def test_a_search_that_finds_no_region_costs_its_share_only(ledger: mv.Ledger) -> None:
    alone = mv.Points.from_arrays([1], [-73.95], [40.75])
    with pytest.raises(PromiseError, match="no region can be found"):
        mv.release(alone, "quadtree:4", epsilon=2, account=mv.Account(ledger=ledger))
    assert [entry.epsilon for entry in ledger.entries()] == [split_region(Fraction(2))[0]]


def test_a_budget_that_is_too_small_draws_no_noise(ledger: mv.Ledger, at_each_draw: list[Fraction]) -> None:
    with pytest.raises(BudgetExceeded):
        mv.release(CITY, TILING, epsilon=16, account=mv.Account(ledger=ledger))
    assert at_each_draw == []
    assert spent(ledger) == 0
