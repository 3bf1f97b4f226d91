r"""Intervals of a proportion whose counts carry noise: Wilson's, widened by Fieller's argument.

In a group of n people each has label j with probability p. What is known are the noisy counts
:math:`\tilde y_l = y_l + Z_l` of the k labels, their noise independent with standard deviation s; let
:math:`\tilde x = \tilde y_j` and :math:`\tilde n = \sum_l \tilde y_l`. For the true p

.. math:: D(p) = \tilde x - p\, \tilde n = (1 - p)\, \tilde y_j - p \sum_{l \ne j} \tilde y_l

has mean 0 and variance

.. math:: V(p) = n\, p (1 - p) + s^2 \left( (1 - p)^2 + (k - 1)\, p^2 \right) ,

of people and of noise. Numerator and denominator share the noise of :math:`\tilde y_j`, so neither may be widened
alone. The interval holds every p that :math:`D(p)^2 \le z^2 V(p)` does not refute: with :math:`v = z^2 s^2` and
:math:`g = z^2 n / 2` the p for which

.. math:: (\tilde n^2 + 2 g - k v)\, p^2 - 2 (\tilde x \tilde n + g - v)\, p + \tilde x^2 - v \le 0 ,

of which a quarter of the discriminant is

.. math:: g^2 + 2 g\, \tilde x (\tilde n - \tilde x) + v (\tilde n^2 - 2 \tilde x \tilde n + k \tilde x^2)
          - (k - 1)\, v^2 .

Without noise it is Wilson's interval; without people's chance (g = 0) Fieller's. Where the leading coefficient or
:math:`\tilde n` is not positive the noise drowns the group, and the interval is all of [0, 1].

Source: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference" (1927); Fieller, "Some Problems
in Interval Estimation" (1954); asked for by Bagdasaryan et al. (2022), appendix B. Deviation: the paper says nothing of
the noise in its intervals.
"""

import numpy as np

from mapveil.maps.measurement import Interval
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check


def normal_quantile(alpha: float) -> float:
    """The z that a standard normal variable exceeds on either side with probability ``alpha`` together.

    Raises
    ------
    ParameterError
        ``alpha`` is outside (0, 1).
    """
    from scipy.special import ndtri

    check(0 < alpha < 1, "alpha", "between 0 and 1", alpha)
    return float(-ndtri(alpha / 2))


def noisy_wilson(
    positive: FloatArray, total: FloatArray, z: float, noise: float, labels: int = 2, *, sampling: bool = True
) -> Interval:
    r"""Bounds on the proportion of one label in each group; the formula is in the module's header.

    n is taken as :math:`\max(0, \tilde n)`. Run by: anybody who holds the noisy counts; costs no privacy.

    Parameters
    ----------
    positive : ndarray of float64, shape (groups,)
        Noisy count of the label, :math:`\tilde x`.
    total : ndarray of float64, shape (groups,)
        Noisy count of all labels, :math:`\tilde n`.
    z : float
        Standard deviations of people's chance, such as :func:`normal_quantile` gives.
    noise : float
        The root of v, users: how far the noise of one count strays; z times its deviation, or its own quantile where
        that is more.
    labels : int
        k, at least 2: how many counts the total is the sum of.
    sampling : bool
        Whether p is a property of the people that these were drawn from; without, it is that of those counted, and the
        noise alone is left.

    Returns
    -------
    Interval
        Shape (groups,), within [0, 1].
    """
    check(labels >= 2, "labels", "at least 2", labels)
    n, x, v = np.asarray(total, dtype=np.float64), np.asarray(positive, dtype=np.float64), float(noise) ** 2
    g = z**2 * np.maximum(n, 0.0) / 2 if sampling else np.zeros(n.shape)
    leading = n**2 + 2 * g - labels * v
    middle = x * n + g - v
    quarter = g**2 + 2 * g * x * (n - x) + v * (n**2 - 2 * x * n + labels * x**2) - (labels - 1) * v**2
    root = np.sqrt(np.maximum(quarter, 0.0))
    bounded = (leading > 0) & (n > 0)
    safe = np.where(bounded, leading, 1.0)
    lower = np.where(bounded, np.clip((middle - root) / safe, 0.0, 1.0), 0.0)
    upper = np.where(bounded, np.clip((middle + root) / safe, 0.0, 1.0), 1.0)
    return Interval(lower, upper)
