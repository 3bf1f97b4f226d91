"""Shares that the browser device makes for two operators: the Python client's, byte for byte, of random instances."""

from __future__ import annotations

from typing import Any

import numpy as np

from mapveil_client.two_operators.hpke import Cipher, public_of
from mapveil_client.two_operators.poplar1 import Poplar1
from mapveil_client.two_operators.prio3 import L1_BOUND_SUM, Prio3, Sharded
from mapveil_client.two_operators.sealed_report import HpkeConfig
from mapveil_client.two_operators.sharding import ReportRandomness, make_report, sharding_of
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


REPORTS = """
const { operatorsReport, readConfig } = await load("operators_report");
const { Randomness } = await load("randomness");
const { fromHex, hex } = await load("bytes");
const made = [];
for (const { depth, scale, task, configs, units, hour, tape } of given) {
  const bytes = fromHex(tape);
  let at = 0;
  const rng = new Randomness((part) => {
    part.set(bytes.subarray(at, at + part.length));
    at += part.length;
  });
  const question = { depth, scale, task: fromHex(task), operators: configs.map((each) => readConfig(fromHex(each))) };
  made.push(hex(await operatorsReport(question, units, hour, rng)));
}
console.log(JSON.stringify(made));
"""


def test_random_reports() -> None:
    drawn = np.random.default_rng(20)
    given: list[dict[str, Any]] = []
    expected = []
    for number in range(24):
        depth, scale = int(drawn.integers(0, 4)), (1, int(drawn.integers(2, 2000)))[number % 2]
        task, tape = drawn.bytes(32), drawn.bytes(16 + 128 + 64)
        sharding = sharding_of(depth, scale, task)
        contribution = drawn.multinomial(scale, np.full(sharding.sites, 1 / sharding.sites))
        if number % 5 == 0:
            contribution[:] = 0
        configs = (
            HpkeConfig(int(drawn.integers(256)), Cipher.AES_128_GCM, public_of(drawn.bytes(32))),
            HpkeConfig(int(drawn.integers(256)), Cipher.AES_128_GCM, public_of(drawn.bytes(32))),
        )
        hour = int(drawn.integers(0, 1 << 40))
        random = ReportRandomness(tape[:16], tape[16:144], (tape[144:176], tape[176:]))
        expected.append(make_report(sharding, contribution, configs, hour, random).encode().hex())
        units = [[int(site), int(contribution[site])] for site in np.flatnonzero(contribution)]
        record = {"depth": depth, "scale": scale, "task": task.hex(), "hour": hour, "tape": tape.hex()}
        given.append(record | {"configs": [each.encode().hex() for each in configs], "units": units})
    assert run_in_node(REPORTS, given) == expected
