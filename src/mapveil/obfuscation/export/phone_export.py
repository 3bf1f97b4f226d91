"""A fitted privatizer for phones: JSON of parameters, or an ONNX graph whose random numbers are inputs.

A graph takes ``rows`` (float64, in the features' own units; ``sequence`` rows make a run) and gives ``privatized``
likewise. Its random inputs are ``normals`` (float32, a row of standard normals for each run) or ``uniform``
(float64 in [0, 1), one for each run), likewise ``null`` where rows unlike the pilot are answered empty (NaN), and
``category`` with the number of a column (int64, one for each row, below the width that the record states) where a
column is one of categories: whoever runs it draws them afresh, from the operating system. Places need
double precision (single precision moves a latitude by 0.2 m), and the weights of codes too, so only the network itself
and the null code run in single precision.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.obfuscation.export.phone import PHONE_FORMAT, seal
from mapveil.obfuscation.export.privatizer_file import fingerprint
from mapveil.obfuscation.privatizers.codebook import FLOOR, ONE
from mapveil.obfuscation.privatizers.null_code import NULL_ERROR, NullCode
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer
from mapveil_client import __version__
from mapveil_client.errors import InputError, ParameterError, require

LARGEST_BYTES: Final = 1_000_000
"""A file for phones is no larger."""

_OPSET: Final = 17
_IR: Final = 8
_SMALLER: Final = {
    "gap": "a smaller width, less noise or a shorter sequence",
    "codebook": "fewer codes or a shorter sequence",
}


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
        kept = (
            kept.astype(np.int64) if kept.dtype.kind == "i" else kept
        )  # the only integers of ONNX used here
        for name, other in self.constants.items():
            if other.dtype == kept.dtype and np.array_equal(other, kept):
                return name
        name = f"constant{len(self.constants)}"
        self.constants[name] = kept
        return name

    def add(self, operation: str, *inputs: str | npt.ArrayLike, output: str = "", **attributes: Any) -> str:
        """Append an operation on values (by name) and arrays; the name of its value."""
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        name = output or f"value{len(self.nodes)}"
        self.nodes.append(Node(operation, names, name, attributes))
        return name

    def cast(self, value: str | npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        """A value or an array as another type."""
        return self.add("Cast", value, to=_KINDS[np.dtype(dtype)])

    def columns(self, value: str, start: int, stop: int) -> str:
        """Some columns of a matrix."""
        return self.add("Slice", value, [start], [stop], [1])

    def draw(self, weights: str, last: int) -> str:
        r"""The index of a column, with probability proportional to its whole weight (double), by the input ``uniform``.

        .. math:: \min(\#\{c : \textstyle\sum_{b \le c} w_b \le u \sum_b w_b\}, \text{last})
        """
        reached = self.add("CumSum", weights, 1)
        whole = self.add("Gather", reached, [-1], axis=1)
        drawn = self.add("Unsqueeze", "uniform", [1])
        passed = self.add("LessOrEqual", reached, self.add("Mul", whole, drawn))
        count = self.add("ReduceSum", self.cast(passed, np.int64), [1], keepdims=0)
        return self.add("Min", count, last)


def check_phone_name(path: str | Path, privatizer: str) -> None:
    """Refuse a file name that a privatizer is not exported under.

    Raises
    ------
    InputError
        Another suffix than ``.json`` for one that adds noise, ``.onnx`` for one that learnt more.
    """
    suffix = ".onnx" if privatizer in _BODIES else ".json"
    if Path(path).suffix.lower() != suffix:
        raise InputError(f"{path}: {privatizer} is exported as {suffix}; expected a name that ends so")


def export_privatizer(fitted: FittedPrivatizer, path: str | Path) -> None:
    """Write a fitted privatizer for phones, whole or not at all. Run by: the curator of the pilot.

    Parameters
    ----------
    fitted : FittedPrivatizer
        The privatizer.
    path : path-like
        ``.json`` for a privatizer that adds noise, ``.onnx`` for one that learnt more.

    Raises
    ------
    ParameterError
        A codebook of batches, which no phone can run.
    InputError
        Another suffix, a file above 1 MB, or a folder that cannot be written to.
    MissingExtra
        A graph is needed and the extra ``neural`` is not installed.
    """
    check_phone_name(path, fitted.privatizer.name)
    data = phone_model(fitted) if fitted.privatizer.name in _BODIES else phone_record(fitted)
    if len(data) > LARGEST_BYTES:
        raise InputError(
            f"{path}: would take {len(data):,} bytes; expected at most {LARGEST_BYTES:,}: fit it with "
            f"{_SMALLER.get(fitted.privatizer.name, 'fewer features')}"
        )
    with atomic_path(path) as place:
        place.write_bytes(data)


def phone_record(fitted: FittedPrivatizer) -> bytes:
    """The JSON of a privatizer whose state is a few numbers."""
    normalisation = vars(fitted.normalisation)
    record = {
        "format": PHONE_FORMAT,
        **fitted.record(),
        "fingerprint": fingerprint(fitted),
        "values": {str(each.column): each.values.tolist() for each in fitted.categories},
        "normalisation": {key: array.tolist() for key, array in normalisation.items() if key != "names"},
        "state": {key: array.tolist() for key, array in fitted.state.items()},
    }
    return (json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def phone_model(fitted: FittedPrivatizer) -> bytes:
    """The ONNX model of a privatizer that learnt a network or a table."""
    onnx = require("onnx", "neural")
    graph = Graph()
    columns, learnt = fitted.numeric
    length, width = fitted.privatizer.sequence, len(columns)
    given = graph.add("Gather", "rows", columns, axis=1) if fitted.categories else "rows"
    # Wide limits instead of none keep the graph the same for every normalisation.
    rows = graph.add("Max", graph.add("Min", given, learnt.high), learnt.low)
    rows = graph.add("Div", graph.add("Sub", rows, learnt.mean), learnt.scale)
    runs = graph.add("Reshape", rows, [-1, length * width])
    made, randomness = _BODIES[fitted.privatizer.name](graph, fitted, runs)
    if fitted.null_code is not None:
        whole = graph.add("Div", graph.add("Sub", given, learnt.mean), learnt.scale)
        made = _null(graph, fitted.null_code, graph.add("Reshape", whole, [-1, length * width]), made)
        randomness = [*randomness, ("null", 1)]
    made = graph.add("Reshape", made, [-1, width])
    made = graph.add("Add", graph.add("Mul", made, learnt.scale), learnt.mean)
    if fitted.categories:
        made = _with_categories(graph, fitted, made)
        randomness = [*randomness, *((f"category{each.column}", each.total) for each in fitted.categories)]
    graph.add("Identity", made, output="privatized")
    helper, kinds = onnx.helper, onnx.TensorProto
    inputs = [helper.make_tensor_value_info("rows", kinds.DOUBLE, ["rows", len(fitted.names)])]
    for name, width in randomness:
        shape, kind = (["runs", width], kinds.FLOAT) if name == "normals" else (["runs"], kinds.DOUBLE)
        if name.startswith("category"):
            shape, kind = ["rows"], kinds.INT64
        inputs.append(helper.make_tensor_value_info(name, kind, shape))
    outputs = [helper.make_tensor_value_info("privatized", kinds.DOUBLE, ["rows", len(fitted.names)])]
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(op, ins, [out], **given) for op, ins, out, given in graph.nodes],
            fitted.privatizer.name,
            inputs,
            outputs,
            [onnx.numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
        ),
        producer_name="mapveil",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
    )
    record = {
        "format": PHONE_FORMAT,
        **fitted.record(),
        "fingerprint": fingerprint(fitted),
        "randomness": [{"input": name, "width": width} for name, width in randomness],
    }
    helper.set_model_props(model, {"mapveil": json.dumps(record, ensure_ascii=False, allow_nan=False)})
    onnx.checker.check_model(model)
    return seal(model.SerializeToString())


Inputs = list[tuple[str, int]]


def _null(graph: Graph, null: NullCode, whole: str, made: str) -> str:
    """Empty reports (NaN) on runs unlike the pilot; see :meth:`NullCode.empty`."""
    rows = graph.cast(whole, np.float32)
    squared = graph.add("MatMul", rows, np.ascontiguousarray(-2 * null.centres.T))
    squared = graph.add("Add", squared, graph.add("ReduceSum", graph.add("Mul", rows, rows), [1]))
    squared = graph.add("Add", squared, np.square(null.centres).sum(axis=1))
    nearest = graph.add("ReduceMin", squared, axes=[1], keepdims=0)
    unlike = graph.add("Not", graph.add("LessOrEqual", nearest, np.float32(null.reach**2)))
    empty = graph.add("Xor", unlike, graph.add("Less", "null", np.float64(NULL_ERROR)))
    return graph.add("Where", graph.add("Unsqueeze", empty, [1]), np.float64(np.nan), made)


def _with_categories(graph: Graph, fitted: FittedPrivatizer, made: str) -> str:
    """Columns of categories beside those of numbers; see :meth:`Category.respond`."""
    columns, _ = fitted.numeric
    parts = [made]
    empty = graph.add("IsNaN", graph.columns(made, 0, 1))
    for each in fitted.categories:
        column, drawn = graph.columns("rows", each.column, each.column + 1), f"category{each.column}"
        same = graph.cast(graph.add("Equal", column, each.values), np.int64)
        known = graph.cast(graph.add("ReduceMax", same, axes=[1], keepdims=0), np.float64)
        at = graph.add("ArgMax", same, axis=1, keepdims=0)
        true = graph.add("Where", graph.add("Greater", known, 0.5), at, len(each.values))
        surplus = graph.add("Sub", drawn, each.weights.more - each.weights.less)
        other = graph.add("Div", surplus, each.weights.less)
        said = graph.add("Where", graph.add("Less", surplus, 0), true, other)
        reported = graph.add("Gather", np.append(each.values, np.nan), graph.add("Unsqueeze", said, [1]))
        parts.append(graph.add("Where", empty, np.float64(np.nan), reported))
    order = np.argsort([*columns, *(each.column for each in fitted.categories)])
    return graph.add("Gather", graph.add("Concat", *parts, axis=1), order, axis=1)


def _network(graph: Graph, fitted: FittedPrivatizer, runs: str) -> tuple[str, Inputs]:
    """``gap``: a dense network of the run and of fresh normals; weights that half precision holds are stored so."""
    options, state = fitted.privatizer.parameters(), fitted.state
    width = int(options["noise"]) * fitted.privatizer.sequence
    level = graph.cast(runs, np.float32)
    if width:
        level = graph.add("Concat", level, "normals", axis=1)
    layers = sum(name.startswith("weight") for name in state)
    for at in range(layers):
        weight = np.asarray(state[f"weight{at}"])
        half = weight.astype(np.float16)
        exact = bool((half.astype(np.float32) == weight).all())
        stored = graph.cast(half, np.float32) if exact else weight
        level = graph.add("Gemm", level, stored, state[f"bias{at}"])
        level = graph.add("Relu", level) if at < layers - 1 else level
    return graph.cast(level, np.float64), [("normals", width)] if width else []


def _codebook(graph: Graph, fitted: FittedPrivatizer, runs: str) -> tuple[str, Inputs]:
    """``codebook``: a code with a probability that falls with its distance."""
    options, length = fitted.privatizer.parameters(), fitted.privatizer.sequence
    if options["batch"] > 1:
        raise ParameterError(
            f"a codebook of batch {options['batch']} replaces many people's runs at once, which no phone has; batch 1 "
            "can be exported"
        )
    codes = np.asarray(fitted.state["codes"][:, 0], dtype=np.float64)
    features = codes.shape[1] // length
    total = ""
    for at in range(0, codes.shape[1], features):
        part = graph.columns(runs, at, at + features) if length > 1 else runs
        code = codes[:, at : at + features]
        squared = graph.add("MatMul", part, np.ascontiguousarray(-2 * code.T))
        squared = graph.add("Add", squared, graph.add("ReduceSum", graph.add("Mul", part, part), [1]))
        squared = graph.add("Add", squared, np.square(code).sum(axis=1))
        distance = graph.add("Sqrt", graph.add("Max", squared, 1e-8))
        total = graph.add("Add", total, distance) if total else distance
    if length > 1:
        total = graph.add("Div", total, float(length))
    logits = graph.add("Mul", total, -float(options["mu"]))
    if options["raw"]:
        zero = graph.add("Mul", graph.columns(logits, 0, 1), 0.0)
        logits = graph.add("Concat", logits, zero, axis=1)
    weights = graph.add("Exp", graph.add("Sub", logits, graph.add("ReduceMax", logits, axes=[1])))
    whole = graph.add("Add", graph.add("Round", graph.add("Mul", weights, float(ONE))), float(FLOOR))
    last = len(codes) - 1
    chosen = graph.draw(whole, last + bool(options["raw"]))
    made = graph.add("Gather", codes, graph.add("Min", chosen, last), axis=0)
    if options["raw"]:
        kept = graph.add("Unsqueeze", graph.add("LessOrEqual", chosen, last), [1])
        made = graph.add("Where", kept, made, runs)
    return made, [("uniform", 1)]


_BODIES: Final[dict[str, Callable[[Graph, FittedPrivatizer, str], tuple[str, Inputs]]]] = {
    "gap": _network,
    "codebook": _codebook,
}
