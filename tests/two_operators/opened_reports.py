"""Reports to two operators, opened with both private keys and verified: the sums that they make without noise."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from mapveil.two_operators.aggregation import HELPER, LEADER, Operator, verify_together
from mapveil.two_operators.sum_schemes import noisy_sums_of, scheme_of
from mapveil.two_operators.verification_messages import InputShares
from mapveil_client.two_operators.hpke import Cipher, public_of
from mapveil_client.two_operators.sealed_report import HpkeConfig, Report, open_share

PRIVATE = bytes([1]) * 32, bytes([2]) * 32
CONFIGS = tuple(HpkeConfig(7 + at, Cipher.AES_128_GCM, public_of(key)) for at, key in enumerate(PRIVATE))


def sums_of(depth: int, scale: int, task: bytes, bodies: Iterable[bytes]) -> list[int]:
    """Sums of the reports that both operators of :data:`CONFIGS` accept; all must be accepted."""
    scheme = scheme_of(depth, scale, task)
    operators = [Operator(scheme, each, task, bytes(32), Fraction(1), 1) for each in (LEADER, HELPER)]
    reports = [Report.decode(body) for body in bodies]
    for number, operator in enumerate(operators):
        operator.receive(
            InputShares(
                each.metadata.report_id,
                each.public,
                open_share(
                    task,
                    number,
                    CONFIGS[number],
                    PRIVATE[number],
                    each.metadata,
                    each.public,
                    each.shares[number],
                ),
            )
            for each in reports
        )
    verify_together(*operators)
    assert [each.accepted for each in operators] == [len(reports)] * 2
    shares = [np.frombuffer(each.standing.sums, dtype=np.uint8)[None] for each in operators]
    return noisy_sums_of(scheme, (shares[0], shares[1])).tolist()
