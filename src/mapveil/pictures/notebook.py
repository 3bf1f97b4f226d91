"""Maps in notebooks: the interactive page in a frame."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, NamedTuple

from mapveil.pictures.page import page_html
from mapveil_client.errors import check

if TYPE_CHECKING:
    from mapveil.maps.released import ReleasedMap


class NotebookPage(NamedTuple):
    """A page that a notebook shows in a frame. No file is written, and the frame's scripts reach nothing outside it."""

    page: str  # HTML
    height: int  # pixels
    title: str

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="{html.escape(self.title)}" srcdoc="{html.escape(self.page)}" '
            'sandbox="allow-scripts allow-downloads" loading="lazy" '
            f'style="width:100%;height:{self.height}px;border:1px solid #d5d5db"></iframe>'
        )

    def __repr__(self) -> str:
        return f"NotebookPage({self.title}, {len(self.page):,} characters); to_html() writes it to a file"


def explore(released: ReleasedMap, *, height: int = 640) -> NotebookPage:
    """Show a map's interactive page in a notebook. Run by: anybody who holds the map.

    Parameters
    ----------
    released : ReleasedMap
        The map.
    height : int
        Height of the frame, pixels, from 200 to 4,000.

    Raises
    ------
    ParameterError
        The height is outside its range.
    """
    check(200 <= height <= 4000, "height", "from 200 to 4000 pixels", height)
    return NotebookPage(page_html(released), height, released.title or f"Map by {released.method}")
