r"""The published estimator: equations over Hadamard candidate sets, solved by LU decomposition.

.. math:: \hat\pi(C_i) = \sum_x p(x) \sum_{y \in C_i} q(y \mid x), \quad i = 1 .. d, \qquad
    C_i = \{ y : H_{i y} = +1,\ y < d \}

where: :math:`\hat\pi(C_i)` is the fraction of the reports in :math:`C_i`, H the Hadamard matrix of
:math:`2^{\lceil \log_2(d + 1) \rceil}` rows (from 0) and d the number of sites. Where both systems are regular, the
solution is that of :math:`\hat\pi(y) = \sum_x p(x) q(y \mid x)` itself.

Source: Wang et al. (2022), section 3.5, equation 8, Algorithm 2.
"""

from typing import Final

import numpy as np

from mapveil.local.randomizers.randomizer import Randomizer, SymbolRandomizer, Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.local.hadamard_response import walsh_hadamard
from mapveil_client.local.randomizer import MOST_SITES

_SINGULAR: Final = 1e-13  # reciprocal condition number


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


def check_candidate_sets(randomizer: Randomizer) -> SymbolRandomizer:
    """The randomizer, whose reports must be sites, 4,096 at most; raise ParameterError for any other."""
    if not isinstance(randomizer, SymbolRandomizer) or randomizer.symbols != randomizer.size:
        raise ParameterError(
            "the estimator 'candidate-sets' needs reports that are sites: those of srr, grr or planar-laplace"
        )
    if randomizer.size > MOST_SITES:
        raise ParameterError(
            f"the estimator 'candidate-sets' takes at most {MOST_SITES} sites, got {randomizer.size}; "
            "em and simplex need no matrix"
        )
    return randomizer


def solve_candidate_sets(randomizer: Randomizer, tally: Tally) -> FloatArray:
    """The solution p, shape (sites,); entries may be negative. Run by: the server.

    Raises
    ------
    ParameterError
        Reports are not sites, there are more than 4,096 sites, or the system is singular.
    """
    randomizer = check_candidate_sets(randomizer)
    share = tally.counts / max(tally.reports, 1)
    return solve_regular(candidate_sums(randomizer.transition_matrix()).T, candidate_sums(share[None])[0])


def solve_regular(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve a square system by LU decomposition.

    Raises
    ------
    ParameterError
        The system is singular to working precision.
    """
    from scipy.linalg.lapack import dgecon, dgetrf, dgetrs

    factors, pivots, failed = dgetrf(matrix)
    reciprocal = 0.0 if failed else float(dgecon(factors, np.linalg.norm(matrix, 1))[0])
    if reciprocal < _SINGULAR:
        raise ParameterError(
            "the system of equations is singular: different distributions have the same reports; "
            "use the estimator 'smoothed-em', or groups whose first is the place alone"
        )
    return np.asarray(dgetrs(factors, pivots, right)[0])
