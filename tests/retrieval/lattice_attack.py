r"""What breaking a query costs: the primal lattice attack, in the model of 2016.

From m samples the attacker builds a lattice of dimension d = n + m + 1 in which the secret and the errors are a
vector shorter than all others, and reduces it by BKZ with blocks of :math:`\beta`. Reduction finds the vector once its
projection is shorter than the last block's first vector would be:

.. math:: \sqrt{\beta}\, \sigma_e \le \delta^{2 \beta - d - 1}
    \left( q^m \left(\frac{\sigma_e}{\sigma_s}\right)^n \right)^{1/d}, \qquad
    \delta = \left( \frac{(\pi \beta)^{1 / \beta}\, \beta}{2 \pi e} \right)^{1 / (2 \beta - 2)}

where: :math:`\sigma_s` and :math:`\sigma_e` are the deviations of secrets and errors, n is the secret's length, q
the modulus. The attacker picks m. One call of a sieve in dimension :math:`\beta` costs at least
:math:`2^{0.292 \beta}` operations (``core_bits``); with the usual overheads, a reduction costs
:math:`2^{0.292 \beta + 16.4} \cdot 8 d` (``bits``), the figure to set beside published parameter tables.

It is an estimate of one attack with today's algorithms, no bound: dual attacks
with guessing are claimed to gain a few bits, Arora-Ge and BKW need far more samples than a query has.

Source: Alkim, Ducas, Poppelmann, Schwabe, "Post-quantum key exchange: a new hope" (USENIX Security 2016), section 6.3;
Becker, Ducas, Gama, Laarhoven (SODA 2016) for the sieve; Albrecht et al., "Homomorphic Encryption Standard" (2018)
for the overheads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mapveil.retrieval.lattice_parameters import DEVIATION, MODULUS_BITS, SECRET
from mapveil_client.errors import ParameterError

_SMALLEST_BLOCK = 50
_SIEVE = 0.292
_OVERHEAD_BITS = 16.4


class PrimalAttack(NamedTuple):
    """The cheapest primal attack."""

    block: int  # beta
    dimension: int  # d
    core_bits: float  # of one sieve, at least
    bits: float  # with overheads


def primal_attack(
    secret: int = SECRET,
    modulus: int = 1 << MODULUS_BITS,
    secret_deviation: float = float(DEVIATION),
    error_deviation: float = float(DEVIATION),
) -> PrimalAttack:
    r"""Find the smallest block size with which the attack succeeds; the formula is in the module's header.

    Parameters
    ----------
    secret : int
        Numbers of the secret, n.
    modulus : int
        q.
    secret_deviation, error_deviation : float
        Standard deviations, above 0.

    Raises
    ------
    ParameterError
        A parameter is not above 0 (1 for the modulus).
    """
    if secret < 1 or modulus < 2 or not (secret_deviation > 0 and error_deviation > 0):
        raise ParameterError(
            f"a secret of {secret} numbers modulo {modulus} with deviations {secret_deviation:g} and "
            f"{error_deviation:g}; expected numbers above 0, and a modulus above 1"
        )
    samples = np.arange(1, 4 * secret + 1)
    dimensions = secret + samples + 1
    volume = samples * math.log2(modulus) + secret * math.log2(error_deviation / secret_deviation)
    block = _SMALLEST_BLOCK
    while True:
        root = math.log2((math.pi * block) ** (1 / block) * block / (2 * math.pi * math.e)) / (2 * block - 2)
        short = 0.5 * math.log2(block) + math.log2(error_deviation)
        found = np.flatnonzero((2 * block - dimensions - 1) * root + volume / dimensions >= short)
        if found.size:
            dimension = int(dimensions[found[0]])
            core = _SIEVE * block
            return PrimalAttack(block, dimension, core, core + _OVERHEAD_BITS + math.log2(8 * dimension))
        block += 1
