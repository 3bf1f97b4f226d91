"""A fitted privatizer for phones: JSON of parameters, or an ONNX graph whose random numbers are inputs.

A graph takes ``rows`` (float64, in the features' own units; ``sequence`` rows make a run) and gives ``privatized``
likewise. Its random inputs are ``normals`` (float32, a row of standard normals for each run) or ``uniform``
(float64 in [0, 1), one for each run): whoever runs it draws them afresh, from the operating system. Places need
double precision (single precision moves a latitude by 0.2 m), so units are changed in double and only the network
itself runs in single precision.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.obfuscation.export.phone import PHONE_FORMAT, seal
from mapveil.obfuscation.export.phone_graph import Graph
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
    "funnel": "fewer cells or codes, or a shorter sequence",
}


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
        What is exported.
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
        **_head(fitted),
        "normalisation": {key: array.tolist() for key, array in normalisation.items() if key != "names"},
        "state": {key: array.tolist() for key, array in fitted.state.items()},
    }
    return (json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def phone_model(fitted: FittedPrivatizer) -> bytes:
    """The ONNX model of a privatizer that learnt a network or a table."""
    onnx = require("onnx", "neural")
    graph = Graph()
    learnt, features = fitted.normalisation, len(fitted.names)
    length = fitted.privatizer.sequence
    # Wide limits instead of none keep the graph the same for every normalisation.
    rows = graph.add("Max", graph.add("Min", "rows", graph.constant(learnt.high)), graph.constant(learnt.low))
    rows = graph.add("Div", graph.add("Sub", rows, graph.constant(learnt.mean)), graph.constant(learnt.scale))
    runs = graph.add("Reshape", rows, graph.constant(np.array([-1, length * features])))
    made, randomness = _BODIES[fitted.privatizer.name](graph, fitted, runs)
    made = graph.add("Reshape", made, graph.constant(np.array([-1, features])))
    made = graph.add("Add", graph.add("Mul", made, graph.constant(learnt.scale)), graph.constant(learnt.mean))
    graph.add("Identity", made, output="privatized")
    helper, kinds = onnx.helper, onnx.TensorProto
    inputs = [helper.make_tensor_value_info("rows", kinds.DOUBLE, ["rows", features])]
    for name, width in randomness:
        shape, kind = (["runs", width], kinds.FLOAT) if name == "normals" else (["runs"], kinds.DOUBLE)
        inputs.append(helper.make_tensor_value_info(name, kind, shape))
    outputs = [helper.make_tensor_value_info("privatized", kinds.DOUBLE, ["rows", features])]
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
        **_head(fitted),
        "randomness": [{"input": name, "width": width} for name, width in randomness],
    }
    helper.set_model_props(model, {"mapveil": json.dumps(record, ensure_ascii=False, allow_nan=False)})
    onnx.checker.check_model(model)
    return seal(model.SerializeToString())


def _head(fitted: FittedPrivatizer) -> dict[str, Any]:
    return {
        "format": PHONE_FORMAT,
        "software": f"mapveil {__version__}",
        "method": fitted.privatizer.name,
        "parameters": fitted.privatizer.parameters(),
        "features": list(fitted.names),
        "guarantee": fitted.guarantee().to_dict(),
    }


Inputs = list[tuple[str, int]]


def _network(graph: Graph, fitted: FittedPrivatizer, runs: str) -> tuple[str, Inputs]:
    """``gap``: a dense network of the run and of fresh normals."""
    options, state = fitted.privatizer.parameters(), fitted.state
    width = int(options["noise"]) * fitted.privatizer.sequence
    level = graph.cast(runs, np.float32)
    if width:
        level = graph.add("Concat", level, "normals", axis=1)
    layers = sum(name.startswith("weight") for name in state)
    for at in range(layers):
        weight = _weight(graph, np.asarray(state[f"weight{at}"]))
        level = graph.add("Gemm", level, weight, graph.constant(state[f"bias{at}"]))
        if at < layers - 1:
            level = graph.add("Relu", level)
    return graph.cast(level, np.float64), [("normals", width)] if width else []


def _weight(graph: Graph, weight: npt.NDArray[np.float32]) -> str:
    """A matrix, in half precision where that holds it exactly."""
    half = weight.astype(np.float16)
    if (half.astype(np.float32) == weight).all():
        return graph.cast(graph.constant(half), np.float32)
    return graph.constant(weight)


def _codebook(graph: Graph, fitted: FittedPrivatizer, runs: str) -> tuple[str, Inputs]:
    """``codebook``: a code with a probability that falls with its distance."""
    options, length = fitted.privatizer.parameters(), fitted.privatizer.sequence
    if options["batch"] > 1:
        raise ParameterError(
            f"a codebook of batch {options['batch']} replaces many people's runs at once, which no phone has; batch 1 "
            "can be exported"
        )
    codes = np.asarray(fitted.state["codes"][:, 0])
    features = codes.shape[1] // length
    rows = graph.cast(runs, np.float32)
    total = ""
    for at in range(0, codes.shape[1], features):
        part = graph.columns(rows, at, at + features) if length > 1 else rows
        code = codes[:, at : at + features]
        squared = graph.add("MatMul", part, graph.constant(np.ascontiguousarray(-2 * code.T)))
        squared = graph.add(
            "Add",
            squared,
            graph.add("ReduceSum", graph.add("Mul", part, part), graph.constant(np.array([1]))),
        )
        squared = graph.add("Add", squared, graph.constant(np.square(code).sum(axis=1)))
        distance = graph.add("Sqrt", graph.add("Max", squared, graph.constant(np.float32(1e-8))))
        total = graph.add("Add", total, distance) if total else distance
    if length > 1:
        total = graph.add("Div", total, graph.constant(np.float32(length)))
    logits = graph.add("Mul", total, graph.constant(np.float32(-options["mu"])))
    if options["raw"]:
        zero = graph.add("Mul", graph.columns(logits, 0, 1), graph.constant(np.float32(0)))
        logits = graph.add("Concat", logits, zero, axis=1)
    top = graph.add("ReduceMax", logits, axes=[1])
    chosen = graph.draw(
        graph.add("Exp", graph.add("Sub", logits, top)), len(codes) - 1 + bool(options["raw"])
    )
    last = graph.constant(np.array(len(codes) - 1))
    made = graph.add(
        "Gather", graph.constant(codes.astype(np.float64)), graph.add("Min", chosen, last), axis=0
    )
    if options["raw"]:
        kept = graph.add("Unsqueeze", graph.add("LessOrEqual", chosen, last), graph.constant(np.array([1])))
        made = graph.add("Where", kept, made, runs)
    return made, [("uniform", 1)]


def _funnel(graph: Graph, fitted: FittedPrivatizer, runs: str) -> tuple[str, Inputs]:
    """``funnel``: a code with the probabilities of the nearest centre."""
    state = fitted.state
    centres, codes = np.asarray(state["centres"]), np.asarray(state["codes"], dtype=np.float64)
    rows = graph.cast(runs, np.float32)
    apart = graph.add("MatMul", rows, graph.constant(np.ascontiguousarray(-2 * centres.T)))
    apart = graph.add("Add", apart, graph.constant(np.square(centres).sum(axis=1)))
    cell = graph.add("ArgMin", apart, axis=1, keepdims=0)
    weights = graph.add("Gather", graph.constant(np.asarray(state["weights"])), cell, axis=0)
    chosen = graph.draw(weights, len(codes) - 1)
    return graph.add("Gather", graph.constant(codes), chosen, axis=0), [("uniform", 1)]


_BODIES: Final[dict[str, Callable[[Graph, FittedPrivatizer, str], tuple[str, Inputs]]]] = {
    "gap": _network,
    "codebook": _codebook,
    "funnel": _funnel,
}
