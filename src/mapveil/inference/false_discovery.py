r"""The false discovery rate: adjusted p-values by Benjamini and Hochberg's procedure.

.. math:: q_{(i)} = \min_{j \ge i} \min\Big(1, \frac{m\, p_{(j)}}{j}\Big)

where: :math:`p_{(1)} \le p_{(2)} \le \dots` are the sorted p-values and m is the number of tests. Calling the tests
with :math:`q \le \alpha` holds the expected fraction of false calls at :math:`\alpha` where p-values are independent or
positively dependent, such as equal ones. Storey's estimate of the tests without an effect is left out: of groups of
equal p-values it holds a larger rate (.086 for a claimed .05, three groups of 12).

Source: Benjamini and Hochberg, "Controlling the false discovery rate" (1995); Benjamini and Yekutieli, "The control of
the false discovery rate in multiple testing under dependency" (2001), for positive dependence.
"""

from __future__ import annotations

import numpy as np

from mapveil_client.arrays import FloatArray


def adjusted(p: FloatArray, tests: int | None = None) -> FloatArray:
    """Adjusted p-values.

    Parameters
    ----------
    p : ndarray of float64, shape (known,)
        p-values, from 0 to 1.
    tests : int, optional
        Number of tests, by default that of ``p``; where it is larger the others have a p-value of 1.
    """
    order = np.argsort(p, kind="stable")
    scaled = p[order] * (p.size if tests is None else tests) / np.arange(1, p.size + 1)
    made = np.empty(p.size)
    made[order] = np.minimum.accumulate(scaled[::-1])[::-1]
    return np.minimum(made, 1.0)
