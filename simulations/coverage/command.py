"""The number of phones from which coverage by sums beats a pilot alone, in simulated cities."""

from __future__ import annotations

import json

import click
import numpy as np

from mapveil.analysis.coverage_sums import release_correction
from mapveil.analysis.signal_models.kriging import Kriging
from mapveil.geo.measurements import LAT, LON, RSS
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.mechanisms.methods import COVERAGE_SUMS, signal_sums
from simulations.coverage.city import City

_PILOT_PHONES, _PILOT_DAYS = 10, 2
_LATER_DAY, _REPORT_DAY = 10, 5
_JUDGES = 200  # phones whose rows on a later day judge every map
_DEPTH = 5
_BLOCKS = 600


def gains(seed: int, phones: int, epsilons: list[float], trust: str) -> list[float]:
    """Gain over the pilot's map on a later day, dB, for each epsilon, in one city with so many phones."""
    city = City(seed=seed)
    tiling = Quadtree(Region.from_bbox(*city.box), depth=_DEPTH)
    prior = Kriging(blocks=_BLOCKS).fit(city.measure(_PILOT_PHONES, _PILOT_DAYS, seed=1), rng=seed)
    reports = city.measure(phones, 1, first_day=_REPORT_DAY, seed=2)
    later = city.measure(_JUDGES, 1, first_day=_LATER_DAY, seed=3).rows
    predicted, cell = prior.mean_dbm(later), tiling.locate(later[:, LON], later[:, LAT])
    alone = np.sqrt(np.mean(np.square(predicted - later[:, RSS])))
    found = []
    for epsilon in epsilons:
        sums = signal_sums(epsilon, trust)
        made = release_correction(reports, prior, tiling, sums, account=None, rng=seed)
        error = np.sqrt(np.mean(np.square(predicted + made.change_db[cell] - later[:, RSS])))
        found.append(float(alone - error))
    return found


@click.command()
@click.option("--phones", default="50,200,1000,5000", show_default=True, help="Numbers of phones.")
@click.option("--epsilons", default="1,2,4", show_default=True, help="Epsilon of one phone.")
@click.option("--cities", default=3, show_default=True, help="Number of cities, of seeds 100, 101, ...")
@click.option("--trust", type=click.Choice(list(COVERAGE_SUMS)), default="central", show_default=True)
def command(phones: str, epsilons: str, cities: int, trust: str) -> None:
    """Print the gain of coverage by sums over a pilot of ten phones, dB on a later day: mean, least and most."""
    asked = [float(text) for text in epsilons.split(",")]
    for count in map(int, phones.split(",")):
        table = np.array([gains(100 + city, count, asked, trust) for city in range(cities)])
        for at, epsilon in enumerate(asked):
            own = table[:, at]
            click.echo(
                json.dumps(
                    {
                        "phones": count,
                        "epsilon": epsilon,
                        "trust": trust,
                        "gain_db": round(float(own.mean()), 2),
                        "least": round(float(own.min()), 2),
                        "most": round(float(own.max()), 2),
                        "cities": cities,
                    }
                )
            )
