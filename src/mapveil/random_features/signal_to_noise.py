r"""Signal to noise of a map from random Fourier features, predicted from public figures before a device is asked.

The random frequencies make a standard error of :math:`\sqrt{N / 2B} / \int k_h` users per square metre, the same
everywhere. The mean density, :math:`N / A`, is this many of them:

.. math:: S = \sqrt{2 B N}\, \frac{\int k_h}{A} \cdot \frac{h^2}{h^2 + \tfrac{13}{12} \sigma^2}

where: N is the number of devices, B of features, h the bandwidth, A the region's area and :math:`\sigma` the jitter,
which flattens what is as wide as the kernel (by a normal offset, and by the square where it begins). A place is seen
where it is :math:`z / S` times as dense as the mean, at z standard errors.
"""

import math
from typing import Final

from mapveil_client.random_features.query import Query

_MANKIND: Final = 1e10


def predicted_signal(query: Query, area: float, users: int, *, jitter_m: float = 0.0) -> float:
    """S of a query to so many users. Run by: anybody, before a collection.

    Parameters
    ----------
    query : Query
        The query: its features, bandwidth (of the first axis for the jitter's share) and kernel.
    area : float
        Of the region, square metres.
    jitter_m : float
        Standard deviation of the places' offsets, metres.

    Examples
    --------
    >>> query = Query((184.0, 184.0), (0.0, 0.0), (11_000.0, 15_500.0))
    >>> [round(predicted_signal(query, 170.7e6, users), 3) for users in (130, 4000, 1_000_000)]
    [0.02, 0.111, 1.762]
    """
    h = query.bandwidth[0]
    kept = h * h / (h * h + 13 / 12 * jitter_m * jitter_m)
    return math.sqrt(2 * query.features * users) * query.kernel_integral / area * kept


def users_needed(query: Query, area: float, least: float, *, jitter_m: float = 0.0) -> int | None:
    """The number of users at which the predicted signal reaches ``least``; None where that is beyond mankind."""
    one = predicted_signal(query, area, 1, jitter_m=jitter_m)
    return math.ceil((least / one) ** 2) if least < one * math.sqrt(_MANKIND) else None


def highest_by_chance(query: Query, area: float) -> float:
    r"""The height of the highest hot spot that chance makes, in standard errors: :math:`\sqrt{2 \ln(A / \int k_h)}`.

    The expected maximum of as many independent normal variables as kernels fit into the region, at least 1.
    """
    return math.sqrt(2 * max(0.5, math.log(area / query.kernel_integral)))
