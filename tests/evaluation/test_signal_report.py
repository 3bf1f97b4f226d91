"""Pictures, tables and pages of trade-offs and attacks."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from mapveil.attacks.signal_score import AdversaryScore, SignalAttack
from mapveil.evaluation.collection_trials import REFERENCES
from mapveil.evaluation.coverage_report import curve_figure, error_plane
from mapveil.evaluation.coverage_trials import CurvePoint
from mapveil.evaluation.signal_choice import Choice
from mapveil.evaluation.signal_report import (
    PLANES,
    attack_figure,
    attack_rows,
    choices_rows,
    parameter_figure,
    plane_figure,
    points_rows,
    write_tradeoff,
)
from mapveil.evaluation.signal_tradeoff import Tradeoff, TradeoffPoint

MEASURES = ("u1", "u2", "u", "rmse_dbm", "p1", "p2", "p2_m", "p", "floor")
MEASURES += ("gain_db", "places_db", "later_db", "epsilon")


def points(spread: float = 0.1) -> list[TradeoffPoint]:
    """Two privatizers at three values; the second loses more utility for its privacy."""
    made = []
    for slope, name in ((1.0, "gap"), (2.0, "gaussian-noise")):
        for value in (0.4, 0.1, 0.2):
            means = dict.fromkeys(MEASURES, value * 10)
            means |= {"u1": -value * slope, "u2": -value, "u": -value * (1 + slope), "p2_m": 1000 * value}
            lows, highs = ({key: mean + sign * spread for key, mean in means.items()} for sign in (-1, 1))
            made.append(
                TradeoffPoint("g", name, "rho" if name == "gap" else "sigma", value, 3, means, lows, highs)
            )
    return made


def score(adversary: str, p1: float, p2: float, trained_on: str = "own") -> AdversaryScore:
    nats = {"blind": 0.0, "trees": 0.25}.get(adversary)
    return AdversaryScore(adversary, trained_on, p1, 1.0, p2, 100 * p2, p1 + p2, 50, nats, nats)


ATTACK = SignalAttack(
    (score("blind", 0.8, 1.2), score("trees", 0.5, 0.9), score("codes", 0.6, 0.7, "aggregate")), (1.0, 1.0)
)


def test_a_plane_joins_each_privatizer_s_points_in_order_of_its_parameter() -> None:
    figure = plane_figure([(name, PLANES[name], points()) for name in PLANES])
    assert len(figure.axes) == 5
    for axes, plane in zip(figure.axes, PLANES.values(), strict=True):
        assert axes.get_xlabel() == plane.x_label
        for container, name in zip(axes.containers, ("gap", "gaussian-noise"), strict=True):
            own = sorted((each for each in points() if each.privatizer == name), key=lambda one: one.value)
            assert list(container.lines[0].get_xdata()) == [each.means[plane.x] for each in own]
            assert list(container.lines[0].get_ydata()) == [each.means[plane.y] for each in own]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["gap", "gaussian-noise"]


def test_no_two_ways_to_collect_look_alike() -> None:
    every = [each._replace(privatizer=f"way {at}") for at in range(14) for each in points()[:1]]
    (axes,) = plane_figure([("one", PLANES["P-U"], every)]).axes
    drawn = [(each.lines[0].get_color(), each.lines[0].get_marker()) for each in axes.containers]
    assert len(set(drawn)) == 14


def test_a_plane_without_intervals_and_one_without_points() -> None:
    figure = plane_figure([("one", PLANES["P-U"], points(math.inf)), ("none", PLANES["P-U"], [])])
    assert not figure.axes[0].containers[0].has_yerr
    single = [each._replace(trials=1) for each in points(math.inf)]
    assert plane_figure([("one", PLANES["P-U"], single)]).axes[0].get_title().endswith("no intervals)")
    assert plane_figure([("one", PLANES["P-U"], points())]).axes[0].containers[0].has_yerr


def test_a_plane_holds_every_point_and_names_the_ends_of_lines() -> None:
    far = points()
    far[0] = far[0]._replace(means={**far[0].means, "u": -150.0})
    (axes,) = plane_figure([("far", PLANES["P-U"], far)]).axes
    low, high = axes.get_ylim()
    assert low < -150
    assert high > 0
    assert axes.get_yscale() == "symlog"
    named = [text.get_text() for text in axes.texts]
    assert named == ["rho 0.1", "rho 0.4", "sigma 0.1", "sigma 0.4"]
    assert plane_figure([("near", PLANES["P-U"], points())]).axes[0].get_yscale() == "linear"


def test_a_way_to_collect_looks_the_same_in_every_picture() -> None:
    only = [each for each in points() if each.privatizer == "gaussian-noise"]
    plane = error_plane(points()).axes[0].lines
    drawn = {line.get_label(): (line.get_color(), line.get_marker()) for line in plane}
    for given in (points(), only, only[::-1]):
        for container in plane_figure([("one", PLANES["P-U"], given)]).axes[0].containers:
            line = container.lines[0]
            assert drawn[container.get_label()] == (line.get_color(), line.get_marker())


def test_a_map_error_above_the_frame_is_marked_with_its_value() -> None:
    means = dict.fromkeys(MEASURES, 5.0)
    pilot = TradeoffPoint("g", "pilot only, collect nothing", "", 0.0, 1, means, means, means)
    far = points()
    far[0] = far[0]._replace(means={**far[0].means, "places_db": 80.0, "later_db": 80.0})
    axes = error_plane([pilot, *far]).axes[0]
    assert axes.get_ylim()[1] < 80
    assert "rho 0.4: 80" in [text.get_text() for text in axes.texts]


def test_a_curve_shows_the_line_that_its_words_speak_of() -> None:
    curve = [CurvePoint(1.0, n, 0.5 + n / 10, 0.2, 2.0, 0.6 + n / 10, 0.3, 2.1) for n in (7, 15)]
    (axes,) = curve_figure(curve, "unit").axes
    low, high = axes.get_ylim()
    assert low < 0 < high
    assert "gain" in axes.get_ylabel()
    assert [text.get_text() for text in axes.texts] == ["not\ncollecting"]


def test_the_title_of_a_curve_of_one_trial_is_whole() -> None:
    curve = [CurvePoint(1.0, n, 0.5, -math.inf, math.inf, 0.6, -math.inf, math.inf) for n in (7, 15)]
    figure = curve_figure(curve, "user's day", "gain at held-out places")
    figure.draw_without_rendering()
    title = figure.axes[0].title
    assert "curator" in title.get_text()
    assert title.get_text().endswith("(one trial: no intervals)")
    assert 0 <= title.get_window_extent().x0 < title.get_window_extent().x1 <= figure.bbox.width


def test_the_pilot_s_map_is_seen_among_others() -> None:
    pilot = points()[0]._replace(privatizer=REFERENCES[0])
    (axes,) = plane_figure([("one", PLANES["P-U"], [pilot, *points()])]).axes
    above = {each.get_label(): each.lines[0].get_zorder() for each in axes.containers}
    assert above.pop(REFERENCES[0]) > max(above.values())
    for axes in error_plane([pilot, *points()]).axes:
        (words,) = [text for text in axes.texts if text.get_text().startswith("pilot only")]
        assert words.xy[0] > 1  # in the margin: it covers no marker


def test_parameters_are_looked_up_in_panels_of_their_own() -> None:
    figure = parameter_figure(
        points(), {"distortion": lambda means: -means["u1"], "P": lambda means: means["p"]}, "deviations"
    )
    assert {axes.get_ylabel() for axes in figure.axes} == {"deviations"}
    assert [axes.get_title() for axes in figure.axes] == ["gap", "gaussian-noise"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["rho", "sigma"]
    assert [axes.get_xscale() for axes in figure.axes] == ["linear", "log"]
    assert list(figure.axes[0].lines[0].get_ydata()) == [0.1, 0.2, 0.4]


def test_rows_are_read_as_costs() -> None:
    header, rows = points_rows(points())
    assert len(rows) == 6
    row = dict(zip(header, rows[3], strict=True))
    assert row == {
        "privatizer": "gaussian-noise",
        "parameter": "sigma 0.4",
        "gain dB": "4",
        "places dB": "4",
        "later dB": "4",
        "worst ε": "4",
        "U": "-1.2",
        "distortion": "0.8",
        "map error": "0.4",
        "RMSE dBm": "4",
        "P": "4",
        "P1": "4",
        "P2": "4",
        "P2 m": "400",
    }


def test_choices_stand_beside_the_maps_for_which_nothing_is_collected() -> None:
    every = [*points()[:1], *(points()[0]._replace(privatizer=name) for name in REFERENCES)]
    choices = [
        Choice("a", "rho", 0.4, points()[0].means),
        *(Choice(name, "rho", None, {}, keeps) for name, keeps in (("b", True), ("c", False))),
    ]
    _, rows = choices_rows(choices, every)
    assert [row[:2] for row in rows] == [
        *(["a", "rho=0.4"], ["b", "no gain"], ["c", "constraints not kept"]),
        *([name, ""] for name in REFERENCES[:2]),
    ]
    assert rows[0][2:] == rows[-1][2:]


def test_the_strongest_adversary_is_marked_and_orange() -> None:
    header, rows = attack_rows(ATTACK)
    assert [row[0] for row in rows] == ["blind", "trees", "*codes"]
    assert rows[2][header.index("metres")] == "70"
    assert [row[header.index("user nats")] for row in rows] == ["0", "0.25", ""]
    figure = attack_figure(ATTACK)
    users, places = figure.axes
    assert [label.get_text() for label in users.get_yticklabels()] == ["trees", "codes, aggregate"]
    # Orange is the least in each measure: trees know users, codes know places.
    orange = [[bar.get_facecolor() for bar in axes.patches] for axes in (users, places)]
    assert orange[0][0] == orange[1][1] != orange[0][1] == orange[1][0]
    assert users.lines[0].get_xdata()[0] == 0.8
    assert users.get_xlabel() == "fraction of the reports whose user it gets wrong"
    assert all(text.get_bbox_patch() for text in users.texts)  # over the dashed line
    assert places.lines[0].get_xdata()[0] == 120


def test_a_folder_holds_tables_pictures_and_a_page(tmp_path: Path) -> None:
    paths = write_tradeoff(
        Tradeoff((), tuple(points()), {"source": "a <b> table"}), tmp_path / "new" / "folder"
    )
    assert [path.name for path in paths] == [
        *(
            "points.csv",
            "trials.csv",
            "curve.csv",
            "plane.png",
            "tradeoff.png",
            "parameters.png",
            "index.html",
        ),
    ]
    with paths[0].open(newline="") as opened:
        records = list(csv.DictReader(opened))
    assert [float(record["u_high"]) for record in records] == pytest.approx(
        [each.means["u"] + 0.1 for each in points()]
    )
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in paths[3:6])
    page = paths[6].read_text()
    assert "a &lt;b&gt; table" in page
    assert "<p>collect: by gap at rho 0.4 the map gains 4 dB" in page
    assert "about all that one unit sends" in page
    assert page.count("<img") == 3
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "not private" in page.lower() or "not for release" in page.lower()
