r"""The levels of hierarchical hashing on a raster, and how often each is asked about, of the least predicted error.

Sites are halved again and again, as the default estimator does (:mod:`mapveil.local.estimators.split_trees`). Where the
fraction m of all users is in a box of the l-th halving, n reports hold the information

.. math:: I_l(m) = n\, \kappa\, (2^l m)^2 \sum_{k:\, N_k > 2^l} \pi_k \frac{4}{2^l N_k}, \qquad
    \kappa = \frac{(e^\epsilon - 1)^2}{4 e^\epsilon}

about the fraction of one half, and leave its prior variance :math:`\tau_l^2` at
:math:`v = \tau_l^2 / (1 + \tau_l^2 I_l)`. Over a user's way from the root to a site,

.. math:: \mathrm{KL} \approx \sum_l \mathrm{E} \frac{v}{2 (1/4 - \tau_l^2)}, \qquad
    \mathrm{EMD} \propto \sum_l 2^{-l/2}\, \mathrm{E} \sqrt v

where: :math:`N_k` is the number of nodes of a level that is asked about with probability :math:`\pi_k`, and
:math:`\kappa` the information of local hashing, Wang et al. (2017), equation 8. The reference population divides each
box by the beta law of the estimator's public prior; no data are read. The design with the least
:math:`2 \ln \mathrm{KL} + \ln \mathrm{EMD}` is taken: similarity goes with KL.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from mapveil.local.estimators.split_trees import usual_concentration
from mapveil_client.arrays import FloatArray
from mapveil_client.local.domain import Domain
from mapveil_client.local.hierarchical_hashing import levels_of

_GROWTHS: Final = (2, 8)
_SITE_WEIGHTS: Final = (1, 2, 4, 8)
_LARGEST: Final = 60.0  # epsilon of odds in floating point
_USERS: Final = 2_000  # of the reference population; ten times as many change no prediction by 2 %
_SEED: Final = 9001


class LevelDesign(NamedTuple):
    """The options of hierarchical hashing, and their predicted error."""

    growth: int
    site_weight: int
    kl: float  # nats
    emd: float  # of arbitrary unit


def best_design(
    epsilon: Fraction, domain: Domain, reports: int, growth: int | None = None, site_weight: int | None = None
) -> LevelDesign:
    """The design of the least predicted error. Run by: the server, before anybody reports.

    Parameters
    ----------
    epsilon : Fraction
        Budget of a report.
    domain : Domain
        The sites.
    reports : int
        n: expected, or known because who reports is public.
    growth, site_weight : int, optional
        Given options, which stay.

    Examples
    --------
    >>> from mapveil_client.cells import QuadtreeCells
    >>> from mapveil_client.plane import Box
    >>> domain = Domain(QuadtreeCells(Box("", (0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0)), depth=7))
    >>> [best_design(Fraction(2), domain, 10**power)[:2] for power in (3, 5, 7)]
    [(2, 1), (2, 2), (2, 4)]
    """
    found = []
    whole = max(reports, 1) * report_information(epsilon)
    depth = max(math.ceil(math.log2(domain.size)), 1)
    concentration = usual_concentration(domain, domain.size / 2.0 ** np.arange(depth))
    crowding = _crowding(tuple(np.round(concentration, 6).tolist()))
    for ratio in _GROWTHS if growth is None else (growth,):
        nodes = np.array([blocks.first.size for blocks in levels_of(domain.codes, ratio)], dtype=np.float64)
        for weight in _SITE_WEIGHTS if site_weight is None else (site_weight,):
            asked = np.append(np.ones(nodes.size - 1), weight)
            errors = _predicted(nodes, whole * asked / asked.sum(), concentration, crowding)
            found.append(LevelDesign(ratio, weight, *errors))
    return min(found, key=lambda design: 2 * math.log(design.kl) + math.log(design.emd))


def report_information(epsilon: Fraction) -> float:
    """The information of the module's header, kappa: the inverse variance of a fraction that one report tells of."""
    odds = math.exp(min(float(epsilon), _LARGEST))
    return (odds - 1) ** 2 / (4 * odds)


def _predicted(
    nodes: FloatArray, information: FloatArray, concentration: FloatArray, crowding: FloatArray
) -> tuple[float, float]:
    """KL and EMD, from the information about a node's fraction in the reports of each level."""
    boxes = 2.0 ** np.arange(concentration.size)
    about = information_about_halves(nodes, information, concentration.size)
    prior = 1 / (4 * (2 * concentration + 1))
    left = prior[:, None] / (1 + prior[:, None] * about[:, None] * crowding**2)
    kl = float((left.mean(axis=1) / (2 * (0.25 - prior))).sum())
    return kl, float((np.sqrt(left).mean(axis=1) / np.sqrt(boxes)).sum())


def information_about_halves(nodes: FloatArray, information: FloatArray, halvings: int) -> FloatArray:
    r"""The sum of the module's header, times n and kappa, shape (halvings,): of boxes that hold :math:`m = 2^{-l}`.

    Parameters
    ----------
    nodes : ndarray of float64, shape (levels,)
        Number of nodes of each level.
    information : ndarray of float64, shape (levels,)
        Information of the reports about one level in the fraction at one of its nodes.
    halvings : int
        Number of halvings.
    """
    boxes = 2.0 ** np.arange(halvings)[:, None]
    return np.asarray((np.where(nodes > boxes, 4 / (boxes * nodes), 0.0) * information).sum(axis=1))


@lru_cache(maxsize=16)
def _crowding(concentration: tuple[float, ...]) -> FloatArray:
    """Density of a user's box over the average one, at each halving, shape (levels, users)."""
    generator = np.random.default_rng(_SEED)
    found = np.ones((len(concentration), _USERS))
    for level, a in enumerate(concentration[:-1]):
        found[level + 1] = found[level] * 2 * generator.beta(a + 1, a, _USERS)
    return found
