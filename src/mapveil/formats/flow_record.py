"""The noisy sums of flows as the text that their files carry, and flows back from their files."""

from __future__ import annotations

import base64
import io
import json
from fractions import Fraction
from typing import Any, Final

import numpy as np

from mapveil.formats.coded_arrays import BROKEN_ARCHIVE, rounding_step
from mapveil.maps.flow_sums import FlowSums
from mapveil.maps.measurement import Measurement
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.privacy.claim import read_exact
from mapveil_client.errors import InputError
from mapveil_client.morton import PrefixTree

SEPARATOR: Final = "."
"""Between the sums of all windows of a series together and those of each: no sign of base64."""


def flow_sums_text(sums: FlowSums) -> str:
    """Noisy sums as the base64 text of an npz, rounded as those of maps; sums by label keep every bit."""
    arrays: dict[str, Any] = {"place": sums.place, "level": sums.leaves.level, "code": sums.leaves.code}
    records = []
    for number, each in enumerate((*sums.blocks, *sums.margins)):
        step = 0.0 if isinstance(each, LabelMeasurement) else rounding_step(each.deviation())
        noisy = step * np.rint(each.noisy / step) if step else each.noisy
        arrays |= {f"{number}.groups": each.groups, f"{number}.noisy": noisy}
        if isinstance(each, LabelMeasurement):
            arrays[f"{number}.by_label"] = each.by_label
        records.append(
            {
                "epsilon": str(each.epsilon),
                "unit": each.unit,
                "terms": each.terms,
                "sensitivity": each.sensitivity,
            }
        )
    head = {"depth": sums.leaves.depth, "blocks": len(sums.blocks), "sums": records}
    packed = io.BytesIO()
    np.savez_compressed(packed, records=np.array(json.dumps(head)), **arrays)
    return base64.b64encode(packed.getvalue()).decode()


def flow_sums_of(text: str, zones: int) -> FlowSums | None:
    """The noisy sums that :func:`flow_sums_text` wrote, of so many zones; None for an empty text.

    Raises
    ------
    ValueError
        The text is no noisy sums of flows, or they do not fit the zones.
    """
    if not text:
        return None
    try:
        with np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False) as file:
            head = json.loads(str(file["records"]))
            leaves = PrefixTree.of_nodes(int(head["depth"]), file["level"], file["code"])
            place = np.asarray(file["place"], dtype=np.int64)
            made = [_measurement(file, number, record) for number, record in enumerate(head["sums"])]
            blocks, margins = made[: head["blocks"]], made[head["blocks"] :]
    except (*BROKEN_ARCHIVE, InputError) as error:
        raise ValueError(f"no noisy sums of flows ({type(error).__name__}: {error})") from error
    held = place[place >= 0]
    fits = (
        place.shape == (zones,)
        and held.size == np.unique(held).size
        and bool((held < 1 << leaves.depth).all())
    )
    fits = fits and len(blocks) > 0 and len(margins) in (0, 2)
    shapes = [(each, leaves.size) for each in blocks] + [(each, zones) for each in margins]
    for each, size in shapes:
        groups = each.groups
        fits = fits and groups.shape == (size,) and bool(((groups >= -1) & (groups < each.noisy.size)).all())
        fits = fits and bool(np.isfinite(each.noisy).all()) and each.epsilon > 0
        fits = fits and each.unit > 0 and 0 < each.terms < np.inf
        if isinstance(each, LabelMeasurement):
            fits = fits and each.by_label.ndim == 2 and each.by_label.shape[0] == each.noisy.size
            fits = fits and bool(np.isfinite(each.by_label).all())
    if not fits:
        raise ValueError("noisy sums of flows that do not fit the zones")
    return FlowSums(place, leaves, tuple(blocks), tuple(margins))


def _measurement(file: Any, number: int, record: dict[str, Any]) -> Measurement:
    groups, noisy = (file[f"{number}.{name}"] for name in ("groups", "noisy"))
    epsilon: Fraction = read_exact(record["epsilon"])
    unit, terms, sensitivity = int(record["unit"]), float(record["terms"]), record["sensitivity"]
    made = (
        np.asarray(groups, dtype=np.int64),
        np.asarray(noisy, dtype=np.float64),
        epsilon,
        unit,
        terms,
        sensitivity,
    )
    if f"{number}.by_label" not in file.files:
        return Measurement(*made)
    return LabelMeasurement(*made, by_label=np.asarray(file[f"{number}.by_label"], dtype=np.float64))
