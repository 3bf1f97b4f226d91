"""Runs the operations of a published test vector, byte for byte."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mapveil.two_operators import poplar1_verification as poplar
from mapveil.two_operators import prio3_verification as prio
from mapveil_client.arrays import IntArray
from mapveil_client.two_operators import validity_circuits as circuits
from mapveil_client.two_operators.finite_fields import FIELD64, Elements, Field, Octets
from mapveil_client.two_operators.poplar1 import Poplar1
from mapveil_client.two_operators.prio3 import Prio3

from . import vector_circuits as others

FOLDER = Path(os.environ.get("MAPVEIL_VDAF_VECTORS", Path(__file__).parents[1] / "vectors" / "vdaf"))
TESTING = 0xFFFFFFFF  # the codepoint of instances that are in vectors only


class Refused(Exception):
    """The operation fails."""


def row(text: str) -> Octets:
    return np.frombuffer(bytes.fromhex(text), dtype=np.uint8)[None]


def accepted(good: Any) -> None:
    if not bool(np.all(good)):
        raise Refused


def read(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


@dataclass(frozen=True, kw_only=True)
class ThirdDegree(circuits.Circuit):
    """A number from 0 to 2, by a gadget of degree three."""

    degree: ClassVar[int] = 3

    over: Field = FIELD64

    @property
    def shape(self) -> circuits.Shape:
        return circuits.Shape(1, 1)

    def encode(self, measurements: IntArray) -> Elements:
        return self.over.small(np.asarray(measurements)[:, None])

    def wires(self, share: Elements, joint: Elements, shares: int) -> Elements:
        return share[:, None]

    def gadget(self, inputs: Elements) -> Elements:
        x, field = inputs[:, 0], self.over
        product = field.multiply(field.subtract(x, field.of(1)), field.subtract(x, field.of(2)))
        return field.multiply(x, product)


def _chunks(vector: Any) -> dict[str, int]:
    return {"count": vector["length"], "chunk": vector["chunk_length"]}


def _prio3(name: str, vector: Any) -> Prio3:
    kind, proofs = name.split("_")[0].removeprefix("Prio3"), 1
    circuit: circuits.Circuit
    if kind == "Count":
        circuit, number = others.Count(), 1
    elif kind == "Sum":
        circuit, number = others.Sum(most=vector["max_measurement"]), 2
    elif kind == "SumVec":
        circuit, number = others.SumVec(most=vector["max_measurement"], **_chunks(vector)), 3
    elif kind == "Histogram":
        circuit, number = others.Histogram(**_chunks(vector)), 4
    elif kind == "MultihotCountVec":
        circuit, number = others.MultihotCountVec(most=vector["max_weight"], **_chunks(vector)), 5
    elif kind == "L1BoundSum":
        circuit, number = circuits.L1BoundSum(most=vector["max_value"], **_chunks(vector)), 7
    elif kind == "SumVecWithMultiproof":
        circuit = others.SumVec(most=vector["max_measurement"], over=FIELD64, **_chunks(vector))
        number, proofs = TESTING, int(vector.get("proofs", 3))
    elif kind == "HigherDegree":
        circuit, number = ThirdDegree(), TESTING
    else:
        raise AssertionError(f"{name}: no instance of this kind is known")
    return Prio3(circuit, number, bytes.fromhex(vector["ctx"]), vector["shares"], proofs)


class Prio3Run:
    """A vector of Prio3, and the states of its operators."""

    def __init__(self, name: str, vector: Any) -> None:
        self.vdaf, self.vector = _prio3(name, vector), vector
        self.field = self.vdaf.circuit.over
        self.states: dict[tuple[int, int], prio.Prio3State] = {}

    def shard(self, report: Any) -> tuple[str, list[str]]:
        measured = np.array([report["measurement"]], dtype=np.int64)
        made = self.vdaf.shard(measured, row(report["nonce"]), row(report["rand"]))
        return made.public.tobytes().hex(), [each.tobytes().hex() for each in made.inputs]

    def verify_init(self, index: int, operator: int, report: Any) -> str:
        key, public = bytes.fromhex(self.vector["verify_key"]), row(report["public_share"])
        inputs = row(report["input_shares"][operator])
        if (public.shape[1], inputs.shape[1]) != (self.vdaf.public_bytes, self.vdaf.input_bytes(operator)):
            raise Refused
        made = prio.verify_init(self.vdaf, key, operator, row(report["nonce"]), public, inputs)
        accepted(made.state.accepted)
        self.states[index, operator] = made.state
        return made.verifier.tobytes().hex()

    def combine(self, index: int, number: int, shares: list[str]) -> str:
        made = prio.combine_verifiers(self.vdaf, [row(share) for share in shares])
        accepted(made.accepted)
        return made.message.tobytes().hex()

    def verify_next(self, index: int, operator: int, number: int, message: str) -> tuple[bool, str]:
        outputs, good = prio.verify_next(self.states[index, operator], row(message))
        accepted(good)
        return True, self.field.encode(outputs).tobytes().hex()

    def result(self, totals: list[int]) -> Any:
        return totals if isinstance(self.vector["agg_result"], list) else totals[0]


class Poplar1Run:
    """A vector of Poplar1, and the states of its operators."""

    def __init__(self, name: str, vector: Any) -> None:
        self.vdaf, self.vector = Poplar1(vector["bits"], bytes.fromhex(vector["ctx"])), vector
        written = bytes.fromhex(vector["agg_param"])
        level, count = int.from_bytes(written[:2], "big"), int.from_bytes(written[2:6], "big")
        packed = np.frombuffer(written[6:], dtype=np.uint8).reshape(count, (level + 8) // 8)
        self.prefixes = np.unpackbits(packed, axis=1)[:, : level + 1].astype(np.bool_)
        self.states: dict[tuple[int, int], poplar.Poplar1State] = {}
        self.field = FIELD64

    def shard(self, report: Any) -> tuple[str, list[str]]:
        path = np.array([report["measurement"]], dtype=np.bool_)
        made = self.vdaf.shard(path, row(report["nonce"]), row(report["rand"]))
        return made.public.tobytes().hex(), [each.tobytes().hex() for each in made.inputs]

    def verify_init(self, index: int, operator: int, report: Any) -> str:
        key, public = bytes.fromhex(self.vector["verify_key"]), row(report["public_share"])
        inputs = row(report["input_shares"][operator])
        if (public.shape[1], inputs.shape[1]) != (self.vdaf.public_bytes, self.vdaf.input_bytes(operator)):
            raise Refused
        state, share = poplar.sketch(
            self.vdaf, key, operator, self.prefixes, row(report["nonce"]), public, inputs
        )
        accepted(state.accepted)
        self.states[index, operator], self.field = state, state.field
        return share.tobytes().hex()

    def combine(self, index: int, number: int, shares: list[str]) -> str:
        both = row(shares[0]), row(shares[1])
        if number:
            accepted(poplar.decide_sketch(self.field, both))
            return ""
        message, good = poplar.combine_sketch(self.field, both)
        accepted(good)
        return message.tobytes().hex()

    def verify_next(self, index: int, operator: int, number: int, message: str) -> tuple[bool, str]:
        state = self.states[index, operator]
        if number == 1:
            share, good = poplar.finish_sketch(state, row(message))
            accepted(good)
            return False, share.tobytes().hex()
        return True, state.field.encode(state.outputs).tobytes().hex()

    def result(self, totals: list[int]) -> Any:
        return totals


def run_vector(name: str) -> list[str]:
    """Run every operation in order; an assertion fails where one differs. Returns the operations that were run."""
    vector = read(name)
    run = Poplar1Run(name, vector) if name.startswith("Poplar1") else Prio3Run(name, vector)
    done = []
    for operation in vector["operations"]:
        kind, index = operation["operation"], operation.get("report_index", 0)
        try:
            _operate(run, vector, operation, vector["reports"][index], index)
        except Refused:
            assert not operation["success"], f"{name}: {operation} was refused"
        else:
            assert operation["success"], f"{name}: {operation} was not refused"
        done.append(kind)
    return done


def _operate(run: Prio3Run | Poplar1Run, vector: Any, operation: Any, report: Any, index: int) -> None:
    kind, operator = operation["operation"], operation.get("aggregator_id", 0)
    if kind == "shard":
        assert run.shard(report) == (report["public_share"], report["input_shares"])
    elif kind == "verify_init":
        assert run.verify_init(index, operator, report) == report["verifier_shares"][0][operator]
    elif kind == "verifier_shares_to_message":
        number = operation["round"]
        message = run.combine(index, number, report["verifier_shares"][number])
        assert message == report["verifier_messages"][number]
    elif kind == "verify_next":
        number = operation["round"]
        last, made = run.verify_next(index, operator, number, report["verifier_messages"][number - 1])
        wanted = report["out_shares"][operator] if last else report["verifier_shares"][number][operator]
        assert made == ("".join(wanted) if isinstance(wanted, list) else wanted)
    elif kind == "aggregate":
        shares = [run.field.decode(row(each["out_shares"][operator]))[0][0] for each in vector["reports"]]
        total = run.field.total(np.stack(shares), axis=0)
        assert run.field.encode(total[None]).tobytes().hex() == vector["agg_shares"][operator]
    else:
        assert kind == "unshard"
        shares = [run.field.decode(row(each))[0][0] for each in vector["agg_shares"]]
        assert (
            run.result(run.field.integers(run.field.total(np.stack(shares), axis=0))) == vector["agg_result"]
        )
