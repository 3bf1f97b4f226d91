"""Noisy sums of residuals in nodes of several levels, as linear observations of a field."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.inference.tree_least_squares import nested_least_squares
from mapveil.maps.density_map import DensityMap
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.mechanisms.signal_sums import STRONG, WEAK
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError

_POINTS: Final = 4096  # at which the field is averaged, over all finest nodes together: bounds memory


class NodeSums(NamedTuple):
    """Noisy sums over nodes as observations of the field in the finest nodes."""

    points: IntArray  # cells at which the field is averaged over finest nodes, shape (points,)
    averages: Any  # sparse, weight of each point in the mean of a finest node, shape (nodes, points)
    users: FloatArray  # in each finest node, estimated, shape (nodes,)
    error: FloatArray  # covariance of the numbers of users, users^2, shape (nodes, nodes)
    members: Any  # sparse, 1 where a finest node lies in a node of any level, shape (observations, nodes)
    residuals: FloatArray  # sums of clipped residuals of all levels, dB, shape (observations,)
    noise: FloatArray  # variance of the noise of each, dB^2


def node_sums(released: DensityMap, clip_db: float) -> NodeSums:
    """Read a release as observations. Run by: anybody who holds it; costs no privacy.

    Raises
    ------
    InputError
        The map holds no sums of residuals.
    """
    from scipy.sparse import vstack

    levels = sorted(
        (each for each in released.measurements if isinstance(each, LabelMeasurement)),
        key=lambda each: each.noisy.size,
    )
    if not levels:
        raise InputError(
            f"a map by {released.method} holds no sums of residuals; expected one by signal-sums"
        )
    finest = levels[-1].groups
    kept = np.flatnonzero(finest >= 0)
    nodes, first = np.unique(finest[kept], return_index=True)
    count = levels[-1].noisy.size
    if nodes.size != count:
        raise InputError(f"the finest sums are of {count} nodes, of which {nodes.size} hold a cell")
    above = [each.groups[kept[first]] for each in levels]
    # The parent of a node is the node of the level above in which any of its finest nodes lies.
    parents = []
    for upper, own, level in zip(above, above[1:], levels[1:], strict=False):
        parent = np.zeros(level.noisy.size, dtype=np.int64)
        parent[own] = upper
        parents.append(parent)
    variances = [each.deviation() ** 2 for each in levels]
    users = nested_least_squares([each.noisy for each in levels], variances, parents)
    residuals = [clip_db * (each.by_label[:, STRONG] - each.by_label[:, WEAK]) for each in levels]
    noise = [
        clip_db**2 * each.contrast_variance(np.maximum(own, 0.0))
        for each, own in zip(levels, users.values, strict=True)
    ]
    points, averages = _points_of(finest[kept], count)
    members = [_members(own, level.noisy.size) for own, level in zip(above, levels, strict=True)]
    return NodeSums(
        kept[points],
        averages,
        np.maximum(users.values[-1], 0.0),
        _error(members, variances),
        vstack(members, format="csr"),
        np.concatenate(residuals),
        np.concatenate(noise),
    )


def _members(node: IntArray, count: int) -> Any:
    """The rows of M of one level, shape (nodes of the level, finest nodes)."""
    from scipy.sparse import csr_matrix

    return csr_matrix((np.ones(node.size), (node, np.arange(node.size))), (count, node.size))


def _error(members: list[Any], variances: list[float]) -> FloatArray:
    """Covariance of the least-squares numbers of users in the finest nodes."""
    from scipy.sparse import vstack

    count, own = members[-1].shape[1], variances[-1]
    if len(members) == 1:
        return np.eye(count) * own
    coarse: Any = vstack(members[:-1], format="csr")
    spread = np.repeat(variances[:-1], [each.shape[0] for each in members[:-1]])
    # Woodbury's identity: a matrix of the coarse nodes, a quarter of the finest, is inverted.
    inner = np.diag(spread) + own * (coarse @ coarse.T).toarray()
    return np.asarray(np.eye(count) * own - own**2 * (coarse.T @ np.linalg.solve(inner, coarse.toarray())))


def _points_of(node: IntArray, count: int) -> tuple[IntArray, Any]:
    """Cells, evenly among those of each finest node, and their weights in its mean."""
    from scipy.sparse import csr_matrix

    order, inside = np.argsort(node, kind="stable"), np.bincount(node, minlength=count)
    taken = np.minimum(inside, max(_POINTS // count, 1))
    owner = np.repeat(np.arange(count), taken)
    rank = np.arange(owner.size) - (np.cumsum(taken) - taken)[owner]
    at = (np.cumsum(inside) - inside)[owner] + (2 * rank + 1) * inside[owner] // (2 * taken[owner])
    weights = csr_matrix((1 / taken[owner], (owner, np.arange(owner.size))), (count, owner.size))
    return order[at], weights
