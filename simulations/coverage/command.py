"""The number of phones from which coverage by sums beats a pilot alone, in simulated cities."""

from __future__ import annotations

import json
from typing import NamedTuple

import click
import numpy as np

from mapveil.analysis.coverage_sums import release_correction
from mapveil.analysis.signal_models.kriging import Kriging
from mapveil.geo.measurements import LAT, LON, RSS
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.inference.normal_interval import NORMAL_95
from mapveil.mechanisms.methods import COVERAGE_SUMS, signal_sums
from mapveil_client.arrays import FloatArray
from simulations.coverage.city import City

_PILOT_PHONES, _PILOT_DAYS = 10, 2
_LATER_DAY, _REPORT_DAY = 10, 5
_JUDGES = 200  # phones whose rows on a later day judge every map
_DEPTH = 5
_BLOCKS = 600


class Judged(NamedTuple):
    """A corrected map in one city."""

    gain_db: float  # on a later day, over nothing collected: the better of the pilot's map and of its mean everywhere
    covered: float  # fraction of the cells whose true mean strength lies in the 95 % interval


def judge(seed: int, phones: int, epsilons: list[float], trust: str) -> list[Judged]:
    """Correct the pilot's map in one city by sums of so many phones, for each epsilon."""
    city = City(seed=seed)
    tiling = Quadtree(Region.from_bbox(*city.box), depth=_DEPTH)
    centres = tiling.centres()
    prior = Kriging(blocks=_BLOCKS).fit(pilot := city.measure(_PILOT_PHONES, _PILOT_DAYS, seed=1), rng=seed)
    reports = city.measure(phones, 1, first_day=_REPORT_DAY, seed=2)
    later = city.measure(_JUDGES, 1, first_day=_LATER_DAY, seed=3).rows
    predicted, cell = prior.mean_dbm(later), tiling.locate(later[:, LON], later[:, LAT])
    alone = min(_rms(known - later[:, RSS]) for known in (predicted, pilot.rows[:, RSS].mean()))
    public, truth = prior.at(centres.lat, centres.lon).mean_dbm, _means(city, tiling)
    found = []
    for epsilon in epsilons:
        sums = signal_sums(epsilon, trust)
        made = release_correction(reports, prior, tiling, sums, account=None, rng=seed)
        half = NORMAL_95 * prior.interval_factor() * np.sqrt(made.variance)
        inside = np.abs(public + made.change_db - truth) <= half
        gain = alone - _rms(predicted + made.change_db[cell] - later[:, RSS])
        found.append(Judged(gain, float(inside.mean())))
    return found


def _means(city: City, tiling: Quadtree) -> FloatArray:
    """The field's mean in each cell, dBm."""
    lat, lon, strength = city.squares()
    cell = tiling.locate(lon, lat)
    return np.asarray(np.bincount(cell, strength, tiling.size) / np.bincount(cell, minlength=tiling.size))


def _rms(errors: FloatArray) -> float:
    return float(np.sqrt(np.square(errors).mean()))


@click.command()
@click.option("--phones", default="50,200,1000,5000", show_default=True, help="Numbers of phones.")
@click.option("--epsilons", default="1,2,4", show_default=True, help="Epsilon of one phone.")
@click.option("--cities", default=3, show_default=True, help="Number of cities, of seeds 100, 101, ...")
@click.option("--trust", type=click.Choice(list(COVERAGE_SUMS)), default="central", show_default=True)
def command(phones: str, epsilons: str, cities: int, trust: str) -> None:
    """Print the gain of coverage by sums over a pilot of ten phones, dB on a later day, and the cells in its intervals.

    Means, least and most of the cities.
    """
    asked = [float(text) for text in epsilons.split(",")]
    for count in map(int, phones.split(",")):
        table = np.array([judge(100 + city, count, asked, trust) for city in range(cities)])
        for epsilon, (gain, covered) in zip(asked, np.moveaxis(table, 0, -1), strict=True):
            record: dict[str, object] = {
                "phones": count,
                "epsilon": epsilon,
                "trust": trust,
                "cities": cities,
            }
            for name, own in (("gain_db", gain), ("covered", covered)):
                record |= {name: round(float(own.mean()), 3)}
                record |= {
                    f"{name}_{end}": round(float(at), 3)
                    for end, at in (("least", own.min()), ("most", own.max()))
                }
            click.echo(json.dumps(record))
