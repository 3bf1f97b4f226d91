"""Maps in notebooks: the page in a frame without a file, and axes that show their picture."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import mapveil as mv
from mapveil.maps.density_map import DensityMap
from mapveil.pictures.page import page_html
from mapveil_client.errors import ParameterError


@pytest.fixture(scope="module")
def heat() -> DensityMap:
    city = mv.synthetic.city(users=300, seed=1)
    return mv.release(city, mv.Quadtree(city.region, depth=4), epsilon=1, account=None)


def test_the_page_is_framed_whole_and_no_file_is_left(
    heat: DensityMap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shown = heat.explore(height=400)
    framed = re.fullmatch(r'<iframe .*srcdoc="([^"]*)" sandbox="allow-scripts allow-downloads".*</iframe>',
                          shown._repr_html_(), flags=re.DOTALL)  # fmt: skip
    assert framed
    assert html.unescape(framed[1]) == page_html(heat)
    assert "height:400px" in shown._repr_html_()
    assert list(tmp_path.iterdir()) == []
    assert len(repr(shown)) < 120
    with pytest.raises(ParameterError, match="height must be from 200"):
        heat.explore(height=10)


def test_axes_of_their_own_are_shown_as_a_picture(heat: DensityMap) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    shown = heat.plot()
    assert shown._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    given = figures.Figure().add_subplot()
    assert heat.plot(given) is given
