"""Write reference/collector-api.md from the collector's OpenAPI document and settings; a test checks it is current."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from mapveil.collector.clock import SystemClock
from mapveil.collector.http.asgi import create_app
from mapveil.collector.http.result_routes import MEDIA
from mapveil.collector.http.settings import SETTINGS
from mapveil.collector.refusals import CODES
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.rounds.export_process import SUFFIXES
from mapveil.collector.store.database import Store

PAGE = Path(__file__).parent / "reference" / "collector-api.md"
INTRODUCTION = """# The collector's API

Everything under `/v1`, as JSON but for files and protocol messages, which are canonical CBOR. A running
collector publishes the whole of it as OpenAPI 3.1 at `/v1/openapi.json`; schemathesis holds it to that in
`tests/collector/http/test_openapi.py`. No address accepts a location.

This page is made from that document and from the table of settings by `docs/make_collector_api.py`.

## Authentication

| client | authenticates by |
|---|---|
| operator | `Authorization: Bearer mvo_...`; a `viewer`, an `operator` or an `admin` may do what the ones before may |
| device | `Authorization: Mapveil-Device <id> <signature>`: Ed25519 over method, address with query, and body |
| anybody | nothing |

A device signs `"mapveil request 1"`, a zero byte, the method, a zero byte, the address, a zero byte, and the
SHA-256 of the body. There is no clock in it: an address names one collection, round and phase, and each takes
one message, so a replay repeats the request and changes nothing. A proxy in between must not rewrite
addresses.

A repeated message, report or membership is answered as the first time. Different bytes of the same device and phase
are refused (409), and so is everything that comes after its phase (410).
"""
ERRORS = """## Errors

One shape everywhere, whoever refuses, the protocol's own limits included:

```json
{"error": {"code": "conflict", "message": "the collection is open; expected a pending one",
           "expected": "a pending one"}}
```

`message` is one line for people, `code` a word for programs; `expected` names an input that would be accepted.
Answers of 429 and 503, which may come from any address, carry `Retry-After` in seconds. Every answer carries
`X-Request-Id`, which the collector's log repeats. An internal fault (500) reveals only that
number.
"""
SETTINGS_HEAD = """## Settings

An option of `mapveil serve` and a variable of the environment say the same; the option wins.
"""
_TAGS = {
    "collections": "Collections",
    "results": "Results",
    "retrieval": "Private retrieval",
    "devices": "Devices",
    "records": "Records",
    "accounts": "Accounts",
    "public": "The service",
}
_TEXTS = {
    "collections": "Creating, opening and ending collections.",
    "results": "Of a collection that is done. The scene is compressed for whoever accepts gzip.",
    "retrieval": "Any cell of a finished map, without revealing which to the collector: the messages of\n"
    "[`mapveil.retrieval`](../explanation/retrieval.md). The offer's header `Mapveil-Parts` says in how many parts\n"
    "the hint comes.",
    "devices": "Plain routes that take and give the messages of the protocols, unchanged. The header `Mapveil-Phase`\n"
    "of the server's message names its phase.",
    "records": "Charges of epsilon, and the audit log.",
    "accounts": "Tokens are shown once, when they are made; the collector keeps their SHA-256 only.",
    "public": "",
}


def document() -> dict[str, Any]:
    """The OpenAPI document of a collector."""
    with tempfile.TemporaryDirectory() as folder:
        clock = SystemClock()
        store = Store(f"{folder}/store.sqlite", clock=clock)
        store.create_tables()
        app = create_app(Engine(store, clock), store, conduct=False)
        found = asyncio.run(_published(app))
        store.close()
    return found


async def _published(app: Any) -> dict[str, Any]:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://collector") as client:
        made: dict[str, Any] = (await client.get("/v1/openapi.json")).json()
    return made


def page() -> str:
    """The page as Markdown."""
    made = document()
    parts = [INTRODUCTION]
    for tag, title in _TAGS.items():
        rows = [
            f"| `{method} {path}` | {_who(each)} | {each['summary']} | {_codes(each)} |"
            for method, path, each in _of(made, tag)
        ]
        text = f"{_TEXTS[tag]}\n\n" if _TEXTS[tag] else ""
        head = "| address | who | | answers |\n|---|---|---|---|\n"
        parts.append(f"## {title}\n\n{text}{head}" + "\n".join(rows) + "\n")
        if tag == "results":
            parts.append(_exports())
        if tag == "collections":
            parts.append(_specification(made["components"]["schemas"]["CollectionSpec"]))
    codes = "\n".join(f"| {status} | `{code}` |" for status, code in CODES.items())
    parts.append(f"{ERRORS}\n| status | code |\n|---|---|\n{codes}\n")
    rows = [
        f"| `{row.option}` | `{row.variable}` | {'' if row.default is None else f'`{row.default}`'} | {row.help} |"
        for row in SETTINGS
    ]
    head = "| option | variable | default | |\n|---|---|---|---|\n"
    parts.append(f"{SETTINGS_HEAD}\n{head}" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _exports() -> str:
    """The formats of a map's file, by their names in the address."""
    head = "`{form}` of `exports/{form}` is one of these; ID is the first 8 digits of the collection's.\n\n"
    head += "| `{form}` | file | media type |\n|---|---|---|\n"
    rows = (f"| `{name}` | `mapveil-ID{suffix}` | `{MEDIA[name]}` |" for name, suffix in SUFFIXES.items())
    return head + "\n".join(rows) + "\n"


def _of(made: dict[str, Any], tag: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            if operation["tags"] == [tag]:
                yield method.upper(), path, operation


def _who(operation: dict[str, Any]) -> str:
    asking = (
        role
        for each in operation.get("security", [])
        for name, roles in each.items()
        for role in roles or [name]
    )
    return " or ".join(asking) or "anybody"


def _codes(operation: dict[str, Any]) -> str:
    common = {"429", "500", "503"}
    return " ".join(status for status in operation["responses"] if status not in common)


def _specification(schema: dict[str, Any]) -> str:
    rows = []
    for name, field in schema["properties"].items():
        needed = "" if name in schema["required"] else "optional"
        rows.append(f"| `{name}` | {needed} | {field.get('description', '')} |")
    text = "### The specification of a collection\n\nNothing is converted, and nothing unknown is passed over.\n\n"
    return text + "| field | | |\n|---|---|---|\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE}\n")
