"""The address of online map tiles, which a page fetches where its reader looks; nothing else of Mapveil asks it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from mapveil_client.errors import InputError

_ADDRESS: Final = re.compile(
    r"(?P<origin>https://[a-z0-9.-]+(:\d{1,5})?|http://(127\.0\.0\.1|localhost)(:\d{1,5})?)/[\w./{}?=&%@~+-]*",
    re.IGNORECASE,
)
_MARKERS: Final = ("{z}", "{x}", "{y}")
_CREDITS: Final = {"openstreetmap.org": "© OpenStreetMap contributors"}


class OnlineTiles(NamedTuple):
    """Raster tiles of web mercator, 256 pixels wide."""

    template: str  # with {z}, {x} and {y}
    origin: str  # scheme, host and port

    @property
    def host(self) -> str:
        """The host that learns who looks at which part of the map."""
        return self.origin.partition("://")[2]

    @property
    def credit(self) -> str:
        """Whom to name beside the tiles: the source where it is known, or the host."""
        known = (
            text for name, text in _CREDITS.items() if self.host == name or self.host.endswith(f".{name}")
        )
        return next(known, f"tiles of {self.host}")


def parse_online_tiles(text: str) -> OnlineTiles:
    """Read the address of a tile server.

    Parameters
    ----------
    text : str
        An https address with {z}, {x} and {y}, such as ``https://tile.openstreetmap.org/{z}/{x}/{y}.png``. Plain http
        is for this machine only.

    Raises
    ------
    InputError
        Another scheme, no markers or further ones, or a character that an address does not need.
    """
    found = _ADDRESS.fullmatch(text)
    markers = re.findall(r"\{[^}]*\}", text)
    if found is None or sorted(markers) != sorted(_MARKERS) or re.sub(r"\{[xyz]\}", "", text).count("{"):
        raise InputError(
            f"{text[:200]!r} is no address of tiles: expected https with {{z}}, {{x}} and {{y}} once each, such as "
            "https://tile.openstreetmap.org/{z}/{x}/{y}.png"
        )
    return OnlineTiles(text, found["origin"].lower())
