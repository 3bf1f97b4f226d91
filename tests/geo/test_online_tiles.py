"""Addresses of online tiles: one host, three markers, and nothing that a page's policy could be widened by."""

from __future__ import annotations

import pytest

from mapveil.geo.online_tiles import parse_online_tiles
from mapveil_client.errors import InputError


def test_the_host_is_named() -> None:
    tiles = parse_online_tiles("https://Tile.OpenStreetMap.org/{z}/{x}/{y}.png")
    assert tiles.origin == "https://tile.openstreetmap.org"
    assert tiles.host == "tile.openstreetmap.org"
    assert tiles.credit == "© OpenStreetMap contributors"
    other = parse_online_tiles("https://maps.example:8443/t?z={z}&x={x}&y={y}&key=a-b")
    assert (other.origin, other.credit) == ("https://maps.example:8443", "tiles of maps.example:8443")


@pytest.mark.parametrize(
    "text",
    [
        "http://maps.example/{z}/{x}/{y}.png",
        "https://maps.example/{z}/{x}.png",
        "https://maps.example/{z}/{x}/{y}/{s}.png",
        "https://maps.example/{z}/{x}/{y}/{y}.png",
        "https://{z}.example/{x}/{y}.png",
        "https://a.example; script-src *:/{z}/{x}/{y}",
        "https://user@maps.example/{z}/{x}/{y}",
        'https://maps.example/{z}/{x}/{y}"',
        "https://maps.example/{z}/{x}/{y}\n",
        "javascript://maps.example/{z}/{x}/{y}",
        "",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no address of tiles"):
        parse_online_tiles(text)
