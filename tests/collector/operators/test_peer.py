"""An unauthenticated answer, an oversized report and terms beyond the bounds do nothing that lasts."""

from __future__ import annotations

import dataclasses
import gzip
import json
from typing import Any

import httpx
import pytest

from mapveil.collector.operators.peer import HttpPeer, PeerUnavailable
from mapveil.collector.operators.peer_messages import AskedQuery
from mapveil.collector.operators.plan_answers import check_upload
from mapveil.collector.refusals import Invalid
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.two_operators.sealed_report import Report
from tests.collector.engine.conftest import ACTOR

from .pair import SHARED, reports_of, spec
from .test_attacks import request_of, task_of

REFUSAL = b'{"error": {"message": "no budget"}}'


@pytest.mark.parametrize(
    ("signed", "error"), [(409, PromiseError), (200, PeerUnavailable), (0, PeerUnavailable)]
)
def test_only_an_authenticated_refusal_ends_a_collection(signed: int, error: type[Exception]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        told = SHARED.answered(request.headers["authorization"], signed, REFUSAL)
        stream = httpx.ByteStream(REFUSAL)
        return httpx.Response(409, stream=stream, headers={"mapveil-peer": told} if signed else {})

    peer = HttpPeer("http://127.0.0.1:1", SHARED)
    peer._client = httpx.Client(base_url="http://127.0.0.1:1", transport=httpx.MockTransport(answer))
    with pytest.raises(error):
        peer.config()


def test_an_encapsulated_key_of_another_size_is_refused_at_upload(pair_of: Any) -> None:
    pair = pair_of()
    id = pair.open(devices=200)
    report = Report.decode(reports_of(pair.terms, [1])[0])
    leader, helper = report.shares
    grown = helper._replace(sealed=helper.sealed._replace(enc=bytes(65535)))
    with pytest.raises(Invalid, match="encapsulated key"):
        pair.send(id, [report._replace(shares=(leader, grown)).encode()])


def test_terms_whose_reports_exceed_the_uploads_bound_are_refused(pair_of: Any) -> None:
    pair = pair_of()
    pair.open(devices=200)
    size = len(reports_of(pair.terms, [1])[0])
    check_upload(pair.terms, size)
    with pytest.raises(InputError, match=f"{size} bytes and the service accepts {size - 1}"):
        check_upload(pair.terms, size - 1)


def test_the_helper_applies_its_own_bound_on_sites(pair_of: Any) -> None:
    pair = pair_of()
    task_of(pair)
    terms = dataclasses.replace(
        pair.terms, identifier="0" * 31 + "1", tiling={**pair.terms.tiling, "depth": 8}
    )
    with pytest.raises(InputError, match="65536 sites"):
        pair.helper.begin(terms.identifier, terms.encode())


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_an_answer_is_bounded_before_it_is_authenticated(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mapveil.collector.operators.peer._MOST_BYTES", 100)
    body = gzip.compress(bytes(1000)) if encoding == "gzip" else bytes(101)
    answer = httpx.Response(200, stream=httpx.ByteStream(body), headers={"content-encoding": encoding})
    peer = HttpPeer("http://127.0.0.1:1", SHARED)
    peer._client = httpx.Client(
        base_url="http://127.0.0.1:1", transport=httpx.MockTransport(lambda request: answer)
    )
    with pytest.raises(PeerUnavailable, match="compressed" if encoding == "gzip" else "exceeds 100 bytes"):
        peer.config()


@pytest.mark.parametrize("level", [[], [[1]]])
def test_a_query_of_no_groups_or_of_nested_lists_is_refused(level: list[Any]) -> None:
    nodes = {"kind": "nodes", "depth": 2, "level": level, "code": level}
    with pytest.raises(InputError):
        AskedQuery.decode(json.dumps({"purpose": "x", "encoding": nodes, "epsilon": "1"}).encode())


def test_edges_beyond_the_raster_are_refused() -> None:
    edges = [0, (1 << 63) - 1, -2, 4]
    blocks = {"kind": "blocks", "depth": 2, "rows": edges, "columns": [0, 4], "parts": [[1], [1], [1]]}
    with pytest.raises(InputError, match="rows"):
        AskedQuery.decode(json.dumps({"purpose": "x", "encoding": blocks, "epsilon": "1"}).encode())


@pytest.mark.parametrize("runs", [[[0, 1 << 62], [-(1 << 62), 16]], [[-1, 4]], [[0, 17]]])
def test_runs_beyond_the_raster_are_refused_where_differences_would_wrap(runs: list[Any]) -> None:
    levels = {"kind": "levels", "depth": 2, "levels": [1], "runs": runs}
    with pytest.raises(InputError, match="runs"):
        AskedQuery.decode(json.dumps({"purpose": "x", "encoding": levels, "epsilon": "1"}).encode())


def test_levels_that_no_tiling_has_are_refused() -> None:
    levels = {"kind": "levels", "depth": 31, "levels": [31, 31, 31], "runs": [[0, 1 << 62]]}
    with pytest.raises(InputError, match="those of a tiling"):
        AskedQuery.decode(json.dumps({"purpose": "x", "encoding": levels, "epsilon": "1"}).encode())


@pytest.mark.parametrize(
    ("encoding", "why"),
    [
        ({"kind": "levels", "levels": [1] * 65, "runs": [[0, 16]]}, "a site at most 64 times, got 65"),
        ({"kind": "sketch", "levels": [1], "width": 1 << 19, "rows": 1, "key": "k"}, "groups of sites, got"),
        ({"kind": "levels", "levels": [1] * (1 << 19), "runs": [[0, 16]]}, "bytes; expected at most 1048576"),
    ],
)
def test_a_query_that_would_take_too_much_memory_is_refused(encoding: dict[str, Any], why: str) -> None:
    query = {"purpose": "x", "encoding": {"depth": 2, **encoding}, "epsilon": "1"}
    with pytest.raises(InputError, match=why):
        AskedQuery.decode(json.dumps(query).encode())


def test_the_helper_bounds_the_reports_of_a_job(pair_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of()
    id = task_of(pair)
    _, request = request_of(pair.terms, pair.reports([1] * 17))
    monkeypatch.setattr("mapveil.collector.operators.verification._NUMBERS", 0)
    with pytest.raises(InputError, match="at most 16 reports, got 17"):
        pair.helper.job(id, 1, request)


def test_terms_whose_reports_cannot_be_sent_are_refused_at_creation(pair_of: Any) -> None:
    pair = pair_of()
    pair.leader._report_bytes = 100
    with pytest.raises(InputError, match="bytes and the service accepts 100"):
        pair.engine.create(spec(), ACTOR)
    assert pair.engine.collections() == []


@pytest.mark.parametrize(("method", "path"), [("PUT", "/v1/peer/a"), ("GET", "/v1/peer/b")])
def test_a_request_is_authenticated_before_its_body_is_read(method: str, path: str) -> None:
    digest = bytes(range(32))
    told = SHARED.authorization("PUT", "/v1/peer/a", digest)
    good = (method, path) == ("PUT", "/v1/peer/a")
    assert SHARED.body_digest(told, method, path) == (digest if good else None)
    assert SHARED.body_digest(told.replace("00", "01", 1), method, path) is None
    assert SHARED.body_digest(told[:-1], method, path) is None
