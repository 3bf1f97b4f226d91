"""A real server, a real fleet and a real browser, for the tests of the pages.

Every page a test opens is watched: an error in its console, an exception of its scripts, an answer of 500 or a request
to any other host fails the test that caused it. Requests of workers are no events of a page, so what goes elsewhere is
caught by a proxy too: whatever is not for this machine ends there.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response

ROOT = Path(__file__).resolve().parents[3]
CHECKINS = ROOT / "examples" / "checkins_nyc.parquet"
REPORTS = 60
SCREENSHOTS = ROOT / "build" / "screenshots"
MAPVEIL = Path(sys.executable).with_name("mapveil")
# What would make chromium itself ask hosts of its maker; this list takes the place of Playwright's own.
SILENCED = (
    "AimEnabled",
    "AutofillServerCommunication",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "Translate",
)
# Nothing that calls home.
FLAGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    f"--disable-features={','.join(SILENCED)}",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_DRAWN = """() => new Promise((resolve) => {
  const after = (frames) => requestAnimationFrame(() => (frames ? after(frames - 1) : setTimeout(resolve, 50)));
  after(3);
})"""
_HERE_SCHEMES = ("data", "blob", "about")


@dataclass
class LiveCollector:
    """A ``mapveil serve`` process of its own, with an empty store."""

    address: str
    token: str
    log: Path
    client: httpx.Client

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Reply of the API to this operator."""
        answer = self.client.request(method, f"/v1{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def draft(self, **terms: Any) -> str:
        """The identifier of a new collection of a small city's region."""
        spec = {
            "region": [-74.03, 40.69, -73.90, 40.83],
            "tiling": "quadtree:5",
            "accept_custom_policy": True,
            **terms,
        }
        if terms["trust"] != "random-features":
            spec.setdefault("epsilon", "1")
        return str(self.ask("POST", "/collections", spec)["id"])

    def open(self, **terms: Any) -> str:
        """The identifier of a collection that devices may join."""
        identifier = self.draft(**terms)
        self.ask("POST", f"/collections/{identifier}/open")
        return identifier

    def enrolment(self, uses: int) -> str:
        """A token for so many new devices."""
        return str(self.ask("POST", "/enrolment-tokens", {"name": "test fleet", "uses": uses})["token"])

    def fleet(self, table: Path, identifier: str, token: str, *options: str) -> subprocess.Popen[str]:
        """A ``mapveil device --fleet`` process, on its way."""
        command = [MAPVEIL, "device", "--fleet", table, "--server", self.address, "--enrol", token]
        command += ["--collection", identifier, *options]
        return subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait(self, identifier: str, state: str, seconds: float = 120) -> dict[str, Any]:
        """The collection's record, once it is in a state."""
        until = time.monotonic() + seconds
        while True:
            record: dict[str, Any] = self.ask("GET", f"/collections/{identifier}")
            if record["state"] == state:
                return record
            assert record["state"] != "aborted", record["reason"]
            assert time.monotonic() < until, f"still {record['state']}: {record['progress']}"
            time.sleep(0.2)


@pytest.fixture(scope="session")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCollector]:
    with ExitStack() as stack:
        yield _served(stack, tmp_path_factory.mktemp("collector"))


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveCollector, LiveCollector]]:
    """The leader of two operators, and the helper, each a process of its own."""
    folder = tmp_path_factory.mktemp("operators")
    key = folder / "peer.key"
    key.touch(0o600)
    key.write_text("07" * 32)
    both = ("--peer-key", str(key), "--operator")
    with ExitStack() as stack:
        (folder / "helper").mkdir()
        helper = _served(stack, folder / "helper", *both, "helper")
        yield _served(stack, folder, *both, "leader", "--peer", helper.address), helper


@pytest.fixture(scope="module")
def leader(operators: tuple[LiveCollector, LiveCollector]) -> LiveCollector:
    return operators[0]


