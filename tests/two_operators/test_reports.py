"""Reports to two operators: the vectors, byte for byte; who can open them; and whatever is no report."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.two_operators.aggregation import HELPER, LEADER, Operator, verify_together
from mapveil.two_operators.sum_schemes import noisy_sums_of, scheme_of
from mapveil.two_operators.verification_messages import InputShares
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.two_operators.hpke import Cipher, Sealed, public_of, seal
from mapveil_client.two_operators.sealed_report import (
    HelperShare,
    HpkeConfig,
    Report,
    SealedShare,
    open_share,
)
from mapveil_client.two_operators.sharding import ReportRandomness, make_report, make_reports, sharding_of

from .make_report_vectors import FOLDER

CASES: list[dict[str, Any]] = json.loads((FOLDER / "reports.json").read_text())
SHORT = CASES[0]


def configs_of(case: dict[str, Any]) -> tuple[HpkeConfig, HpkeConfig]:
    leader, helper = (HpkeConfig.decode(bytes.fromhex(each)) for each in case["configs"])
    return leader, helper


def opened(case: dict[str, Any], report: Report, operator: int, task: bytes | None = None) -> bytes:
    key = bytes.fromhex(case["private_keys"][operator])
    share = report.shares[operator]
    given_task = bytes.fromhex(case["task"]) if task is None else task
    return open_share(
        given_task, operator, configs_of(case)[operator], key, report.metadata, report.public, share
    )


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_report_of_the_vectors_is_made_byte_for_byte_and_opens(case: dict[str, Any]) -> None:
    sharding = sharding_of(case["depth"], case["scale"], bytes.fromhex(case["task"]))
    contribution = np.zeros(sharding.sites, dtype=np.int64)
    for site, units in case["units"].items():
        contribution[int(site)] = units
    ephemerals = tuple(bytes.fromhex(each) for each in case["ephemerals"])
    drawn = ReportRandomness(
        bytes.fromhex(case["report_id"]), bytes.fromhex(case["randomness"]), (ephemerals[0], ephemerals[1])
    )
    report = make_report(sharding, contribution, configs_of(case), case["hour"], drawn)
    assert report.encode().hex() == case["report"]
    assert Report.decode(report.encode()) == report
    helper = HelperShare.of(report)
    assert HelperShare.decode(helper.encode()) == helper
    shares = [opened(case, report, operator) for operator in (LEADER, HELPER)]
    assert [len(share) for share in shares] == [sharding.sizes(operator)[1] for operator in (LEADER, HELPER)]


@pytest.mark.parametrize("case", [CASES[0], CASES[4]], ids=["path", "vector"])
def test_the_operators_accept_the_reports_of_the_vectors(case: dict[str, Any]) -> None:
    scheme = scheme_of(case["depth"], case["scale"], bytes.fromhex(case["task"]))
    report = Report.decode(bytes.fromhex(case["report"]))
    leader, helper = (
        Operator(scheme, number, scheme.collection, bytes(32), 1, 1) for number in (LEADER, HELPER)
    )
    for number, operator in enumerate((leader, helper)):
        operator.receive(
            [InputShares(report.metadata.report_id, report.public, opened(case, report, number))]
        )
    verify_together(leader, helper)
    assert (leader.accepted, helper.accepted) == (1, 1)
    shares = [scheme.field.encode(each._share[None]) for each in (leader, helper)]
    expected = np.zeros(scheme.sites, dtype=np.int64)
    for site, units in case["units"].items():
        expected[int(site)] = units
    assert noisy_sums_of(scheme, (shares[0], shares[1])).tolist() == expected.tolist()


def test_a_share_opens_for_its_operator_task_and_report_alone() -> None:
    report = Report.decode(bytes.fromhex(SHORT["report"]))
    crossed = report._replace(shares=report.shares[::-1])
    with pytest.raises(InputError, match="HPKE configuration"):
        opened(SHORT, crossed, LEADER)
    renumbered = tuple(
        SealedShare(config.number, share.sealed)
        for config, share in zip(configs_of(SHORT), crossed.shares, strict=True)
    )
    others = (
        report._replace(shares=(renumbered[0], renumbered[1])),
        report._replace(metadata=report.metadata._replace(time=report.metadata.time + 1)),
        report._replace(metadata=report.metadata._replace(report_id=bytes(16))),
        report._replace(public=report.public[:-1] + bytes([report.public[-1] ^ 1])),
    )
    for operator in (LEADER, HELPER):
        with pytest.raises(InputError, match="does not open"):
            opened(SHORT, report, operator, bytes(32))
        for other in others:
            with pytest.raises(InputError, match="does not open"):
                opened(SHORT, other, operator)


@pytest.mark.parametrize(
    ("plain", "why"),
    [(b"\0\4abcd", "extension"), (b"\0\0" + bytes(3), "ends after"), (b"\0\0\0\0\0\1xy", "after its end")],
)
def test_a_plaintext_that_is_no_input_share_is_refused(plain: bytes, why: str) -> None:
    task, key = bytes(32), bytes(range(32))
    config = HpkeConfig(7, Cipher.AES_128_GCM, public_of(key))
    report = Report.decode(bytes.fromhex(SHORT["report"]))
    aad = task + report.metadata.encode() + len(report.public).to_bytes(4, "big") + report.public
    sealed = seal(
        config.public_key, b"dap-16 input share\x01\x02", aad, plain, bytes(range(1, 33)), config.cipher
    )
    with pytest.raises(InputError, match=why):
        open_share(task, LEADER, config, key, report.metadata, report.public, SealedShare(7, sealed))


def test_a_report_cut_or_continued_anywhere_is_none() -> None:
    whole = bytes.fromhex(SHORT["report"])
    for size in range(len(whole)):
        with pytest.raises(InputError, match="ends after"):
            Report.decode(whole[:size])
    with pytest.raises(InputError, match="after its end"):
        Report.decode(whole + b"\0")
    extended = whole[:24] + b"\0\4" + b"\0\1\0\0" + whole[26:]
    with pytest.raises(InputError, match="extension"):
        Report.decode(extended)


@given(st.binary(max_size=200))
def test_bytes_are_a_report_with_one_encoding_or_none(data: bytes) -> None:
    for kind in (Report, HelperShare, HpkeConfig):
        try:
            made = kind.decode(data)
        except InputError:
            continue
        assert made.encode() == data


@pytest.mark.parametrize(("at", "value"), [(2, 0x10), (4, 2), (6, 2), (8, 31)])
def test_a_configuration_of_other_algorithms_is_refused(at: int, value: int) -> None:
    data = bytearray(configs_of(SHORT)[0].encode())
    data[at] = value
    with pytest.raises(InputError, match="configuration"):
        HpkeConfig.decode(bytes(data))


@pytest.mark.parametrize("size", [16, 31, 33])
def test_a_task_of_another_size_is_refused(size: int) -> None:
    for depth, scale in ((2, 1), (2, 3)):
        with pytest.raises(ParameterError, match="32 bytes"):
            sharding_of(depth, scale, bytes(size))


def test_a_vector_too_large_for_its_bound_is_refused_before_anything_is_sealed() -> None:
    sharding = sharding_of(1, 3, bytes(32))
    key = public_of(bytes(range(32)))
    config = HpkeConfig(1, Cipher.AES_128_GCM, key)
    drawn = ReportRandomness(bytes(16), bytes(sharding.randomness_bytes), (bytes(32), bytes(32)))
    with pytest.raises(InputError):
        make_report(sharding, np.array([4, 0, 0, 0]), (config, config), 1, drawn)


def test_the_sealed_bytes_are_those_of_the_ciphertext() -> None:
    share = SealedShare(5, Sealed(b"\1\2", b"\3"))
    assert share.encode().hex() == "05" + "0002" + "0102" + "00000001" + "03"


def test_reports_that_are_made_together_are_those_made_one_after_another() -> None:
    case = CASES[0]
    sharding, configs = sharding_of(1, 1, bytes.fromhex(case["task"])), configs_of(case)
    contributions = np.eye(5, 4, dtype=np.int64)  # the last is nowhere
    drawn = [ReportRandomness.draw(sharding, Randomness(seed)) for seed in range(5)]
    alone = [
        make_report(sharding, own, configs, 0, each) for own, each in zip(contributions, drawn, strict=True)
    ]
    assert make_reports(sharding, contributions, configs, 0, drawn) == alone
