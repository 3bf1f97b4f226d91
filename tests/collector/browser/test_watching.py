"""The watching of the browser tests itself: what they must notice, they notice."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("browser")

CHECKS = Path(__file__).with_name("page_checks.js").read_text(encoding="utf-8")
_PAGE = b"""<!doctype html><html lang="en"><title>t</title><script>%s</script>"""
_SCRIPTS = {
    "/silent": b"",
    "/error": b"console.error('oh')",
    "/exception": b"throw new Error('ah')",
    "/elsewhere": b"fetch('http://elsewhere.example/a', {mode: 'no-cors'}).catch(() => 0)",
    "/worker": b"new Worker(URL.createObjectURL(new Blob(["
    b"\"fetch('http://elsewhere.example/w').catch(() => 0)\"])))",
}


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = _PAGE % _SCRIPTS.get(self.path, b"")
        self.send_response(200 if self.path != "/broken" else 500)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/silent", None),
        ("/error", "console error: oh"),
        ("/exception", "exception: "),
        ("/broken", "500 from "),
        ("/elsewhere", "a request to http://elsewhere.example/a"),
        ("/worker", "to another host: GET http://elsewhere.example/w"),
    ],
)
def test_faults_of_a_page_are_noticed(
    address: str, watch: Callable[[str, str], Any], path: str, fault: str | None
) -> None:
    with watch(address, "watching") as watched:
        page = watched.open(path)
        for _ in range(3 if fault is None else 3000):
            page.wait_for_timeout(100)
            # What went elsewhere becomes a fault at the end.
            if watched.faults or watched.elsewhere.lines:
                break
    assert watched.requests[0] == address + path
    if fault is None:
        assert watched.faults == []
    else:
        assert any(said.startswith(fault) for said in watched.faults), watched.faults


def test_the_checks_of_a_page_find_what_they_are_for(address: str, watch: Callable[[str, str], Any]) -> None:
    with watch(address, "watching") as watched:
        page = watched.open("/silent")
        clean = "<h1 id='a'>One</h1><button>Go</button><label>Name <input></label>"
        page.evaluate("text => { document.body.innerHTML = text; }", clean)
        assert not any(page.evaluate(CHECKS).values())
        faulty = (
            "<h1 id='a'>One</h1><h1 id='a'>Two</h1><button></button><input placeholder='no name'>"
            "<p style='color: #999; background: #fff'>faint</p><div style='width: 9999px'>wide</div>"
            "<table style='border-spacing: 0'><tr><td style='height: 300px; padding: 0'>tall</table>"
        )
        page.evaluate("text => { document.body.innerHTML = text; }", faulty)
        found = page.evaluate(CHECKS)
    assert len(found.pop("nameless")) == 2
    assert found.pop("doubleIds") == ["a"]
    assert found.pop("faint") == ["2.85: faint"]
    assert len(found.pop("outside")) == 1
    assert found.pop("heads") == ["not one h1"]
    assert found.pop("tall") == ["300 px: tall"]
    assert found == {"language": []}
