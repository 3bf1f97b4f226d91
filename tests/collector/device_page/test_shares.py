"""Shares that the browser device makes for two operators: the Python client's, byte for byte, of random instances."""

from __future__ import annotations

from typing import Any

import numpy as np

from mapveil_client.two_operators.poplar1 import Poplar1
from mapveil_client.two_operators.prio3 import L1_BOUND_SUM, Prio3, Sharded
from mapveil_client.two_operators.validity_circuits import L1BoundSum
from tests.node import run_in_node

SCRIPT = """
const { fromHex, hex } = await load("bytes");
const { shardVector } = await load("l1_bound_sum");
const { shardPath } = await load("poplar1");
const made = [];
for (const { kind, measurement, context, nonce, randomness, ...sizes } of given) {
  const rest = [fromHex(nonce), fromHex(randomness)];
  const shares = kind === "path"
    ? await shardPath(measurement, fromHex(context), ...rest)
    : shardVector({ ...sizes, context: fromHex(context) }, measurement, ...rest);
  made.push([shares.public, ...shares.inputs].map(hex));
}
console.log(JSON.stringify(made));
"""


def test_random_instances_and_contributions() -> None:
    drawn = np.random.default_rng(19)
    given: list[dict[str, Any]] = []
    expected = []
    for number in range(60):
        context, nonce = drawn.bytes(int(drawn.integers(0, 60))), drawn.bytes(16)
        record = {"kind": ("path", "vector")[number % 2], "context": context.hex(), "nonce": nonce.hex()}
        if number % 2:
            count, most, chunk = (int(drawn.integers(1, top)) for top in (40, 3000, 60))
            vector = drawn.multinomial(int(drawn.integers(0, most + 1)), np.full(count + 1, 1 / (count + 1)))
            measured = vector[None, :count]
            vdaf: Prio3 | Poplar1 = Prio3(
                L1BoundSum(count=count, most=most, chunk=chunk), L1_BOUND_SUM, context
            )
            record |= {"count": count, "most": most, "chunk": chunk}
        else:
            levels = int(drawn.integers(1, 30))
            measured = drawn.integers(0, 2, (1, levels))
            vdaf = Poplar1(levels, context)
        randomness = drawn.bytes(vdaf.randomness_bytes)
        given.append(record | {"measurement": measured[0].tolist(), "randomness": randomness.hex()})
        expected.append(_hex(_shares(vdaf, measured, nonce, randomness)))
    assert run_in_node(SCRIPT, given) == expected


def _shares(vdaf: Prio3 | Poplar1, measured: Any, nonce: bytes, randomness: bytes) -> Sharded:
    row = [np.frombuffer(each, dtype=np.uint8)[None] for each in (nonce, randomness)]
    return vdaf.shard(measured.astype(np.bool_) if isinstance(vdaf, Poplar1) else measured, *row)


def _hex(made: Sharded) -> list[str]:
    return [each.tobytes().hex() for each in (made.public, *made.inputs)]
