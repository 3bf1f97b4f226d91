"""The log: one line for each request and each happening, as text or as JSON.

A line names the route, never the address that was asked for: no query, no body, no token, no signature, no network
address. Of an error of our own it says where it was raised, not what it said, for that might quote what was sent.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

from mapveil.collector.http.exchange import Exchange
from mapveil.collector.refusals import where_raised

_ACCESS: Final = logging.getLogger("mapveil.access")
_QUIET: Final = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio", "sqlalchemy")


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
        line = f"{moment} {record.levelname.lower():<7} {' '.join(record.getMessage().split())}"
        line += "".join(f" {name}={_word(value)}" for name, value in _details(record).items())
        return line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_details(record),
        }
        return json.dumps(line, ensure_ascii=True, default=str)


def _details(record: logging.LogRecord) -> dict[str, object]:
    """Fields of a line beside its message; an error by the place where it was raised."""
    error = record.exc_info[1] if record.exc_info else None
    return {**getattr(record, "details", {}), **({} if error is None else {"raised": where_raised(error)})}


def _word(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(mark in text for mark in ' "=\n') else text


def configure_logs(form: str, level: str, stream: TextIO | None = None) -> None:
    """Send the lines of this process from a level on to one stream (standard error), as ``text`` or ``json``."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("mapveil").setLevel(level.upper())
    for name in _QUIET:
        # uvicorn's own lines quote addresses; its warnings and errors are enough.
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").setLevel(logging.CRITICAL + 1)


def access_line(exchange: Exchange, method: str, status: int, seconds: float, sent: int) -> None:
    """Log a request that was answered; what devices ask with success, thousands of times a second, as ``debug``."""
    level = logging.DEBUG if exchange.routine and status < 400 else logging.INFO
    if not _ACCESS.isEnabledFor(level):
        return
    details = {
        "method": method,
        "route": exchange.route,
        "status": status,
        "ms": round(1000 * seconds, 1),
        "in": exchange.received,
        "out": sent,
        "id": exchange.id,
    }
    if exchange.who:
        details["who"] = exchange.who
    _ACCESS.log(level, "request", extra={"details": details})
