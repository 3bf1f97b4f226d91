from __future__ import annotations

import contextlib
import errno
import gzip
import io
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from mapveil.collector.roles import Loop
from mapveil.collector.rounds.export_process import ExportProcess, Made
from mapveil.collector.store.schema import work
from mapveil.formats.read_map import read_map
from mapveil.pictures.scene_record import scene_record
from mapveil.retrieval.map_records import MapRecords
from mapveil.retrieval.pir_client import Client
from mapveil_client.local.message import write_reports
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms

from ..faults.scene import until

PEOPLE = 12


def finished(api: Any) -> str:
    """A local collection that is done: everybody in the first two cells."""
    collection = api.opened(devices=PEOPLE, minimum=3, title="Finished")
    terms = CollectionTerms.decode(api.engine.devices.terms(collection))
    randomizer = terms.randomizer
    reports = write_reports(randomizer.randomize(np.arange(PEOPLE) % 2, Randomness(3)), randomizer)
    for phone, report in zip(api.phones(PEOPLE), reports, strict=True):
        answer = phone.ask("PUT", f"/v1/collections/{collection}/report", bytes(report))
        assert answer.status_code == 204
    api.tick(3)
    assert api.engine.collection(collection)["state"] == "done"
    return collection


@contextlib.contextmanager
def exporting(api: Any) -> Iterator[None]:
    """A worker that makes files, here and now."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.01):
            api.engine.loops._act(Loop.EXPORTS)

    working = threading.Thread(target=work)
    working.start()
    yield
    over.set()
    working.join()


def test_there_is_no_map_before_the_end(api: Any) -> None:
    at = f"/v1/collections/{api.opened()}"
    for path in ("map", "map/exports/png", "guarantee"):
        refused = api.ask("GET", f"{at}/{path}")
        assert refused.status_code == 404, path
        assert "this collection is open and has no map yet" in refused.text
    for path in ("offer", "hint/0"):
        assert api.ask("GET", f"{at}/retrieval/{path}").status_code == 404, path
    assert api.ask("POST", f"{at}/abort", json={"reason": "no longer wanted"}).status_code == 200
    message = api.ask("GET", f"{at}/map").json()["error"]["message"]
    assert message == "this collection is aborted and has no map"
    message = api.ask("GET", f"/v1/collections/{'0' * 32}/map").json()["error"]["message"]
    assert message == "there is no such collection"


def test_the_map_and_everything_made_of_it(api: Any, tmp_path: Path) -> None:
    collection = finished(api)
    heat = api.engine.map(collection)
    at = f"/v1/collections/{collection}"

    record = api.ask("GET", f"{at}/map", "viewer")
    assert record.headers["cache-control"] == "no-store"
    told = record.json()
    assert told == scene_record(heat)
    assert told["metadata"]["guarantee"] == json.loads(json.dumps(heat.guarantee.to_dict()))
    guarantee = api.ask("GET", f"{at}/guarantee", "viewer").json()
    assert guarantee == {"in_words": heat.guarantee.in_words(), "guarantee": told["metadata"]["guarantee"]}
    with exporting(api):
        _check_exports(api, f"{at}/map/exports", heat, tmp_path)
    _check_compression(api, f"{at}/map")


def _check_exports(api: Any, at: str, heat: Any, tmp_path: Path) -> None:
    suffixes = {
        "geotiff": ".tif",
        "geoparquet": ".parquet",
        "geojson": ".geojson",
        "png": ".png",
        "html": ".html",
    }
    for name, suffix in suffixes.items():
        answer = api.ask("GET", f"{at}/{name}", "viewer")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-disposition"].startswith('attachment; filename="mapveil-')
        assert answer.headers["content-disposition"].endswith(f'{suffix}"')
        path = tmp_path / f"map{suffix}"
        path.write_bytes(answer.content)
        if suffix in (".tif", ".parquet"):
            assert read_map(path).values == pytest.approx(heat.values, rel=1e-6, abs=1e-9)
    features = json.loads((tmp_path / "map.geojson").read_bytes())["features"]
    assert [each["properties"]["users"] for each in features] == pytest.approx(heat.values)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert b"<html" in (tmp_path / "map.html").read_bytes()
    assert api.ask("GET", f"{at}/shapefile", "viewer").status_code == 422


def test_a_file_that_cannot_be_made_is_refused_and_may_be_asked_for_again(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = f"/v1/collections/{finished(api)}/map/exports/png"
    told = Made(503, "matplotlib is not installed")
    with monkeypatch.context() as patch, exporting(api):
        patch.setattr(ExportProcess, "make", lambda *_: told)
        answer = api.ask("GET", at)
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, told.message)
    with exporting(api):
        assert api.ask("GET", at).status_code == 200


def test_whoever_asks_is_told_that_the_folder_of_files_is_full(
    api: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at = f"/v1/collections/{finished(api)}/map/exports/png"

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, exporting(api):
        patch.setattr("mapveil.collector.store.export_files.shutil.copyfile", full)
        answer = api.ask("GET", at)
    assert answer.status_code == 503
    assert "place of exported files cannot be" in answer.json()["error"]["message"]
    assert "No space left" in caplog.text
    with exporting(api):
        assert api.ask("GET", at).status_code == 200


def test_many_files_in_the_making_keep_nobody_from_an_answer(api_with: Any) -> None:
    api = api_with(threads=2)
    at = f"/v1/collections/{finished(api)}/map/exports"
    with ThreadPoolExecutor(12) as viewers:
        asked = [viewers.submit(api.ask, "GET", f"{at}/geojson", "viewer") for _ in range(12)]
        # Nobody makes them yet.
        until(lambda: api.engine.export(at.split("/")[3], "geojson") is None, "the file is ordered")
        assert api.ask("GET", "/v1/me").status_code == 200
        assert not any(each.done() for each in asked)
        with exporting(api):
            answers = [each.result() for each in asked]
    assert {each.status_code for each in answers} == {200}
    assert len({each.content for each in answers}) == 1


def test_a_token_waits_for_so_many_files_at_once_and_another_waits_beside_it(api_with: Any) -> None:
    api = api_with(work_at_once=2)
    collection = finished(api)
    at = f"/v1/collections/{collection}/map/exports"
    with ThreadPoolExecutor(3) as viewers:
        forms = ("png", "geojson")
        waiting = [viewers.submit(api.ask, "GET", f"{at}/{form}", "viewer") for form in forms]
        until(lambda: all(ordered(api, collection, form) for form in forms), "both are waited for")
        refused = api.ask("GET", f"{at}/html", "viewer")
        assert refused.status_code == 429
        assert "2 files and maps, as many as it may at once" in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
        other = viewers.submit(api.ask, "GET", f"{at}/html", "operator")
        with exporting(api):
            assert [each.result().status_code for each in (*waiting, other)] == [200, 200, 200]
    assert api.ask("GET", f"{at}/html", "viewer").status_code == 200


def test_a_token_has_so_many_files_made_in_an_hour_and_reads_made_ones_for_nothing(api_with: Any) -> None:
    api = api_with(work_hour=2)
    at = f"/v1/collections/{finished(api)}/map"
    with exporting(api):
        assert api.ask("GET", f"{at}/exports/png", "viewer").status_code == 200
        assert api.ask("GET", at, "viewer").status_code == 200
        for _ in range(3):
            assert api.ask("GET", f"{at}/exports/png", "viewer").status_code == 200
            assert api.ask("GET", at, "viewer").status_code == 200
        refused = api.ask("GET", f"{at}/exports/html", "viewer")
        assert refused.status_code == 429
        assert "ordered 2 files and maps within the hour" in refused.json()["error"]["message"]
        assert 1700 <= int(refused.headers["retry-after"]) <= 1800
        assert api.ask("GET", f"{at}/exports/html", "operator").status_code == 200
        offer = f"{at.removesuffix('/map')}/retrieval/offer"
        assert api.ask("GET", offer, "viewer").status_code == 429
        (phone,) = api.phones(1, seed=9)
        assert phone.ask("GET", offer).status_code == 200  # a device has no such limit
        assert api.ask("GET", offer, "viewer").status_code == 200


def ordered(api: Any, collection: str, form: str) -> bool:
    with api.store.read() as connection:
        found = connection.execute(select(work.c.name).where(work.c.collection == collection)).scalars()
        return form in set(found)


def _check_compression(api: Any, at: str) -> None:
    plain = api.ask("GET", at, "viewer", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    with api.client.stream(
        "GET", at, headers={"Authorization": f"Bearer {api.tokens['viewer']}", "Accept-Encoding": "gzip"}
    ) as squeezed:
        assert squeezed.headers["content-encoding"] == "gzip"
        assert squeezed.headers["vary"] == "Accept-Encoding"
        raw = b"".join(squeezed.iter_raw())
    assert gzip.GzipFile(fileobj=io.BytesIO(raw)).read() == plain.content


def test_a_device_retrieves_a_cell_without_saying_which(api: Any) -> None:
    collection = finished(api)
    heat = api.engine.map(collection)
    at = f"/v1/collections/{collection}/retrieval"
    (phone,) = api.phones(1, seed=9)
    offer = phone.ask("GET", f"{at}/offer")
    assert offer.status_code == 200
    client = Client(offer.content)
    parts = int(offer.headers["mapveil-parts"])
    for part in range(parts):
        client.receive_hint(phone.ask("GET", f"{at}/hint/{part}").content)
    assert client.missing_rows == 0
    assert phone.ask("GET", f"{at}/hint/{parts}").status_code == 404
    records = MapRecords.of(client.offer.about)
    for cell in (0, heat.tiling.size - 1):
        query = client.query(cell)
        answer = phone.ask("POST", f"{at}/query", query.message)
        assert answer.headers["content-type"] == "application/cbor"
        assert records.values(client.open(query.opening, answer.content))[0] == heat.values[cell]
    # An operator may ask too; nobody else, and nothing that is no query.
    message = client.query(0).message
    headers = {"Content-Type": "application/cbor"}
    assert api.ask("POST", f"{at}/query", "viewer", content=message, headers=headers).status_code == 200
    assert api.client.post(f"{at}/query", content=message, headers=headers).status_code == 401
    assert phone.ask("POST", f"{at}/query", message, {"body": b"other"}).status_code == 401
    assert phone.ask("POST", f"{at}/query", message[:-1]).status_code == 422
    assert phone.ask("POST", f"{at}/query", b"\x00").status_code == 422
    assert api.ask("POST", f"{at}/query", content=message).status_code == 415


def test_pages_are_held_to_their_own_scripts_and_hosts(api: Any) -> None:
    page = api.client.get("/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert page.headers["cache-control"] == "no-cache"
    script = api.client.get("/assets/viewer.js")
    assert script.headers["content-type"].startswith("text/javascript")
    cached = api.client.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert cached.status_code == 304
    for path in (
        "/../store.py",
        "/assets/%2e%2e/%2e%2e/store.py",
        "/nothing.js",
        "/assets/%00",
        "/a" * 2000,
    ):
        answer = api.client.get(path)
        assert answer.status_code == 404, path
        assert answer.json()["error"]["code"] == "not-found"
