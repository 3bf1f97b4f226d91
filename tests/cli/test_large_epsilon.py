"""Large epsilons: told in odds and delta above 10; above 20, or where delta is above 0.01, refused unless accepted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

import mapveil as mv
from mapveil.pictures.page import page_html
from mapveil.pictures.picture import plot
from mapveil.privacy.claim import ACCEPTED_EPSILON
from mapveil_client.errors import ParameterError

BOX = "-74.03,40.69,-73.90,40.83"
CITY = mv.synthetic.city(users=60, seed=1)
GRID = mv.Grid(CITY.region, rows=4, columns=4)
COMMANDS = {
    **{trust: ("release", "--trust", trust, "--region", BOX, "--tiling", "grid:4x4")
       for trust in ("central", "distributed", "local")},
    "no region": ("release", "--tiling", "quadtree:3"),
    "neighbours": ("neighbours", "--region", BOX, "--tiling", "grid:4x4"),
    "flows": ("flows", "--region", BOX, "--tiling", "grid:4x4"),
    "flows by number": ("flows", "--region", BOX, "--unit", "trip"),
}  # fmt: skip


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    rows = [f"u{user},{-74.0 + user * 1e-3},40.7,-73.95,{40.75 + user * 1e-3}" for user in range(60)]
    path = tmp_path / "trips.csv"
    path.write_text("\n".join(["user_id,lon,lat,dest_lon,dest_lat", *rows]) + "\n")
    return path


@pytest.mark.parametrize("epsilon", ["20.000001", "21", "1e9"])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_above_twenty_it_is_refused_and_nothing_is_charged(
    mapveil: Callable, trips: Path, tmp_path: Path, command: tuple[str, ...], epsilon: str
) -> None:
    out = tmp_path / "m.parquet"
    done = mapveil(command[0], trips, *command[1:], "--epsilon", epsilon, "-o", out)
    assert done.code == 2, done.out
    assert "--accept-large-epsilon" in done.err
    assert "the proved odds exceed 4.8*10^8 to 1" in done.err
    assert not out.exists()
    assert "nothing was spent" in mapveil("ledger").out or "0 of 3 spent" in mapveil("ledger").out


def test_the_odds_that_a_refusal_names_are_those_of_epsilon_twenty() -> None:
    assert 4.8e8 < math.exp(ACCEPTED_EPSILON) < 4.9e8


@pytest.mark.parametrize(
    ("name", "epsilon", "delta"),
    [("central", "17.6", "0.0103"), ("distributed", "20", "0.113"), ("no region", "17", "0.0113")],
)
def test_a_large_delta_is_refused_and_nothing_is_charged(
    mapveil: Callable, trips: Path, tmp_path: Path, name: str, epsilon: str, delta: str
) -> None:
    out, command = tmp_path / "m.parquet", COMMANDS[name]
    done = mapveil(command[0], trips, *command[1:], "--epsilon", epsilon, "-o", out)
    assert done.code == 2, done.out
    assert f"at {epsilon} delta is {delta}" in done.err
    assert "--accept-large-epsilon" in done.err
    assert not out.exists()
    assert "nothing was spent" in mapveil("ledger").out or "0 of 3 spent" in mapveil("ledger").out


@pytest.mark.parametrize("epsilon", ["20.0000001", "20.000000000000001", "21"])
def test_a_refused_epsilon_is_told_exactly(epsilon: str) -> None:
    with pytest.raises(ParameterError) as caught:
        mv.release(CITY, GRID, epsilon=epsilon, account=None)
    (told,) = re.findall(r"got (\S+);", str(caught.value))
    assert Fraction(told) == Fraction(epsilon)


def test_up_to_a_delta_of_a_hundredth_nothing_need_be_accepted(tmp_path: Path) -> None:
    account = mv.Account.open("city", budget=100, ledger=tmp_path / "ledger.sqlite")
    made = mv.release(CITY, GRID, epsilon="17.5", account=account)
    assert 0.009 < made.guarantee.delta < 0.01
    assert mv.release(CITY, GRID, epsilon=20, trust="local", account=account).guarantee.delta == 0
    accepted = mv.release(CITY, GRID, epsilon=20, account=account, accept_large_epsilon=True)
    assert accepted.guarantee.delta > 0.1


@pytest.mark.parametrize(
    ("epsilon", "told"),
    [
        (12, "to 1, leaving delta aside, which adds at most 3.79e-05 to the probability of any outcome."),
        (22, "leaving delta aside, which adds at most 0.835 to"),
        (1000, "to 1; delta is 1, so that this guarantee limits nothing."),
    ],
)
def test_the_warning_states_delta(epsilon: int, told: str) -> None:
    (warning,) = mv.mechanisms.LaplaceHistogram(epsilon=epsilon).guarantee().promise.warnings
    assert told in warning


@pytest.mark.parametrize("name", ["central", "local", "flows"])
def test_accepted_it_is_released_and_told_in_odds(
    mapveil: Callable, trips: Path, tmp_path: Path, name: str
) -> None:
    command, out = COMMANDS[name], tmp_path / "m.html"
    done = mapveil(command[0], trips, *command[1:], "--epsilon", "1000", "--accept-large-epsilon", "--no-ledger",
                   "-o", out)  # fmt: skip
    assert done.code == 0, done.err
    told = "can become more than a million to 1"
    assert told in done.err
    assert "large epsilon: little protection" in done.out
    banner = out.read_text().partition("<header>")[0]
    assert told in banner
    for text in (done.out, done.err, out.read_text().partition("<script")[0]):
        assert not re.search(r"\b(inf|nan|\d+e\+\d{3,})\b", text)


@pytest.mark.parametrize("epsilon", ["1e400", "1e13", "9" * 5000])
def test_beyond_all_bounds_it_is_one_line(
    mapveil: Callable, trips: Path, tmp_path: Path, epsilon: str
) -> None:
    done = mapveil("release", trips, "--region", BOX, "--epsilon", epsilon, "--accept-large-epsilon",
                   "-o", tmp_path / "m.tif")  # fmt: skip
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1
    assert len(done.err) < 300


@pytest.mark.parametrize(("epsilon", "warned"), [(10, False), (12, True)])
def test_above_ten_page_and_picture_warn(epsilon: int, warned: bool) -> None:
    heat = mv.release(CITY, GRID, epsilon=epsilon, account=None)
    axes = plot(heat)
    picture = " ".join(" ".join(text.get_text() for text in axes.texts).split())
    for text in (
        picture,
        page_html(heat).partition("<header>")[0],
        heat.metadata_json(),
        heat.guarantee.in_words(),
    ):
        assert ("presence and absence of one user can become 163000 to 1" in text) == warned
    assert ("LARGE EPSILON: LITTLE PROTECTION" in picture) == warned


@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
def test_in_python_it_is_accepted_by_a_parameter(trust: str, tmp_path: Path) -> None:
    account = mv.Account.open("city", budget=100, ledger=tmp_path / "ledger.sqlite")
    mechanism = mv.release(CITY, GRID, epsilon=1, trust=trust, account=None).method
    for refused in (
        lambda: mv.release(CITY, GRID, epsilon=25, trust=trust, account=account),
        lambda: mv.release(CITY, GRID, epsilon=25, trust=trust, account=None),
    ):
        with pytest.raises(ParameterError, match="accept_large_epsilon=True"):
            refused()
    assert account.spent == 0
    made = mv.release(CITY, GRID, epsilon=25, trust=trust, account=account, accept_large_epsilon=True)
    assert (made.method, account.spent) == (mechanism, 25)
    assert "accept_large_epsilon" not in made.parameters


def test_a_mechanism_of_its_own_is_refused_too(tmp_path: Path) -> None:
    account = mv.Account.open("city", budget=100, ledger=tmp_path / "ledger.sqlite")
    with pytest.raises(ParameterError, match="at most 20"):
        mv.mechanisms.LaplaceHistogram(epsilon=30).release(CITY, GRID, account=account)
    assert account.spent == 0
    accepted = mv.mechanisms.LaplaceHistogram(epsilon=30, accept_large_epsilon=True)
    assert accepted.release(CITY, GRID, account=account).guarantee.epsilon == 30
