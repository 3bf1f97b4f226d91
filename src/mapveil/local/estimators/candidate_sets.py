r"""The published estimator: equations over Hadamard candidate sets, solved by LU decomposition.

.. math:: \hat\pi(C_i) = \sum_x p(x) \sum_{y \in C_i} q(y \mid x), \quad i = 1 .. d, \qquad
    C_i = \{ y : H_{i y} = +1,\ y < d \}

where: :math:`\hat\pi(C_i)` is the part of the reports in :math:`C_i`, H the Hadamard matrix of
:math:`2^{\lceil \log_2(d + 1) \rceil}` rows (from 0) and d the number of sites.

The sets bring nothing: where both systems are regular, the solution is that of :math:`\hat\pi(y) = \sum_x p(x) q(y
\mid x)` itself. It is here to show that, and for the reproduction.

Source: Wang et al. (2022), section 3.5, equation 8, Algorithm 2.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mapveil.local.randomizers.randomizer import SymbolRandomizer
from mapveil.local.randomizers.report import Tally
from mapveil.local.randomizers.weight_table import solve_regular
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.local.hadamard_response import walsh_hadamard

_MOST_SITES: Final = 4096


def candidate_sums(values: FloatArray) -> FloatArray:
    """The sums of values over all candidate sets, shape (rows, sites), from values by site, shape (rows, sites).

    Examples
    --------
    >>> candidate_sums(np.array([[1.0, 10.0, 100.0]])).tolist()
    [[101.0, 11.0, 1.0]]
    """
    rows, size = values.shape
    padded = np.zeros((rows, 1 << size.bit_length()))
    padded[:, :size] = values
    signed = walsh_hadamard(padded)[:, 1 : size + 1]
    return np.asarray((signed + values.sum(axis=1, keepdims=True)) / 2)


def solve_candidate_sets(randomizer: SymbolRandomizer, tally: Tally) -> FloatArray:
    """The solution p, shape (sites,); entries may be negative. Run by: the server.

    Parameters
    ----------
    randomizer : SymbolRandomizer
        Randomizer whose reports are sites.
    tally : Tally
        Counts of the reports.

    Raises
    ------
    ParameterError
        Reports are not sites, there are more than 4,096 sites, or the system is singular.
    """
    if randomizer.symbols != randomizer.size:
        raise ParameterError("the estimator candidate-sets needs a randomizer whose reports are sites")
    if randomizer.size > _MOST_SITES:
        raise ParameterError(
            f"the estimator candidate-sets takes at most {_MOST_SITES} sites, got {randomizer.size}; "
            "em and simplex need no matrix"
        )
    share = tally.counts / max(tally.reports, 1)
    return solve_regular(candidate_sums(randomizer.transition_matrix()).T, candidate_sums(share[None])[0])
