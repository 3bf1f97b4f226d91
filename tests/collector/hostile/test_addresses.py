"""Addresses that nobody asks for in good faith: no file but the page's own, no row but the one that is meant."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import pytest

from .addresses import shaped, snapshot
from .wire import raw

SQL: Final = (
    "' OR '1'='1",
    "1 OR 1=1",
    "1; DROP TABLE audit; --",
    "') UNION SELECT token_hash FROM operators --",
    '"; DELETE FROM charges; --',
    "1/**/OR/**/1=1",
    "%27%20OR%201=1",
    "admin'--",
    "\\'; SELECT 1; --",
    "1e1",
    "0x1",
    "-1",
    "+1",
    " 1",
    "1 ",
    "01",
    "\u0661",
    "9" * 30,
    "1" * 5000,
    "NULL",
    "nan",
    "1\x00",
    "1\n2",
)
TRICKS: Final = (
    *("/v1/../v1/me", "/v1/./me", "//v1/me", "/v1//me", "/v1/me/", "/v1/me/.", "/v1/me;a=b", "/V1/me", "/v1/me%20"),
    *("/v1/%6de", "/v1%2fme", "/v1/me%2f", "/v1/me%00", "/v1/me%0a", "/v1/me%0d%0aX: y", "/v1/me%23", "/v1/me%3fa"),
    *("/%00", "/%ff", "/%c0%ae%c0%ae/", "/%ed%a0%80", "/%", "/%zz", "/%2", "/\\..\\..\\etc\\passwd", "/?", "/??"),
    *("/../../../../etc/passwd", "/..%2f..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "/....//....//etc"),
    *("/assets/../../store.py", "/assets/%2e%2e/%2e%2e/store.py", "/assets/..%5c..%5cstore.py"),
    *("/device/../../engine.py", "/....//....//etc/passwd"),
    *("/assets/", "/assets", "/device", "/device/nothing", "/index.html/", "/index.html/x", "/file:///etc/passwd"),
    *("/etc/passwd", "/proc/self/environ", "/.git/config", "/.env", "/pyproject.toml", "/__init__.py", "/con", "/nul"),
    *("/" + "a" * 5000, "/" + "a/" * 4000, "/" + "%41" * 3000, "/" + "../" * 2000, "/v1/" + "collections/" * 800),
    *("http://elsewhere.example/v1/me", "//elsewhere.example/v1/me", "elsewhere.example:443", "*", "a", "?a=b", ""),
)  # fmt: skip
METHODS: Final = (
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "CONNECT",
    "PROPFIND",
    "get",
)


def asked(address: str, method: str, target: str, *headers: str) -> Any:
    lines = [f"{method} {target} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
    return raw(address, "\r\n".join(lines).encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("signed_in", [False, True])
def test_no_address_leads_out_of_the_page_or_into_an_error_of_ours(api: Any, signed_in: bool) -> None:
    headers = (f"Authorization: Bearer {api.tokens['admin']}",) if signed_in else ()
    before = snapshot(api.store)
    statuses = set()
    for target in TRICKS:
        reply = asked(api.address, "GET", target, *headers)
        statuses.add(reply.status)
        assert 200 <= reply.status < 500, (target[:80], reply)
        for leaked in (b"root:", b"PATH=", b"sqlalchemy", b"import ", b"[core]", b"[project]"):
            if b"text/javascript" not in reply.head.encode():
                assert leaked not in reply.body, target[:80]
        if reply.status >= 400:
            assert reply.code in ("not-found", "unauthorized", "malformed", "not-allowed", "invalid"), target[
                :80
            ]
        elif reply.status == 200 and b"</html>" not in reply.body:
            assert signed_in, target[:80]
            assert b'"role":"admin"' in reply.body, target[:80]
        assert api.tokens["admin"].encode() not in reply.body
    assert {200, 400, 404} <= statuses
    assert snapshot(api.store) == before
    assert api.client.get("/healthz").status_code == 200


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_answered_in_the_one_shape(api: Any, method: str) -> None:
    for target in (
        "/",
        "/v1/open",
        "/v1/me",
        "/v1/collections",
        "/healthz",
        "/assets/console.css",
        "/v1/nothing",
    ):
        reply = asked(api.address, method, target)
        assert 200 <= reply.status < 500, (method, target, reply)
        if method != "HEAD" and reply.status >= 400:
            assert reply.code in ("not-found", "unauthorized", "malformed", "not-allowed", "invalid"), reply
    assert api.client.get("/healthz").status_code == 200


def test_names_that_look_like_statements_are_names(api: Any) -> None:
    """In every variable part of every address, in the query, and in what is kept and given back."""
    collection = api.opened()
    routes = [
        route for route in api.client.get("/v1/openapi.json").json()["paths"].items() if "{" in route[0]
    ]
    before = snapshot(api.store)
    for value in SQL:
        for route, methods in routes:
            parts = route.replace("{id}", collection) if route.count("{") > 1 else route
            name = parts[parts.index("{") : parts.index("}") + 1]
            path = parts.replace(name, quote(value, safe=""))
            for other, right in (("{n}", "1"), ("{phase}", "keys"), ("{x}", "0"), ("{y}", "0")):
                path = path.replace(other, right)
            for method in methods:
                if method == "delete" and value in ("01", "+1", " 1", "1 "):
                    continue
                answer = api.ask(method.upper(), path)
                assert answer.status_code < 500, (method, path, answer.text)
                assert answer.status_code >= 400 or value.strip() in ("01", "+1", "1", "\u0661"), (
                    method,
                    path,
                )
    for value in SQL:
        for query in ({"after": value}, {"limit": value}, {"collection": value}, {value: value}):
            answer = api.ask("GET", "/v1/audit", params=query)
            assert answer.status_code in (200, 422), (query, answer.text)
    assert snapshot(api.store) == before
    kept = {}
    for value in SQL:
        answer = api.ask("POST", "/v1/enrolment-tokens", json={"name": value[:100]})
        assert answer.status_code in (201, 422)
        if answer.is_success:
            kept[answer.json()["id"]] = value[:100]
    listed = {each["id"]: each["name"] for each in api.ask("GET", "/v1/enrolment-tokens").json()}
    assert listed == kept
    assert len(kept) > 15
    for row in snapshot(api.store)["audit"]:
        assert "DROP" not in str(row)
    assert api.store.check().ok


def test_titles_that_look_like_markup_come_back_as_they_were(api: Any) -> None:
    """As JSON and under a policy that runs no script in the page; the page's own tests show them as text."""
    titles = [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        '"><svg onload=alert(1)>',
        "{{7*7}} ${7*7} #{7*7} <%= 7*7 %>",
        "javascript:alert(1)",
        "%s%s%n %d {0} {title!r}",
        "\u2028\u2029 \u202etxt.exe",
        "=cmd|' /C calc'!A0",
        "../../etc/passwd",
    ]
    for title in titles:
        answer = api.ask("POST", "/v1/collections", json=draft(title))
        if answer.status_code == 422:
            assert shaped(answer) == "invalid"
            assert not title.isprintable()
            continue
        assert answer.json()["title"] == title
        opened = api.ask("POST", f"/v1/collections/{answer.json()['id']}/open")
        assert opened.json()["title"] == title
    told = api.client.get("/v1/open")
    assert {each["title"] for each in told.json()} == {title for title in titles if title.isprintable()}
    assert told.headers["content-type"] == "application/json"
    assert told.headers["x-content-type-options"] == "nosniff"
    page = api.client.get("/")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]


def draft(title: str) -> dict[str, Any]:
    return {
        "title": title,
        "trust": "local",
        "epsilon": "1",
        "region": [-74.03, 40.69, -73.9, 40.83],
        "tiling": "quadtree:3",
        "devices": 20,
        "accept_custom_policy": True,
    }
