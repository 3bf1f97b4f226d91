"""Half the width of a 95 % interval of a normal variable, and its factor where few groups tell the deviation."""

from typing import Final

import numpy as np

from mapveil_client.arrays import IntArray

NORMAL_95: Final = 1.959963984540054
"""Half the width of a 95 % interval of a standard normal variable."""


def few_groups_factor(groups: IntArray) -> float:
    r"""The factor by which a 95 % interval learnt from few groups of rows is wider than a normal one.

    .. math:: \frac{t_{\max(g - 1, 1)}}{1.96}, \qquad g = \frac{(\sum_d n_d)^2}{\sum_d n_d^2}

    where: :math:`n_d` is the number of rows of group d, such as a user's day, g the effective number of groups and
    :math:`t_f` the 97.5 % quantile of Student's distribution with f degrees of freedom.

    Source: L. Kish, "Survey Sampling" (1965), section 8.2, for g.
    """
    from scipy.special import stdtrit

    count = np.unique(groups, return_counts=True)[1].astype(np.float64)
    effective = count.sum() ** 2 / np.square(count).sum()
    return float(stdtrit(max(effective - 1, 1.0), 0.975)) / NORMAL_95
