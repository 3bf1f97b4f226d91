"""A graph of operations under construction: nodes in order, and the arrays they use."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_KINDS = {np.dtype(np.float32): 1, np.dtype(np.int64): 7, np.dtype(np.float64): 11}
"""Element types by their numbers in ONNX."""


class Node(NamedTuple):
    """One operation."""

    operation: str
    inputs: list[str]
    output: str
    attributes: dict[str, Any]


class Graph:
    """Operations of ONNX by name, each of which gives one value.

    Attributes
    ----------
    nodes : list of Node
        In an order in which they can run.
    constants : dict of str to ndarray
        The arrays they use, by the names of their values.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, npt.NDArray[Any]] = {}

    def constant(self, array: npt.ArrayLike) -> str:
        """The name of an array's value; equal arrays are kept once."""
        kept = np.asarray(array)
        for name, other in self.constants.items():
            if other.dtype == kept.dtype and np.array_equal(other, kept):
                return name
        name = f"constant{len(self.constants)}"
        self.constants[name] = kept
        return name

    def add(self, operation: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Append an operation; the name of its value."""
        name = output or f"value{len(self.nodes)}"
        self.nodes.append(Node(operation, list(inputs), name, attributes))
        return name

    def cast(self, value: str, dtype: npt.DTypeLike) -> str:
        """A value as another type."""
        return self.add("Cast", value, to=_KINDS[np.dtype(dtype)])

    def columns(self, value: str, start: int, stop: int) -> str:
        """Some columns of a matrix."""
        bounds = (self.constant(np.array([number])) for number in (start, stop, 1))
        return self.add("Slice", value, *bounds)

    def draw(self, weights: str, last: int) -> str:
        r"""The index of a column, with probability proportional to its weight, by the input ``uniform``.

        .. math:: \min(\#\{c : \textstyle\sum_{b \le c} w_b \le u \sum_b w_b\}, \text{last})
        """
        reached = self.cast(self.add("CumSum", weights, self.constant(np.array(1))), np.float64)
        whole = self.add("Gather", reached, self.constant(np.array([-1])), axis=1)
        drawn = self.add("Unsqueeze", "uniform", self.constant(np.array([1])))
        passed = self.add("LessOrEqual", reached, self.add("Mul", whole, drawn))
        count = self.add("ReduceSum", self.cast(passed, np.int64), self.constant(np.array([1])), keepdims=0)
        return self.add("Min", count, self.constant(np.array(last)))
