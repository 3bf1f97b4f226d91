"""A collector for the page's own tests: the real terms, signatures and messages, answers that a test chooses."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mapveil as mv
from mapveil.collector.http.gate import PAGE_POLICY
from mapveil.geo.tiling import Tiling
from mapveil.random_features.map_points import map_points
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import write_query
from mapveil_client.secure_sum.keys import (
    enrolment_statement,
    read_authorization,
    request_statement,
    signed_by,
)
from mapveil_client.terms import CollectionTerms
from tests.authority import NAMED
from tests.two_operators.opened_reports import CONFIGS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

PAGE = Path(__file__).resolve().parents[3] / "src" / "mapveil" / "collector" / "device_page"
KINDS = {".html": "text/html; charset=utf-8", ".css": "text/css", ".mjs": "text/javascript"}
CITY = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TOKEN = "mve_" + "t" * 43


@dataclass
class FakeCollector:
    """What it offers, what it was sent, and what it answers to reports."""

    terms: list[CollectionTerms] = field(default_factory=list)
    swapped: dict[str, bytes] = field(default_factory=dict)  # other terms than announced
    reports: list[tuple[str, int, bytes]] = field(default_factory=list)
    answer: int = 204
    busy: int = 0  # reports that are refused for a second
    restarting: int = 0  # reports that a proxy before it answers instead
    keys: list[bytes] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    token: str = TOKEN
    address: str = ""

    def offer(self, method: str = "olh-h", epsilon: str | None = "1", **fields: Any) -> CollectionTerms:
        """Open a collection over New York; a local one unless its fields say otherwise."""
        number = len(self.terms) + 1
        known: dict[str, Any] = {
            "title": f"Where people wait for the bus, {number}",
            "trust": "local",
            "method": method,
            "epsilon": None if epsilon is None else Fraction(epsilon),
            "options": {},
            "tiling": mv.Quadtree(CITY, depth=7).to_dict(),
            "devices": 200,
            "minimum": 50,
        }
        known["authority"] = NAMED if fields.get("trust") == "distributed" else None
        made = CollectionTerms(identifier=f"{number:032x}", **(known | fields))
        self.terms.append(made)
        return made

    def offer_features(self, bandwidth: float = 120.0) -> CollectionTerms:
        """Open a projection over New York."""
        cells: Tiling = mv.Quadtree(CITY, depth=7)
        where = map_points(cells)
        query = Query((bandwidth, bandwidth), where.low, where.high, 1, "gaussian", where.grid, where.crs)
        return self.offer(
            "fourier-kde",
            None,
            trust="random-features",
            options={"bandwidth_m": bandwidth},
            query=write_query(query),
            title="Density of cyclists at noon",
        )

    def offer_operators(self, **fields: Any) -> CollectionTerms:
        """Open a collection of sums by two operators over New York."""
        options = {"minimum_batch": 50, **fields.pop("options", {})}
        return self.offer(
            "multiscale",
            trust="operators",
            active=False,
            operators=tuple(each.encode().hex() for each in CONFIGS),
            options=options,
            title="Where people cross the river",
            **fields,
        )

    def serve(self) -> ThreadingHTTPServer:
        """Serve on a free port, in the background."""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                return

            def do_GET(self) -> None:
                collector._get(self)

            def do_POST(self) -> None:
                collector._enrol(self)

            def do_PUT(self) -> None:
                collector._report(self)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, status: int, body: bytes, kind: str, wait_s: int = 0) -> None:
        handler.send_response(status)
        if wait_s:
            handler.send_header("Retry-After", str(wait_s))
        if status != 204:
            handler.send_header("Content-Type", kind)
            handler.send_header("Content-Length", str(len(body)))
        handler.send_header("Content-Security-Policy", PAGE_POLICY.decode())
        handler.end_headers()
        handler.wfile.write(body)

    def _json(self, handler: BaseHTTPRequestHandler, status: int, record: Any, wait_s: int = 0) -> None:
        self._send(handler, status, json.dumps(record).encode(), "application/json", wait_s)

    def _get(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path
        self.asked.append(path)
        of = {f"/v1/collections/{each.identifier}": each for each in self.terms}
        collection, _, part = path.rpartition("/")
        if path == "/v1/open":
            listed = [
                {"id": each.identifier, "trust": each.trust, "title": each.title, "terms": each.digest.hex()}
                for each in self.terms
            ]
            self._json(handler, 200, listed)
        elif part == "terms" and collection in of:
            body = self.swapped.get(of[collection].identifier, of[collection].encode())
            self._send(handler, 200, body, "application/json")
        elif part == "progress" and collection in of:
            record = {"state": "open", "open": True, "closes_in_s": 5000.0, "wanted": 200, "present": 43}
            self._json(handler, 200, record)
        else:
            name = "index.html" if path == "/device/" else path.removeprefix("/device/")
            file = PAGE / name
            if not re.fullmatch(r"[a-z0-9_]+\.[a-z]+", name) or not file.is_file():
                self._json(handler, 404, {"error": {"code": "not-found", "message": "no such page"}})
                return
            self._send(handler, 200, file.read_bytes(), KINDS[file.suffix])

    def _body(self, handler: BaseHTTPRequestHandler) -> bytes:
        return handler.rfile.read(int(handler.headers["Content-Length"]))

    def _enrol(self, handler: BaseHTTPRequestHandler) -> None:
        record = json.loads(self._body(handler))
        key = bytes.fromhex(record["public_key"])
        good = record["token"] == TOKEN and signed_by(
            key, bytes.fromhex(record["signature"]), enrolment_statement(TOKEN, key)
        )
        if not good:
            self._json(
                handler, 401, {"error": {"code": "unauthorized", "message": "no such enrolment token"}}
            )
            return
        self.keys.append(key)
        self._json(handler, 200, {"device": len(self.keys)})

    def _report(self, handler: BaseHTTPRequestHandler) -> None:
        body = self._body(handler)
        who = read_authorization(handler.headers["Authorization"])
        statement = request_statement("PUT", handler.path, body)
        if not signed_by(self.keys[who.device - 1], who.signature, statement):
            self._json(
                handler, 401, {"error": {"code": "unauthorized", "message": "the signature is not right"}}
            )
            return
        self.reports.append((handler.path.split("/")[3], who.device, body))
        if self.busy:
            self.busy -= 1
            self._json(handler, 503, {"error": {"code": "unavailable", "message": "busy"}}, wait_s=1)
        elif self.restarting:
            self.restarting -= 1
            self._send(handler, 502, b"<h1>Bad Gateway</h1>", "text/html")
        elif self.answer == 204:
            self._send(handler, 204, b"", "")
        else:
            self._json(handler, self.answer, {"error": {"code": "x", "message": "<b>not</b> this time"}})


@pytest.fixture
def collector() -> Iterator[FakeCollector]:
    """A collector that offers nothing yet."""
    made = FakeCollector()
    server = made.serve()
    made.address = f"http://127.0.0.1:{server.server_port}"
    yield made
    server.shutdown()
    server.server_close()


# Of a module, not of the session: while Playwright is open this thread has a running event loop, and nobody else's
# asyncio.run works.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's chromium, or a skip."""
    binary = shutil.which("chromium")
    if binary is None:
        reason = "chromium is not installed: the browser device's page cannot be opened"
        if "chromium" in os.environ.get("MAPVEIL_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=binary,
            args=["--no-sandbox", "--disable-background-networking", "--disable-component-update"],
        )
        yield browser
        browser.close()


@pytest.fixture
def phone(chromium: Browser, collector: FakeCollector) -> Iterator[Callable[..., BrowserContext]]:
    """Makes phones: contexts that fail the test for any error in the console, or any request elsewhere."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def watch(page: Page) -> None:
        page.on("console", lambda line: faults.append(line.text) if _fault(line.text, line.type) else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: faults.append(request.url) if _elsewhere(request) else None)

    def _elsewhere(request: Request) -> bool:
        return not request.url.startswith((collector.address, "data:"))

    def _fault(text: str, kind: str) -> bool:
        # A refusal that a test asks for is no fault of the page; the browser writes a line about it all the same.
        return kind in ("error", "warning") and not re.search(
            "responded with a status of (4..|50[023])", text
        )

    def make(**options: Any) -> BrowserContext:
        context = chromium.new_context(
            **({"viewport": {"width": 390, "height": 800}, "locale": "en-GB"} | options)
        )
        context.set_default_timeout(300_000)  # a busy machine is no fault of the page
        context.on("page", watch)
        contexts.append(context)
        return context

    yield make
    for context in contexts:
        context.close()
    assert not faults
