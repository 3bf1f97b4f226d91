"""The bytes of a device's one report, local or to two operators. Run by: the client, once its account allows it."""

from collections.abc import Sequence

import numpy as np

from mapveil_client.contribution import encode_places
from mapveil_client.device_locations import Whereabouts
from mapveil_client.local import message
from mapveil_client.local.randomizer import LocalMethod, Reports
from mapveil_client.method_parameters import OperatorParameters
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms


def local_report(
    terms: CollectionTerms, method: LocalMethod, whereabouts: Whereabouts, window: int, rng: Randomness
) -> bytes | None:
    """The report of local differential privacy, in a series about ``window``; None where the device abstains."""
    randomizer, here = terms.randomizer, whereabouts
    if terms.series is not None:
        within = whereabouts.within(terms.series, window)
        if within is None:
            return None
        here = within
    cell = here.cell(randomizer.domain, method.place, method.outside, rng)
    if cell is None:
        return None
    made = randomizer.randomize([cell], rng)
    about = None if terms.series is None else np.array([window])
    return message.write_reports(Reports(made.values, about), randomizer)[0]


def sealed_reports(
    terms: CollectionTerms,
    sums: OperatorParameters,
    whereabouts: Sequence[Whereabouts],
    now: float,
    rng: Randomness,
) -> list[bytes]:
    """Shares of each device's whole contribution, sealed for both operators; of nobody's where it is nowhere.

    One device on a phone, many in a simulation. ``now`` is in seconds since 1970.

    Raises
    ------
    InputError
        The locations have no times, or no categories, and the windows of a series need them.
    """
    from mapveil_client.two_operators.sealed_report import TIME_PRECISION_S
    from mapveil_client.two_operators.sharding import ReportRandomness, make_reports

    sharding, sites = terms.sharding, terms.shared_sites
    vectors, drawn = [], []
    for each in whereabouts:
        devices = each.devices(terms)
        vectors.append(encode_places(devices, sites, sums.units, "largest-remainder", rng).dense(0))
        drawn.append(ReportRandomness.draw(sharding, rng))
    leader, helper = terms.configs
    hour = int(now) // TIME_PRECISION_S
    made = make_reports(sharding, np.stack(vectors), (leader, helper), hour, drawn)
    return [report.encode() for report in made]