def _served(stack: ExitStack, folder: Path, *options: str) -> LiveCollector:
    """A service with a store and an operator, until the stack ends."""
    store, log = folder / "store.sqlite", folder / "log"
    made = subprocess.run(
        [MAPVEIL, "serve", "--store", store, "--new-operator", "admin:browser"],
        check=True,
        capture_output=True,
        text=True,
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, token = f"http://127.0.0.1:{port}", made.stdout.strip()
    lines = stack.enter_context(log.open("wb"))
    server = subprocess.Popen(
        [MAPVEIL, "serve", "--store", store, "--port", str(port), "--enrol-minute", "0", *options],
        stdout=lines,
        stderr=lines,
    )
    stack.callback(_end, server)
    client = stack.enter_context(
        httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60)
    )
    for _ in range(300):
        assert server.poll() is None, log.read_text(encoding="utf-8")
        try:
            if client.get("/healthz").is_success:
                break
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    else:
        pytest.fail(f"the server does not answer: {log.read_text(encoding='utf-8')}")
    return LiveCollector(address, token, log, client)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    assert server.wait(30) == 0, "the server did not end in good order"


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Tables of so many people of the example check-ins."""
    folder = tmp_path_factory.mktemp("people")

    def table_of(count: int) -> Path:
        path = folder / f"{count}.parquet"
        if not path.exists():
            table = pq.read_table(CHECKINS)
            users = table["user_id"].to_numpy()
            pq.write_table(table.filter(np.isin(users, np.unique(users)[:count])), path)
        return path

    return table_of


class Finished(NamedTuple):
    """Two collections that are done."""

    first: str
    second: str


@pytest.fixture(scope="session")
def finished(collector: LiveCollector, people: Callable[[int], Path]) -> Finished:
    """Two maps of randomized reports, of the same people at two budgets."""
    made = [
        collector.open(title=title, trust="local", epsilon=epsilon, devices=REPORTS, tiling="quadtree:4")
        for title, epsilon in (("First map", "1"), ("Second map", "2"))
    ]
    fleets = [collector.fleet(people(REPORTS), each, collector.enrolment(REPORTS)) for each in made]
    for fleet, identifier in zip(fleets, made, strict=True):
        _, said = fleet.communicate(timeout=240)
        assert fleet.returncode == 0, said
        collector.wait(identifier, "done")
    return Finished(*made)


# Of a module, not of the session: while Playwright is open this thread has a running event loop, and nobody else's
# asyncio.run works.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on this machine (Debian's package chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright to drive chromium with")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


class Elsewhere:
    """A proxy that leads nowhere, and keeps the first line of whatever came."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            with connection:
                line = connection.recv(4096).split(b"\r\n")[0].decode("latin-1")
                if line:
                    self.lines.append(line)

    def close(self) -> None:
        """End listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@dataclass
class Watched:
    """The pages of one test, and what went wrong in them."""

    browser: Browser
    address: str
    elsewhere: Elsewhere
    name: str
    tolerated: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def open(
        self,
        path: str = "/",
        *,
        width: int = 1400,
        height: int = 900,
        tolerated: Set[int] = frozenset(),
        **context: Any,
    ) -> Page:
        """A page in a fresh browser profile; ``context`` as Playwright's ``new_context`` takes it.

        Chromium writes an error into the console for each answer of 400 and more: those of ``tolerated`` are meant, and
        with 0 requests that reach nobody.
        """
        self.tolerated |= tolerated
        made = self.browser.new_context(
            viewport={"width": width, "height": height},
            proxy={"server": self.elsewhere.address, "bypass": "127.0.0.1"},
            accept_downloads=True,
            **context,
        )
        self.contexts.append(made)
        made.on("request", self._request)
        made.on("response", self._response)
        made.on("console", self._console)
        made.on("weberror", lambda error: self.faults.append(f"exception: {error.error}"))
        page = made.new_page()
        page.set_default_timeout(300_000)  # a busy machine is no fault of the page
        page.goto(self.address + path)
        return page

    def show(self, page: Page, scheme: Literal["light", "dark"], width: int) -> None:
        """Show a page in other colours at another width, and wait until it is drawn."""
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900 if width > 700 else 780})
        page.evaluate(_DRAWN)

    def shoot(self, page: Page, what: str) -> Path:
        """Keep a picture of the whole page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{self.name}-{what}.png"
        page.screenshot(path=path, full_page=True)
        return path

    def keep(self, path: Path, what: str) -> None:
        """Keep a picture that was downloaded."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, SCREENSHOTS / f"{self.name}-{what}.png")

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)
        scheme = urlsplit(request.url).scheme
        if scheme not in _HERE_SCHEMES and not request.url.startswith(self.address + "/"):
            self.faults.append(f"a request to {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 500:
            self.faults.append(f"{response.status} from {response.url}")

    def _console(self, message: ConsoleMessage) -> None:
        meant = any(
            ("net::ERR" if status == 0 else f"status of {status} ") in message.text
            for status in self.tolerated
        )
        if message.type in ("error", "warning") and not meant:
            self.faults.append(f"console {message.type}: {message.text} ({message.location})")


@pytest.fixture(scope="module")
def watch(browser: Browser) -> Callable[[str, str], AbstractContextManager[Watched]]:
    """A function that opens watched pages of an address, closes them, and adds requests elsewhere to their faults."""

    @contextmanager
    def watching(address: str, name: str) -> Iterator[Watched]:
        elsewhere = Elsewhere()
        watched = Watched(browser, address, elsewhere, name)
        try:
            yield watched
        finally:
            for context in watched.contexts:
                context.close()
            elsewhere.close()
        watched.faults += [f"to another host: {line}" for line in elsewhere.lines]

    return watching


@pytest.fixture
def pages(
    collector: LiveCollector,
    watch: Callable[[str, str], AbstractContextManager[Watched]],
    request: pytest.FixtureRequest,
) -> Iterator[Watched]:
    name = request.node.name.removeprefix("test_").partition("[")[0]
    with watch(collector.address, name.replace("_", "-")) as watched:
        yield watched
    assert watched.requests
    assert watched.faults == []
