"""The localisation report: where it is made, what is in it, and what it says plainly."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil.attacks.localisation import LocalisationReport, localisation_report
from mapveil.attacks.localisation_page import report_page, report_picture, report_text
from mapveil.attacks.localisation_scene import Scene, device_places, scene
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.random_features.visits import all_places
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
GRID = mv.Grid(REGION, rows=56, columns=40)
CITY = mv.synthetic.city(users=800, seed=2, region=REGION)
MECHANISM = FourierKde(bandwidth_m=150)


@pytest.fixture(scope="module")
def at() -> Scene:
    return scene(GRID, device_places(CITY, GRID, 500, Randomness(1)))


@pytest.fixture(scope="module")
def report(at: Scene) -> LocalisationReport:
    return localisation_report(MECHANISM, 150.0, at, features=(1, 3), devices=24, answers=2, seed=4)


def test_a_scene_has_two_priors_over_the_same_cells(at: Scene) -> None:
    assert at.places is not None
    assert at.places.shape == (2, 500)
    for prior in (at.even, at.known):
        assert prior.probability.sum() == pytest.approx(1)
        assert prior.probability.min() > 0
    assert at.known.probability.std() > 3 * at.even.probability.std()
    # The known prior is where the devices are: it beats the even one on them.
    lattice = at.even.lattice()
    cell = [
        np.floor((at.places[axis] - lattice.low[axis]) / at.even.size[axis]).astype(int) for axis in range(2)
    ]
    flat = np.ravel_multi_index((cell[0], cell[1]), lattice.boxes)
    own = np.zeros(math.prod(lattice.boxes))
    own[lattice.kept] = at.known.probability
    assert np.log(own[flat]).mean() > np.log(at.even.probability[0]) + 0.3
    assert at.grid.count == (71, 100)
    assert at.grid.axis(0)[0] > at.where.low[0]
    assert at.grid.axis(1)[-1] < at.where.high[1]


def test_devices_are_users_or_units_of_counts() -> None:
    everybody = all_places(CITY, GRID)
    np.testing.assert_array_equal(device_places(CITY, GRID, 10_000, Randomness(1)), everybody)
    some = device_places(CITY, GRID, 50, Randomness(1))
    assert some.shape == (2, 50)
    assert {tuple(place) for place in some.T} <= {tuple(place) for place in everybody.T}
    values = np.zeros(GRID.size, dtype=np.int64)
    values[[5, 77]] = 3, 1
    counts = mv.Counts(values, GRID)
    places = device_places(counts, GRID, 10, Randomness(1))
    x, y = REGION.metric_projection.unproject(places[0], places[1])
    assert sorted(GRID.locate(x, y).tolist()) == [5, 5, 5, 77]
    many = device_places(mv.Counts(values * 10_000, GRID), GRID, 4000, Randomness(1))
    assert np.mean(GRID.locate(*REGION.metric_projection.unproject(many[0], many[1])) == 5) == pytest.approx(
        0.75, abs=0.04
    )
    assert device_places(mv.Counts(values * 0, GRID), GRID, 10, Randomness(1)).shape == (2, 0)


def test_a_public_density_on_other_cells_is_a_prior() -> None:
    coarse = mv.Grid(REGION, rows=4, columns=4)
    values = np.zeros(16, dtype=np.int64)
    values[3] = 9
    made = scene(GRID, all_places(CITY, GRID), mv.Counts(values, coarse), knows="a census")
    lon, lat = REGION.metric_projection.unproject(*made.known.places)
    inside = coarse.locate(lon, lat) == 3
    assert made.known.probability[inside].sum() == pytest.approx(0.99 + 0.01 * inside.mean(), abs=1e-6)
    assert made.knows == "a census"
    drawn = scene(GRID, None, mv.Counts(values, coarse))
    lon, lat = REGION.metric_projection.unproject(*drawn.known.places)
    assert set(coarse.locate(lon, lat)) == {3}  # none elsewhere: devices are drawn from it
    far = mv.Grid(mv.Region.from_bbox(10, 50, 11, 51), rows=2, columns=2)
    with pytest.raises(InputError, match="holds nobody in this region"):
        scene(GRID, None, mv.Counts(np.ones(4, dtype=np.int64), far))
    with pytest.raises(InputError, match="nobody is inside the region"):
        scene(GRID, np.zeros((2, 0)))


def test_it_says_what_the_score_does_not(report: LocalisationReport) -> None:
    rows = {(row.server, row.knows): row.verdict for row in report.servers}
    assert len(rows) == 7
    listed = next(verdict for (_, knows), verdict in rows.items() if "exact places" in knows)
    assert (listed.error_m, listed.right) == (0.0, 1.0)
    assert any("exact phases tell exact places apart" in text for text in report.warnings)
    assert report.pairs_named > 0.9
    assert any("from the difference of two phases" in text for text in report.warnings)
    by = {(cost.features, cost.bandwidth_m): cost for cost in report.costs}
    assert set(by) == {(b, h) for b in (1, 3) for h in (75.0, 150.0, 300.0)}
    # Three features: the score sees kilometres, the server the place.
    assert by[3, 150.0].score_m > 2000
    assert by[3, 150.0].one_report.error_m == 0
    assert by[1, 150.0].one_report.expected_m > 0.8 * report.blind_m
    assert by[1, 75.0].one_report.places > by[1, 150.0].one_report.places > by[1, 300.0].one_report.places > 1
    assert by[1, 150.0].second_set.places < by[1, 150.0].one_report.places
    assert by[1, 150.0].answered
    assert not by[1, 300.0].answered  # Lemma 3
    assert (
        report.score.expected_m / report.score.maxima < report.score.literal_m < report.score.expected_m / 10
    )
    assert report.score.silence_m == pytest.approx(report.score.expected_m, rel=0.3)


def test_many_features_are_warned_of(at: Scene) -> None:
    three = localisation_report(
        FourierKde(bandwidth_m=150, features=3),
        150.0,
        at,
        features=(3,),
        bandwidths=(150.0,),
        devices=20,
        answers=1,
    )
    assert sum("as good as found" in text for text in three.warnings) == 2
    assert [(cost.features, cost.bandwidth_m) for cost in three.costs] == [(3, 150.0)]


def test_the_same_seed_gives_the_same_report(at: Scene) -> None:
    first, again, other = (
        localisation_report(
            MECHANISM, 150.0, at, features=(1,), bandwidths=(150.0,), devices=10, answers=2, seed=seed
        )
        for seed in (4, 4, 5)
    )
    assert again == first
    assert other.servers != first.servers


def test_without_places_devices_are_drawn_from_the_prior() -> None:
    told: list[tuple[str, float]] = []
    counts = mv.Counts(np.random.default_rng(1).poisson(3.0, GRID.size), GRID)
    made = localisation_report(
        MECHANISM, 150.0, scene(GRID, None, counts), features=(1,), bandwidths=(150.0,), devices=40, answers=1,
        progress=lambda step, done: told.append((step, done)),
    )  # fmt: skip
    assert made.settings["devices are"] == "drawn from the known prior"
    known = made.servers[3].verdict
    assert known.error_m == pytest.approx(known.expected_m, rel=0.3)
    for step in {step for step, _ in told}:
        done = [part for name, part in told if name == step]
        assert done == sorted(done)
        assert done[-1] == 1


def test_an_offset_keeps_a_list_from_telling() -> None:
    at = scene(GRID, device_places(CITY, GRID, 500, Randomness(1)))
    made = localisation_report(
        dataclasses.replace(MECHANISM, jitter_m=100.0), 150.0, at, features=(1,), bandwidths=(150.0,), devices=30,
        answers=1,
    )  # fmt: skip
    assert made.servers[-1].verdict.right < 0.5
    assert made.pairs_named == 0
    assert not any("exact phases" in text for text in made.warnings)


def test_its_record_is_json(report: LocalisationReport) -> None:
    record = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert record["private"] is False
    assert record["settings"]["bandwidth_m"] == 150
    fields = {"error_m", "expected_m", "twentieth_m", "places", "right", "standard_error_m"}
    assert {"server", "knows", *fields} == set(record["servers"][0])
    assert len(record["costs"]) == 6


def test_words_picture_and_page(at: Scene, report: LocalisationReport) -> None:
    image = pytest.importorskip("PIL.Image")
    text = report_text(report)
    assert "1 feature a device, gaussian kernel, bandwidth 150 m" in text
    assert "e+0" not in text
    picture = report_picture(report, at)
    shown = np.asarray(image.open(io.BytesIO(picture)).convert("RGB"))
    assert min(shown.shape[:2]) > 900
    assert shown.reshape(-1, 3).std(axis=0).min() > 20
    page = report_page(report, picture)
    assert "NOT private" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert page.count("<tr>") == 7 + 6 + 3 + len(report.settings)
    for warning in report.warnings:
        assert warning in page


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"devices": 0}, "at least 1 of each"),
        ({"answers": 0}, "at least 1 of each"),
        ({"features": (0,)}, "features must be at least 1"),
        ({"bandwidths": (math.inf,)}, "bandwidths above 0"),
        ({"step_m": 1.0}, "at least half a cell"),
        ({"ratio": 0.5}, "ratio of maxima"),
    ],
)
def test_what_is_refused(at: Scene, changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        localisation_report(MECHANISM, 150.0, at, **changes)
