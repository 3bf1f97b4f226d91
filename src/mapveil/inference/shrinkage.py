"""Translation-invariant multiscale shrinkage: from noisy sums on a raster to a smooth, non-negative map.

A box of the raster is cut into two halves, rows and columns in turn, until single sites are left. The expected sum of
a half is in proportion to its members; the measured one departs from that by signal and noise, and is drawn back by a
rule that is learned, per size of box, from the noisy halves of all boxes: the posterior mean under a prior of splits
(:mod:`mapveil.inference.split_prior`), or an expansion (:mod:`mapveil.inference.threshold_expansion`).

The cuts are made at every offset, not at multiples of the box only: each box takes the mean of what its parents give
it, which equals averaging over all shifts of the grid. Outside the raster lies nothing (no wrapping): a box over the
border has fewer members, and so a smaller share.

Post-processing: costs no privacy. Source: cycle spinning (Coifman and Donoho 1995), multiscale priors for counts
(Kolaczyk 1999, Nowak and Kolaczyk 2000).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.inference.box_sums import BoxSums, Cuts, box_sums, columns_of, measured_half, scaled_sums
from mapveil.inference.split_prior import CHUNK, SplitPrior
from mapveil.inference.threshold_expansion import CutBoxes, ThresholdExpansion
from mapveil_client.arrays import BoolArray, FloatArray, IntArray, quotient
from mapveil_client.errors import ParameterError, check

SplitRule = Literal["prior", "expansion"]

# Of a measured group: a cut with less in either half tells nothing of the rule. Just below 1, for sums of parts in
# floating point. Learning from parts of groups as well costs cities 3 % and saves flat maps 6 % of the error over
# secure sums (docs/reference/mechanism-constants.md).
_WHOLE = 0.99

_ALL = slice(None)
_JUDGED = 64  # blocks a side from which it is judged whether a map is flat


def pool(square: npt.NDArray[Any], levels: int) -> npt.NDArray[Any]:
    """Sum blocks of ``2**levels`` x ``2**levels`` sites, same dtype.

    Examples
    --------
    >>> pool(np.ones((4, 4), dtype=np.int64), 1).tolist()
    [[4, 4], [4, 4]]
    """
    side = square.shape[0] >> levels
    summed: npt.NDArray[Any] = square.reshape(side, 1 << levels, side, 1 << levels).sum(axis=(1, 3))
    return summed


def spread(square: FloatArray, members: npt.NDArray[Any]) -> FloatArray:
    """Divide each block of a coarse raster over its sites in proportion to their members.

    Parameters
    ----------
    square : ndarray of float64, shape (coarse, coarse)
        Sums of blocks.
    members : ndarray, shape (side, side)
        Weight of every site, 0 for a structural zero; ``side`` is ``coarse`` times a power of two.

    Returns
    -------
    ndarray of float64, shape (side, side)
        Each block keeps its sum, unless it has no members.
    """
    factor = members.shape[0] // square.shape[0]
    block = pool(members.astype(np.float64), factor.bit_length() - 1)
    return np.asarray(quotient(square, block).repeat(factor, axis=0).repeat(factor, axis=1) * members)


def multiscale_shrinkage(
    noisy: FloatArray,
    variance: FloatArray | float,
    members: npt.NDArray[Any] | None = None,
    *,
    coarser: Sequence[tuple[int, FloatArray | float]] = (),
    leaves: FloatArray | None = None,
    shifts: int = 8,
    rule: SplitRule = "prior",
    sampled: bool = False,
    uneven: bool = False,
) -> FloatArray:
    """Shrink noisy sums on a square raster. Run by: whoever holds the noisy sums.

    Parameters
    ----------
    noisy : ndarray of float64, shape (side, side)
        Unbiased sums per site; ``side`` is a power of two.
    variance : float or ndarray of float64, shape (side, side)
        Variance of the noise on each, independent from site to site.
    members : ndarray, shape (side, side), optional
        Number of cells that each site stands for, all 1 by default; 0 is a structural zero, estimated as exactly 0.
    coarser : sequence of (int, ndarray of float64 or float)
        Where larger groups of sites were measured as well, and made consistent with their sites: lengths, descending,
        and each site's part of the variance of its group, shape (side, side), or a number for every member. Boxes whose
        longer side is at least such a length take their variance from the first that fits, and not from ``variance``.
    leaves : ndarray of float64, shape (side, side), optional
        Each site's part of the group it was measured in, where several sites were measured as one and ``noisy`` and
        ``variance`` divided evenly among them; all 1 by default. The rule is not learned from boxes with less than
        one group.
    shifts : int
        Trees are rooted at ``shifts`` + 1 offsets along either axis (at most ``side`` + 1), around the centre:
        boxes of at most ``shifts`` sites a side are cut at every offset. Time grows with its logarithm.
    rule : str
        ``"prior"``, or ``"expansion"``, which looks at the boxes beside it too.
    sampled : bool
        Whether the users counted are a sample of those whom the map shows: then the sums carry the sample's Poisson
        variance as well, which is estimated along with them.
    uneven : bool
        Whether ``members`` are weights of any size, so that boxes with uneven halves tell of the rule ``"prior"`` too.

    Returns
    -------
    ndarray of float64, shape (side, side)
        Non-negative, with the total of ``noisy`` (0 if that is negative) over sites with members.

    Raises
    ------
    ParameterError
        The raster is not a square with a power of two sites a side, or the shapes differ.
    """
    side = noisy.shape[0] if noisy.ndim == 2 else 0
    if noisy.shape != (side, side) or side < 1 or side & (side - 1):
        raise ParameterError(
            f"noisy must be a square with a power of two sites a side, got shape {noisy.shape}"
        )
    weight = np.ones(noisy.shape) if members is None else np.asarray(members, dtype=np.float64)
    small = np.asarray(variance, dtype=np.float64)
    parts = np.asarray(1.0 if leaves is None else leaves, dtype=np.float64)
    shapes = [weight.shape, *(given.shape or noisy.shape for given in (small, parts))]
    shapes += [given.shape for _, given in coarser if not isinstance(given, float)]
    if any(shape != noisy.shape for shape in shapes):
        raise ParameterError(
            f"members, variance, coarser and leaves must have shape {noisy.shape}, got {shapes}"
        )
    check(shifts >= 1, "shifts", "at least 1", shifts)
    there = weight > 0
    held = None if leaves is None else np.where(there, parts, 0.0)
    noises: list[tuple[int, FloatArray | float]] = [(0, np.where(there, small, 0.0))]
    noises += [
        (length, each if isinstance(each, float) else np.where(there, each, 0.0))
        for length, each in reversed(coarser)
    ]
    raster = _Raster(np.where(there, noisy, 0.0), weight, held, noises)
    if rule == "expansion":
        return np.where(there, _descend(raster, shifts, ThresholdExpansion(), sampled), 0.0)
    prior = SplitPrior(may_be_flat=True, uneven=uneven)
    _descend(raster.pooled(max(side // _JUDGED, 1).bit_length() - 1), 1, prior, sampled)
    prior.begin_again()
    return np.where(there, _descend(raster, shifts, prior, sampled), 0.0)


class _Raster(NamedTuple):
    """All that is known of the sites, 0 where nobody can be; each of shape (side, side)."""

    noisy: FloatArray
    members: FloatArray
    groups: FloatArray | None
    noises: list[
        tuple[int, FloatArray | float]
    ]  # by the least length of a box, ascending; a number is per member

    def pooled(self, levels: int) -> _Raster:
        """The same on blocks of ``2**levels`` x ``2**levels`` sites."""
        if not levels:
            return self
        last = max(at for at, (length, _) in enumerate(self.noises) if length <= 1 << levels)
        noises = [
            (length >> levels, noise if isinstance(noise, float) else pool(noise, levels))
            for length, noise in self.noises[last:]
        ]
        groups = None if self.groups is None else pool(self.groups, levels)
        return _Raster(pool(self.noisy, levels), pool(self.members, levels), groups, noises)


def _descend(
    raster: _Raster, shifts: int, learn: SplitPrior | ThresholdExpansion, sampled: bool
) -> FloatArray:
    """Estimates of all sites: every box is halved, from the whole raster down."""
    side = raster.noisy.shape[0]
    sums, weights = box_sums(raster.noisy), box_sums(raster.members)
    held = None if raster.groups is None else box_sums(raster.groups)
    noises = list(raster.noises)
    noise = _noise_sums(noises[-1][1], weights)
    roots = _roots(side, shifts)
    rows, columns = Cuts(2 * side, roots), Cuts(2 * side, roots)
    estimate = np.full((roots.size, roots.size), max(float(raster.noisy.sum()), 0.0))
    while columns.length > 1:
        for axis in (0, 1):
            before = (rows, columns)[axis]
            after = before.halved(side)
            rows, columns = (after, columns) if axis == 0 else (rows, after)
            if max(rows.length, columns.length) < noises[-1][0]:
                while max(rows.length, columns.length) < noises[-1][0]:
                    noises.pop()
                noise = _noise_sums(noises[-1][1], weights)
            layers = [boxes.sums(rows, columns) for boxes in (sums, noise, weights)]
            if held is not None:
                layers.append(held.sums(rows, columns))
            sites = min(rows.length, side) * min(columns.length, side)
            offsets = min(rows.length, roots.size) * min(columns.length, roots.size)
            slope = None
            if isinstance(learn, ThresholdExpansion):
                whole = weights.sums(*((before, columns) if axis == 0 else (rows, before)))
                slope = _slope(estimate, whole, axis, before)
            cut = _Cut(axis, before, after, sites, offsets, slope, sampled)
            estimate = _halve(estimate, layers, cut, learn)
    return estimate


def _noise_sums(noise: FloatArray | float, members: BoxSums) -> BoxSums:
    return scaled_sums(noise, members) if isinstance(noise, float) else box_sums(noise)


def _roots(side: int, shifts: int) -> IntArray:
    """First sites of boxes of twice the side, which all hold the whole raster."""
    spare = (side - min(shifts, side)) // 2
    return np.arange(spare - side, 1 - spare)


class _Cut(NamedTuple):
    """One halving of all boxes."""

    axis: int
    before: Cuts
    after: Cuts
    sites: int  # of a half
    offsets: int
    slope: FloatArray | None  # users per member before each box less those after it
    sampled: bool


class _Band(NamedTuple):
    """Some of the boxes whose halves both overlap the raster."""

    whole: FloatArray  # users
    half: FloatArray  # users of the first halves of boxes that are not cut
    at: tuple[slice, ...] | BoolArray  # the boxes that are cut
    cut: CutBoxes


def _halve(
    estimate: FloatArray,
    layers: list[FloatArray],
    to: _Cut,
    learn: SplitPrior | ThresholdExpansion,
) -> FloatArray:
    """From the estimates of all boxes to those of all their halves along one axis.

    ``layers`` are sums over all halves: what was measured, noise variance, members and (optionally) groups. The boxes
    are gone through in bands of rows, whose arrays stay in the cache.
    """
    pairs = _Pairs(to.before, to.after)
    rows, across = (pairs.boxes.size if at == to.axis else estimate.shape[at] for at in (0, 1))
    size = max(1, rows if isinstance(learn, ThresholdExpansion) else CHUNK // max(across, 1))
    spans = [slice(start, start + size) for start in range(0, rows, size)]
    bands: list[_Band] = [_band(estimate, layers, to, pairs, span) for span in spans]
    cuts = [band.cut for band in bands]
    if isinstance(learn, ThresholdExpansion):
        found: Iterable[FloatArray] = map(learn.halves, cuts)
    else:
        found = learn.halves_of(cuts, to.sites)
    summed = np.zeros(layers[0].shape)
    for span, band, first in zip(spans, bands, found, strict=True):
        half = band.half
        half[band.at] = np.clip(first, 0.0, band.cut.parent).reshape(half[band.at].shape)
        summed[_index(pairs.first, to.axis, span)] += half
        summed[_index(pairs.second, to.axis, span)] += band.whole - half
    for places, boxes in ((pairs.only_first, pairs.lone_first), (pairs.only_second, pairs.lone_second)):
        summed[_index(places, to.axis)] += _at(estimate, boxes, to.axis)
    givers = np.bincount(np.concatenate((pairs.first, pairs.second, pairs.only_first, pairs.only_second)))
    summed /= givers[:, None] if to.axis == 0 else givers
    return summed


def _band(estimate: FloatArray, layers: list[FloatArray], to: _Cut, pairs: _Pairs, span: slice) -> _Band:
    y1, v1, w1, *g1 = (_at(layer, pairs.first, to.axis, span) for layer in layers)
    y2, v2, w2, *g2 = (_at(layer, pairs.second, to.axis, span) for layer in layers)
    whole = _at(estimate, pairs.boxes, to.axis, span)
    cut = (w1 > 0) & (w2 > 0)
    half = np.where(w1 > 0, whole, 0.0)
    at = _rectangle(cut)
    parent, y1, y2, v1, v2, w1, w2 = (each[at].reshape(-1) for each in (whole, y1, y2, v1, v2, w1, w2))
    members = w1 + w2
    share = w1 / members
    if to.sampled:
        v1, v2 = v1 + share * parent, v2 + (1 - share) * parent
    measured, variance = measured_half(parent, y1, y2, v1, v2)
    telling = np.minimum(g1[0], g2[0])[at].reshape(-1) > _WHOLE if g1 else None
    slope = np.zeros(1)
    if to.slope is not None:
        along = _at(to.slope, pairs.boxes, to.axis, span)[at].reshape(-1)
        slope = share * (1 - share) * members * along / 4
    return _Band(whole, half, at, CutBoxes(parent, measured, variance, share, slope, telling, to.offsets))


class _Pairs:
    """Places of boxes whose halves both overlap the raster, of the halves, and of boxes with one half and that half."""

    def __init__(self, before: Cuts, after: Cuts) -> None:
        there, place = [], []
        for first in (before.first, before.first + after.length):
            at = np.minimum(np.searchsorted(after.first, first), after.first.size - 1)
            there.append(after.first[at] == first)
            place.append(at)
        both = there[0] & there[1]
        self.boxes, self.first, self.second = (np.flatnonzero(both), place[0][both], place[1][both])
        self.lone_first, self.lone_second = (np.flatnonzero(each & ~both) for each in there)
        self.only_first, self.only_second = (at[each & ~both] for each, at in zip(there, place, strict=True))


def _index(places: IntArray, axis: int, span: slice = _ALL) -> tuple[slice | IntArray, ...]:
    """Boxes at places along an axis; ``span`` is of these places for rows, of all rows for columns."""
    return (_run(places[span]),) if axis == 0 else (span, _run(places))


def _at(layer: FloatArray, places: IntArray, axis: int, span: slice = _ALL) -> FloatArray:
    index = _index(places, axis, span)
    # NumPy would order the columns first.
    return layer[index] if axis == 0 or isinstance(index[1], slice) else columns_of(layer[span], places)


def _rectangle(cut: BoolArray) -> tuple[slice, ...] | BoolArray:
    """An index of the boxes that are cut: slices where they are a rectangle, which are many times faster."""
    spans = tuple(_span(np.asarray(cut.any(axis=axis))) for axis in (1, 0))
    return spans if cut[spans].all() else cut


def _span(used: BoolArray) -> slice:
    there = np.flatnonzero(used)
    return slice(int(there[0]), int(there[-1]) + 1) if there.size else slice(0)


def _slope(estimate: FloatArray, members: FloatArray, axis: int, boxes: Cuts) -> FloatArray:
    """Users per member in the box before each, less those in the box after it; its own where nobody can be there."""
    density = quotient(estimate, members)
    beside = []
    for step in (-boxes.length, boxes.length):
        at = np.minimum(np.searchsorted(boxes.first, boxes.first + step), boxes.first.size - 1)
        near = boxes.first[at] == boxes.first + step
        there = _at(members, at, axis) > 0
        there &= near[:, None] if axis == 0 else near
        beside.append(np.where(there, _at(density, at, axis), density))
    return np.asarray(beside[0] - beside[1])


def _run(index: IntArray) -> slice | IntArray:
    """The same places as a slice where they follow each other, which is faster."""
    if not index.size:
        return slice(0)
    return slice(int(index[0]), int(index[-1]) + 1) if index[-1] - index[0] + 1 == index.size else index
