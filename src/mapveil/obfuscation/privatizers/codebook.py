"""The information-theoretic codebook: a few released rows, chosen by likeness."""

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from mapveil.obfuscation.privatizers.average_case import average_case
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.obfuscation.privatizers.pilot_cells import row_distances
from mapveil.obfuscation.privatizers.privatizer import Privatizer, Progress, State
from mapveil.obfuscation.utility import distortion_utility, map_utility
from mapveil.privacy.claim import Assumes, Reveals
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, check, check_whole
from mapveil_client.randomness.random import Randomness, uniforms

ONE: Final = 1 << 36
"""Weight of the most useful code of a row, above the floor; of 2^16 codes all weights sum to below 2^53."""

FLOOR: Final = 1 << 12
"""Weight that every code has, however useless: draws of 53 bits resolve it."""

_CHUNK: Final = 1 << 12  # rows whose distances from all codes are held at once
_DISTANCES: Final = 1 + 2.0**-16  # far more than the rounding of distances in double precision
_ROUNDING: Final = 2.0**-10  # more than that of the weights and of the draws adds to a logarithm of a ratio


@dataclass(frozen=True, kw_only=True)
class Codebook(Privatizer):
    r"""Release one of a few codes drawn from the pilot's law, likelier the more useful it is.

    .. math:: \Pr[y \mid x] = \frac{e^{\mu U(x, y)}}{\sum_{y' \in B} e^{\mu U(x, y')}}

    where: x is a run, B the codebook of ``size`` codes and :math:`\mu` is ``mu``. The codes are draws of
    a Gaussian kernel density estimate of the pilot (Scott's rule). With ``batch=1``, x is one row and
    :math:`U = U_1 = -\lVert y - x \rVert_2`, the mean over its L measurements: a linear model of one row does not
    exist. With a larger ``batch``, x and every code are tables of that many rows and one code replaces all of
    x, with :math:`U = U_1 + U_2` wherever x has more measurements than features.

    The law that is drawn from has whole weights, :math:`2^{12} + \mathrm{round}(2^{36} e^{\mu (U - \max U)})`, so
    that no code has a probability of 0.

    Run by: the curator of the pilot (``learn``), the client (``privatize``). A batch is one device's: the paper's,
    of many people's rows, can only be simulated.

    Deviation: the paper puts x itself among the codes (``raw=True``), and then sends it with a probability of at
    least 1 / ``size``. Without it all ``size`` codes are draws.

    Parameters
    ----------
    mu : float
        Weight of utility (the multiplier of the paper), not below 0.
    size : int
        Codes to choose from.
    raw : bool
        Whether one of them is x itself, unchanged.
    batch : int
        Runs that one code replaces; 1, or the paper's 1024.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Source: Section 5.4 and equation 23 of Zhang et al. 2022.
    """

    name: ClassVar[str] = "codebook"

    mu: float = 0.6
    size: int = 51
    raw: bool = False
    batch: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.mu < np.inf, "mu", "a finite number of at least 0", self.mu)
        check_whole(self.size, "size", 2, 1 << 16)
        check_whole(self.batch, "batch", 1, 1 << 16)

    @property
    def answers_null(self) -> bool:
        """See :class:`Privatizer`; a batch is replaced whole."""
        return self.batch == 1

    def learn(self, pilot: FloatArray, users: IntArray, rng: Randomness, progress: Progress) -> State:
        """Draw the codes; see :class:`Privatizer`.

        Raises
        ------
        InputError
            The codes would fill more than a gigabyte.
        """
        count = (self.size - self.raw) * self.batch
        if count * pilot.shape[1] > 1 << 28:
            raise InputError(
                f"{self.size} codes of {self.batch} rows of {pilot.shape[1]} numbers; expected 2^28 numbers"
            )
        # Draws of the pilot's law, published as they are: no noise that a proof rests on.
        generator = rng.generator()
        width = pilot.shape[1]
        bandwidth = len(pilot) ** (-1 / (width + 4))
        values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(pilot, rowvar=False)))
        spread = vectors * np.sqrt(np.maximum(values, 0)) * bandwidth
        drawn = pilot[generator.integers(len(pilot), size=count)]
        drawn = drawn + generator.standard_normal((count, width)) @ spread.T
        progress("draw codes", 1.0)
        return {"codes": drawn.reshape(-1, self.batch, width).astype(np.float32)}

    def privatize(self, state: State, rows: FloatArray, rng: Randomness) -> FloatArray:
        """Choose a code for every run, or for every ``batch`` of consecutive ones."""
        codes = state["codes"].astype(np.float64)
        if self.batch > 1:
            return self._privatize_batches(codes, rows, rng)
        made = np.empty_like(rows)
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            utility = -row_distances(part, codes[:, 0], self.sequence)
            if self.raw:
                utility = np.concatenate([utility, np.zeros((len(part), 1))], axis=1)
            chosen = choose_codes(code_weights(self.mu * utility), rng)
            taken = codes[np.minimum(chosen, len(codes) - 1), 0]
            made[start : start + _CHUNK] = np.where((chosen < len(codes))[:, None], taken, part)
        return made

    def worst_epsilon(self, state: State, normalisation: Normalisation) -> float:
        r"""A bound of the law that is drawn from, its whole weights and draws included; see :class:`Privatizer`.

        .. math:: \min\left(2 \mu D, \ln \frac{(s + 1)(1 + (n - 1)(s + 1))}{s + n}\right), \qquad s = 2^{24}

        where: D is the diagonal of the box that rows are cut to, and n is ``size``. The distance of a code from two
        rows of the box differs by at most D, and so does the logarithm of the normalising sum. Whatever the distances,
        the largest weight is s + 1 floors and the least is one. With the raw row among the codes, or in batches, there
        is no bound.
        """
        if self.raw or self.batch > 1:
            return np.inf
        sides = (normalisation.high - normalisation.low) / normalisation.scale
        by_distance = 2 * self.mu * float(np.sqrt(np.square(sides).sum())) * _DISTANCES
        most, others = ONE / FLOOR + 1, self.size - 1
        by_weights = math.log(most / (most + others) * (1 + others * most))
        return min(by_distance, by_weights) + _ROUNDING

    def promise(self, state: State, features: int) -> Guarantee:
        """Average case, and how often the raw row leaves."""
        return average_case(
            Reveals.CODE(codes=self.size, raw=self.raw, batch=self.batch),
            Assumes.PILOT_REPRESENTATIVE(),
            Assumes.PILOT_RAW(),
            Assumes.ATTACKERS_TRIED(),
        )

    def _privatize_batches(self, codes: FloatArray, rows: FloatArray, rng: Randomness) -> FloatArray:
        features = rows.shape[1] // self.sequence
        made = rows.copy()
        for start in range(0, len(rows), self.batch):
            part = rows[start : start + self.batch].reshape(-1, features)
            utilities = []
            for code in codes:
                given = code[: len(rows) - start].reshape(-1, features)
                error = map_utility(part, given) if len(part) > features else 0.0
                utilities.append(distortion_utility(part, given) + error)
            if self.raw:
                utilities.append(0.0)
            chosen = int(choose_codes(code_weights(self.mu * np.array([utilities])), rng)[0])
            if chosen < len(codes):
                made[start : start + self.batch] = codes[chosen, : len(rows) - start]
        return made


def code_weights(logits: FloatArray) -> FloatArray:
    """Whole weights of codes, from :data:`FLOOR` to :data:`ONE` more, shape (rows, codes).

    Parameters
    ----------
    logits : ndarray of float64, shape (rows, codes)
        Logarithms of weights before the floor, up to a constant of each row.
    """
    weights = logits - logits.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    weights *= ONE
    np.rint(weights, out=weights)
    weights += FLOOR
    return np.asarray(weights)


def choose_codes(weights: FloatArray, rng: Randomness) -> IntArray:
    """Draw one code per row, with probability proportional to its weight, shape (rows,).

    A probability is within 2^-52 of that, as draws are multiples of 2^-53.

    Parameters
    ----------
    weights : ndarray of float64, shape (rows, codes)
        Whole numbers whose sum in a row is above 0 and below 2^53, so that it is exact.
    rng : Randomness
        The source of bits.
    """
    reached = np.cumsum(weights, axis=1)
    drawn = uniforms(len(weights), rng) * reached[:, -1]
    chosen = (reached <= drawn[:, None]).sum(axis=1)
    return np.asarray(np.minimum(chosen, weights.shape[1] - 1), dtype=np.int64)
