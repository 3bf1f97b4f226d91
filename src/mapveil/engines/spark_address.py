"""Addresses of Spark Connect servers, which may hold a token: no message quotes what follows host and port."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from mapveil.engines.spark_errors import ClusterError

_PORT: Final = 15002  # of Spark Connect where a URL names none
_URL: Final = re.compile(r"sc://([^@/?#;]*@)?([\w.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?(/(;[^?#]*)?)?", re.ASCII)


def checked_address(url: str) -> tuple[str, int]:
    """Host and port of a URL that pyspark reads as it is meant.

    Raises
    ------
    ClusterError
        It is of another form, or leaves in doubt whether the connection is encrypted.
    """
    try:
        place = urlsplit(url)
        host, port = place.hostname, _PORT if place.port is None else place.port
    except ValueError:
        host, port = None, 0
    if not host or not port or not _URL.fullmatch(url):
        raise ClusterError(
            f"engine must be a Spark Connect server, sc://host or sc://host:{_PORT}, with any parameters after '/;'"
        )
    given = [each.partition("=")[::2] for each in place.path.split(";")[1:]]
    # Spark Connect passes a name over that it does not know: one that means encryption, or looks like use_ssl.
    encrypted = [
        (name, value.lower())
        for name, value in given
        if not name.isascii() or re.search("ssl|tls|secure|encrypt|https", name.lower())
    ]
    if encrypted and encrypted not in ([("use_ssl", "true")], [("use_ssl", "false")]):
        # Spark Connect takes whatever else for false, and sums would cross the network in the clear.
        raise ClusterError(
            f"engine {shown_address(url)}: expected use_ssl once, true or false, and no other parameter whose name "
            "speaks of encryption"
        )
    return host, port


def shown_address(url: str) -> str:
    """Host and port of a URL that was checked."""
    place = urlsplit(url)
    named = place.netloc.split("@")[-1]
    return named if place.port else f"{named.rstrip(':')}:{_PORT}"
