r"""The split of a box's users between its two halves: a linear expansion whose weights minimise estimated error.

The first half of a box of P users departs from its even part r P by :math:`\theta`; what was measured departs by
:math:`e = \theta + \tau \xi`, :math:`\xi` noise of variance 1; and the boxes to both sides, left whole so far, lead to
expect s. The estimate is

.. math:: \hat\theta = a_1 e + a_2 e \exp\left(-\frac{e^2}{12 \tau^2}\right) + a_3 s, \qquad
    s = r (1 - r) w \frac{\rho_1 - \rho_2}{4}

where: w is the box's number of members, :math:`\rho_1, \rho_2` are the users per member found in the box of its size
before it and in the one after it, and :math:`a_1, a_2, a_3` minimise the estimated squared error over all boxes of
one size whose signal :math:`4 r (1 - r) P / 2 \tau` lies in one octave. For that only :math:`\mathrm{E}[\theta F]` is
wanted for each term F, and

.. math:: \mathrm{E}[\theta F(e)] = \mathrm{E}[e F(e)] - \tau^2\, \mathrm{E}[F'(e)]

needs no truth: exact for F(e) = e whatever the noise, and for every F where it is Gaussian, as sums over several
sites and shards nearly are. An octave with few boxes is held by ``_HELD`` boxes' worth of the weights of all octaves.

For the first two terms it is never negative, and an estimate below 0 counts as 0: where noise is less than
:math:`\tau^2` allows for, as that of a sample of users who are in several cells each, weights would otherwise turn
departures round.

It assumes nothing of how users cluster: where they do, large departures are kept and small ones drawn in; where they
do not, all are drawn in alike. Source: Blu and Luisier, "The SURE-LET approach to image denoising" (2007), for the
expansion and the constant 12; Luisier, Vonesch, Blu, Unser, "Fast interscale wavelet denoising of Poisson-corrupted
images" (2010), for Haar differences of counts; Stein (1981). Deviation: the weights follow the signal of the box
itself, not a guess from its parents, and s is a term of the expansion.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray

# A quarter to 4 times _HELD, a tenth to 10 times _RIDGE: within the noise (docs/reference/mechanism-constants.md).
_BEND: Final = 12.0  # Blu and Luisier (2007)
_HELD: Final = 4.0  # boxes
_RIDGE: Final = 1e-3  # of a term's mean square
_FIRST_OCTAVE, _OCTAVES = -3, 40
_FAR: Final = 50.0  # noise deviations that no noise departs by
_SURE: Final = 1e-20  # of a parent's square: with less variance a half is as good as known
_TINY: Final = 1e-300


class CutBoxes(NamedTuple):
    """Boxes of one size that are cut in two, all arrays of shape (boxes,)."""

    parent: FloatArray  # P, users
    measured: FloatArray  # r P + e: the first half as measured
    variance: FloatArray  # the square of tau
    share: FloatArray  # r, in (0, 1)
    slope: FloatArray  # s, users
    telling: npt.NDArray[np.bool_] | None  # which were measured apart, all where None
    offsets: int  # boxes overlap: each counts 1 / offsets in learning


class ThresholdExpansion:
    """The expansion, learned anew for each size of box; what cannot be measured there goes by the last size's slope."""

    def __init__(self) -> None:
        self._along = 0.0

    def halves(self, boxes: CutBoxes) -> FloatArray:
        """Learn the weights for boxes of one size, and estimate their first halves, shape (boxes,).

        Run by: whoever holds the noisy sums.
        """
        even = boxes.share * boxes.parent
        known = boxes.variance > _SURE * np.square(boxes.parent)
        noise = np.where(known, boxes.variance, 1.0)
        reach = boxes.parent + _FAR * np.sqrt(noise)
        away = np.clip(boxes.measured - even, -reach, reach)
        slope = np.clip(boxes.slope, -even, boxes.parent - even)
        learned = known & (boxes.parent > 0)
        if boxes.telling is not None:
            learned &= boxes.telling
        octave = self._octave(boxes, noise)
        bent, bent_rate = _bent(away, noise)
        terms = np.stack([away, bent, slope])
        rates = np.stack([np.ones_like(away), bent_rate, np.zeros_like(away)])
        weights = self._weights(terms, rates, away, noise, octave, learned, boxes.offsets)
        found = even + (weights[octave].T * terms).sum(axis=0)
        if boxes.telling is not None:
            found = np.where(boxes.telling, found, even + self._along * slope)
        return np.where(known, found, boxes.measured)

    @staticmethod
    def _octave(boxes: CutBoxes, noise: FloatArray) -> IntArray:
        signal = 2 * boxes.share * (1 - boxes.share) * boxes.parent / np.sqrt(noise)
        place = np.floor(np.log2(np.maximum(signal, _TINY))) - _FIRST_OCTAVE
        return np.asarray(np.clip(place, 0, _OCTAVES - 1), dtype=np.int64)

    def _weights(
        self,
        terms: FloatArray,
        rates: FloatArray,
        away: FloatArray,
        noise: FloatArray,
        octave: IntArray,
        learned: npt.NDArray[np.bool_],
        offsets: int,
    ) -> FloatArray:
        """a of each octave, shape (octaves, terms)."""
        terms, rates, away, noise = (array[..., learned] for array in (terms, rates, away, noise))
        octave = octave[learned]
        each = 1 / (noise * offsets)
        count = len(terms)

        def summed(values: FloatArray) -> FloatArray:
            return np.asarray(np.bincount(octave, each * values, _OCTAVES), dtype=np.float64)

        products = np.empty((_OCTAVES, count, count))
        wanted = np.empty((_OCTAVES, count))
        for i in range(count):
            for j in range(i, count):
                products[:, i, j] = products[:, j, i] = summed(terms[i] * terms[j])
            wanted[:, i] = summed(terms[i] * away - noise * rates[i])
        if octave.size:
            pooled, goal = products.sum(axis=0), _possible(wanted.sum(axis=0))
            slopes = pooled[-1, -1]
            self._along = float(goal[-1] / slopes) if slopes > 0 else 0.0
            common = _solved(pooled[None], goal[None])[0]
        else:
            common = np.zeros(count)
            common[-1] = self._along
        boxes = np.bincount(octave, minlength=_OCTAVES)[:, None] / offsets
        sizes = np.diagonal(products, axis1=1, axis2=2)
        pull = _HELD * np.divide(sizes, boxes, out=np.zeros_like(sizes), where=boxes > 0)
        held = products + pull[:, :, None] * np.eye(count)
        return np.where(boxes > 0, _solved(held, _possible(wanted) + pull * common), common)


def _bent(away: FloatArray, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The second term of the expansion, and its derivative."""
    square = away * away / noise
    fade = np.exp(-square / _BEND)
    return away * fade, fade * (1 - 2 * square / _BEND)


def _possible(wanted: FloatArray) -> FloatArray:
    """E[theta F] as estimated, less than 0 only for the slope: F has the sign of e for the others."""
    return np.concatenate([np.maximum(wanted[..., :-1], 0.0), wanted[..., -1:]], axis=-1)


def _solved(products: FloatArray, wanted: FloatArray) -> FloatArray:
    """Weights of each octave's normal equations, with a ridge so that terms that are alike share."""
    count = wanted.shape[-1]
    sizes = np.diagonal(products, axis1=1, axis2=2)
    scale = np.sqrt(np.maximum(sizes, _TINY))
    scaled = products / (scale[:, :, None] * scale[:, None, :]) + _RIDGE * np.eye(count)
    found = np.linalg.solve(scaled, (wanted / scale)[:, :, None])[:, :, 0] / scale
    return np.asarray(np.where(sizes > 0, found, 0.0))
