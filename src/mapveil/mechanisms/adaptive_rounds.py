r"""Budget and thresholds of each round of the adaptive histogram, Bagdasaryan et al. (2022), sections 5.4 and 5.5.

A round costs just enough to see which nodes to split; the last round costs the rest. The noise of one sum is made of
r discrete Laplace variables: one for every shard, and more where it is provisioned for clients that drop out or are
corrupt. Their variances add, so a deviation :math:`\sigma` of the whole leaves :math:`\sigma / \sqrt{r}` to each.
"""

import math
from fractions import Fraction
from typing import Final, Literal, NamedTuple, get_args

from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil_client.errors import ParameterError

SplitRule = Literal["experiments", "equation-6", "algorithm-2"]

RULES: Final[tuple[str, ...]] = get_args(SplitRule)
"""The thresholds that adapt to the noise."""

TARGET_DEVIATIONS: Final = 2
"""Standard deviations in the target of equation 7, as in the authors' experiments."""

_DIGITS = 9


class Noise(NamedTuple):
    """The noise of a node's count."""

    terms: float  # discrete Laplace variables
    sensitivity: int  # units that one client moves a sum by
    scale: int  # units per user

    def deviation(self, epsilon: Fraction) -> float:
        """Standard deviation of a node's count at a given epsilon, users (equation 5, over all shards)."""
        return math.sqrt(self.terms * laplace_variance(epsilon, self.sensitivity)) / self.scale


class Thresholds(NamedTuple):
    """Numbers of users at a node."""

    split: float  # nodes with more are divided
    collapse: float  # nodes with as many or fewer fall back to the node above; minus infinity for never


def epsilon_of_deviation(deviation: float, sensitivity: int) -> float:
    r"""The epsilon whose discrete Laplace noise has a given standard deviation.

    .. math:: \phi(\sigma) = -\Delta \ln \frac{\sigma^2 + 1 - \sqrt{2 \sigma^2 + 1}}{\sigma^2}
              = \Delta \ln \frac{r + 1}{r - 1}, \qquad r = \sqrt{2 \sigma^2 + 1}

    where: :math:`\sigma` is ``deviation``, units, and :math:`\Delta` is ``sensitivity``. The right-hand form loses no
    digits at either end. Source: equation 8.

    Raises
    ------
    ParameterError
        Either is not above zero.
    """
    if not (deviation > 0 and math.isfinite(deviation) and sensitivity > 0):
        raise ParameterError(
            f"deviation and sensitivity must be finite and above 0, got {deviation!r} and {sensitivity}"
        )
    root = math.hypot(1, math.sqrt(2) * deviation)
    # root - 1, without taking neighbours from each other.
    above = 2 * deviation * (deviation / (root + 1))
    return sensitivity * math.log1p(2 / above) if above > 0 else math.inf


def target_deviation(c: float, users: float, nodes: int, terms: float) -> float:
    r"""The deviation wanted of each discrete Laplace variable in a round's noise, users.

    .. math:: \tilde\sigma = \frac{c}{2} \frac{U}{T} \frac{1}{\sqrt{r}}

    where: c is ``c``, U is ``users`` asked, T is ``nodes`` that users are divided over and r is ``terms``, which
    is :math:`U / S_{max}` where nothing is provisioned for.

    Source: equation 7. Deviation: it prints :math:`\sqrt{\lceil S_{max} / U \rceil}`, which is 1 from one full shard
    on and so forgets that the noise of shards adds; read as :math:`\sqrt{S_{max} / U}`, the authors' budgets come
    out. They also take the target as two standard deviations (:data:`TARGET_DEVIATIONS`), as is done here; and r counts
    the noise that is really there.
    """
    return c / TARGET_DEVIATIONS * users / nodes / math.sqrt(terms)


def next_epsilon(remaining: Fraction, wanted: float, b: float) -> Fraction:
    r"""Budget of the next round.

    .. math:: \gamma(\epsilon_{rem}, \tilde\epsilon) = \begin{cases} \tilde\epsilon & b \tilde\epsilon \le
              \epsilon_{rem} \\ \epsilon_{rem} & \text{otherwise} \end{cases}

    where: :math:`\epsilon_{rem}` is ``remaining``, exact, :math:`\tilde\epsilon` is ``wanted``, rounded down to nine
    digits, and b is ``b``. Source: equation 9.
    """
    if not 0 < b * wanted <= float(remaining):
        return remaining
    rounded = rounded_down(wanted)
    # Where b is near 1 the float comparison above is not to be trusted with a promise.
    return rounded if 0 < rounded < remaining else remaining


def rounded_down(epsilon: float) -> Fraction:
    """The number cut to nine decimal digits, exactly."""
    grain = Fraction(10) ** (_DIGITS - 1 - math.floor(math.log10(epsilon)))
    return math.floor(Fraction(epsilon) * grain) / grain


def thresholds(
    rule: SplitRule | float,
    k: float,
    collapse: float | None,
    noise: Noise,
    spent: Fraction,
    remaining: Fraction,
    target: float,
) -> Thresholds:
    r"""Thresholds after a round that cost ``spent`` and leaves ``remaining``.

    .. math:: t = k\, \sigma(\max(\epsilon_q, \epsilon_{rem})) \;\text{(experiments)}, \qquad
              t = k\, \sigma(\epsilon_{rem}) \;\text{(equation 6)}, \qquad
              t = 2 \sqrt{r}\, \tilde\sigma_q \;\text{(Algorithm 2)}

    where: :math:`\sigma` is ``noise.deviation``, the :math:`\sqrt{U / S_{max}}\, \tau` of the paper, :math:`\epsilon_q`
    is ``spent``, :math:`\epsilon_{rem}` is ``remaining``, k is ``k``, and :math:`\tilde\sigma_q` is ``target``, the
    round's :func:`target_deviation` as the two deviations it stands for, over all r ``noise.terms``. A number as
    ``rule`` is t itself.

    Source: Bagdasaryan et al. (2022), equation 6 and Algorithm 2; the first is that of the authors' experiments.

    Parameters
    ----------
    rule : str or float
        Name of the threshold, or a fixed number of users.
    k : float
        Standard deviations that count as more than noise.
    collapse : float, optional
        Nodes collapse at this fraction of t; never without.
    noise : Noise
        Noise of the rounds, alike but for their epsilons.
    spent, remaining : Fraction
        Epsilons, above zero.
    target : float
        Deviation that the round aimed at for each discrete Laplace variable, users.
    """
    if rule == "experiments":
        split = k * noise.deviation(max(spent, remaining))
    elif rule == "equation-6":
        split = k * noise.deviation(remaining)
    elif rule == "algorithm-2":
        split = TARGET_DEVIATIONS * noise.terms**0.5 * target
    else:
        split = float(rule)
    return Thresholds(split, -math.inf if collapse is None else collapse * split)
