"""The sign-off sheet says what the file states, and warns of what must not be published."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mapveil.maps.density_map import DensityMap
from mapveil.pictures.release_sheet import inspect
from mapveil.privacy.claim import AccountReference
from mapveil_client.errors import InputError

MakeMap = Callable[..., DensityMap]


def charged(heat: DensityMap, name: str) -> DensityMap:
    from fractions import Fraction

    account = AccountReference(("ab12",), name, Fraction(1, 2), Fraction(3, 2), Fraction(3))
    return replace(heat, guarantee=replace(heat.guarantee, account=account))


def test_it_shows_account_promise_assumptions_and_hash(make_map: MakeMap, tmp_path: Path) -> None:
    heat = charged(make_map("quadtree"), "check-ins 2026")
    heat.save(tmp_path / "map.parquet")
    sheet = inspect(tmp_path / "map.parquet")
    assert sheet.guarantee == heat.guarantee
    assert sheet.warnings == heat.guarantee.promise.warnings
    text = str(sheet)
    assumed = [words for name, words in heat.guarantee.promise.rows if name == "assumes"]
    assert assumed
    for part in (
        "check-ins 2026",
        "ab12",
        "spent before   0.5",
        "spent after    1.5",
        sheet.sha256,
        *assumed,
    ):
        assert part in text
    sheet.save(tmp_path / "sheet.html")
    page = (tmp_path / "sheet.html").read_text()
    assert "check-ins 2026" in page
    assert "Released by" in page


def test_it_warns_of_seeds_of_releases_without_account_and_of_edits(
    make_map: MakeMap, tmp_path: Path
) -> None:
    path = tmp_path / "map.geojson"
    make_map("quadtree", seeded=True).save(path)
    assert any(text.startswith("SEEDED") for text in inspect(path).warnings)
    make_map("quadtree").save(path)
    assert any(text.startswith("NOT ACCOUNTED") for text in inspect(path).warnings)
    charged(make_map("quadtree"), "shops").save(path)
    assert not inspect(path).warnings
    record = json.loads(path.read_text())
    record["mapveil"]["guarantee"]["epsilon"] = "1/100"
    path.write_text(json.dumps(record))
    assert inspect(path).warnings[0].startswith("EDITED")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("guarantee", None),
        ("guarantee", {}),
        ("tiling", 3),
        ("provenance", {"paths": 1}),
        ("notes", 5),
        ("parameters", []),
    ],
)
def test_a_broken_record_is_named(field: str, value: object, make_map: MakeMap, tmp_path: Path) -> None:
    path = tmp_path / "map.geojson"
    make_map("quadtree").save(path)
    record = json.loads(path.read_text())
    record["mapveil"][field] = value
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="metadata are not a map's"):
        inspect(path)


def test_another_suffix_of_the_sheet_is_refused(make_map: MakeMap, tmp_path: Path) -> None:
    make_map("quadtree").save(tmp_path / "map.csv")
    with pytest.raises(InputError, match=r"must be \.html"):
        inspect(tmp_path / "map.csv").save(tmp_path / "sheet.pdf")
