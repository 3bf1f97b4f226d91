"""The scene of a density map that is drawn no finer than its noisy sums support."""

from __future__ import annotations

from typing import Final

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil.inference.supported_blocks import FALSE_RATE, Blocks
from mapveil.maps.measurement import INTERVAL_ALPHA
from mapveil.maps.scene import DrawnBlocks, Layer, Scene, Shading
from mapveil_client.arrays import FloatArray

NOTHING_TOLD: Final = "No part of this map can be told from zero: the noise is larger than the counts."
"""Words of a map without a supported block, instead of colours."""


ONE_BLOCK: Final = (
    "Measured in one block, which has one tone: where in the block its users were is not known."
)
"""Words of a series, or of a window of one, that was measured as a whole only."""

NOT_KNOWN: Final = "How certain each part of this map is is not known: no part of it was measured by itself."
"""Words of a map that is drawn although nothing of it can be tested."""


def with_blocks(scene: Scene, values: FloatArray, tiling: Tiling, blocks: Blocks, counted: str) -> Scene:
    """A scene of cells whose first layers show supported blocks: estimate, interval and significance.

    The estimate of a block is that of its cells, brought into the block's interval where it lies outside.

    Parameters
    ----------
    scene : Scene
        Scene of the cells, the density first.
    values : ndarray of float64, shape (cells,)
        Estimated users per cell.
    tiling : Tiling
        The cells.
    blocks : Blocks
        The supported blocks.
    counted : str
        A note on the users that one user counts as.
    """
    density = scene.layers[0]
    inside = blocks.of_cell >= 0
    member = blocks.of_cell[inside]
    area = tiling.area_m2() / (1e6 if tiling.region.georeferenced else 1.0)
    size = np.bincount(member, area[inside], minlength=blocks.size).astype(np.float64)
    summed = np.bincount(member, values[inside], minlength=blocks.size).astype(np.float64)
    users = np.clip(summed, blocks.lower, blocks.upper)

    def spread(of_block: FloatArray, *, per_area: bool = True) -> FloatArray:
        share = np.divide(of_block, size, out=np.zeros(blocks.size), where=size > 0) if per_area else of_block
        return np.append(share, np.nan)[blocks.of_cell]

    shown = spread(users)
    floor = float(np.nanmin(shown)) if blocks.size else 0.0
    shading = density.shading._replace(noise_floor=max(floor, 0.0))
    coverage = f"{100 * (1 - INTERVAL_ALPHA):g} %"
    ratio = np.divide(blocks.noisy, blocks.deviation, out=np.zeros(blocks.size), where=blocks.deviation > 0)
    half, unit = spread(blocks.upper - blocks.noisy), density.unit
    significance, its_title = spread(ratio, per_area=False), "noisy sum over the deviation of its noise"
    layers = (
        Layer("block_density", "estimate", unit, shown, shading),
        Layer("block_half_width", f"half the {coverage} interval", unit, half, shading),
        Layer("block_significance", its_title, "deviations", significance, Shading("linear")),
    )
    doubt = "Hatched: in each part, nobody or too few to tell"
    return scene._replace(
        layers=(
            *layers,
            density._replace(title="Density, model's estimate of every cell"),
            *scene.layers[1:],
        ),
        main=scene.main + len(layers),
        blocks=DrawnBlocks(
            blocks.of_cell, users, blocks.noisy, blocks.lower, blocks.upper, blocks.deviation, coverage, size
        ),
        doubt=doubt,
        reading=_caption(size, users.sum() / max(values.sum(), 1e-9), tiling.region.georeferenced, counted)
        if blocks.size
        else NOTHING_TOLD,
    )


def in_one_block(scene: Scene, values: FloatArray, tiling: Tiling, whole: Blocks, counted: str) -> Scene:
    """A scene without colours, of cells that were measured as a whole only: words say how many users are in them.

    One tone over the whole map would look like people everywhere. Arguments as :func:`with_blocks`.
    """
    none = np.zeros(0)
    empty = whole._replace(
        of_cell=np.full_like(whole.of_cell, -1), noisy=none, lower=none, upper=none, deviation=none
    )
    made = with_blocks(scene, values, tiling, empty, counted)
    if not whole.size:
        return made
    return made._replace(
        reading=f"This map was measured as a whole: {whole.lower[0]:,.0f} to {whole.upper[0]:,.0f} users, "
        f"{100 * (1 - INTERVAL_ALPHA):g} % interval. Where on the map they are is not known.",
        doubt="Hatched: where users are is not known",
    )


def scale_note(blocks: Blocks, tiling: Tiling) -> tuple[str, ...]:
    """A note on the widths of the supported blocks of a map of reports; none where no block's sum is known."""
    if not blocks.testable:
        return ()
    if not blocks.size:
        return ("no block of cells is above the noise floor: the noise is larger than the counts",)
    inside = blocks.of_cell >= 0
    size = np.bincount(blocks.of_cell[inside], (tiling.area_m2() / 1e6)[inside]).astype(np.float64)
    wide = _widths(size) if tiling.region.georeferenced else "of one or more cells"
    return (
        f"the blocks above the noise floor are {wide}; how users are spread within a block, or outside all, is the "
        "estimator's and not confirmed by the reports",
    )


def above_the_floor(scene: Scene, floor: float) -> Scene:
    """A scene of cells that shows those above the noise floor only, in the unit of its density."""
    density = scene.layers[0]
    shown = np.where(density.values > floor, density.values, np.nan)
    any_shown = bool(np.isfinite(shown).any())
    drawn = Layer("above_floor", "density above the noise floor", density.unit, shown, density.shading)
    return scene._replace(
        layers=(drawn, density._replace(title="Density, estimate of every cell"), *scene.layers[1:]),
        main=scene.main + 1,
        doubt="Hatched: below the noise floor",
        reading="" if any_shown else "No part of this map is above its noise floor.",
    )


def _caption(area: FloatArray, share: float, on_earth: bool, counted: str) -> str:
    """The picture in plain words: the areas of its blocks, and their share of the users."""
    sizes = f", {_widths(area)}" if on_earth and (area > 0).any() else ""
    some = (
        f"{area.size} coloured blocks of one or more measured cells{sizes}, hold"
        if area.size > 1
        else f"The coloured block{sizes}, holds"
    )
    percent = round(100 * min(max(share, 0.0), 1.0))
    rest = f"the other {100 - percent} % of the users: " if percent < 100 else ""
    return (
        f"{some} about {percent} % of the users; at most {100 * FALSE_RATE:g} % of such blocks are expected to be "
        f"empty. Hatched ground, also between coloured blocks, holds {rest}in each part nobody or too few users to "
        f"tell from nobody. {counted[:1].upper()}{counted[1:]}."
    )


def _widths(area: FloatArray) -> str:
    """The widths of squares of these areas, km², at least one above 0."""
    width = np.sqrt(area[area > 0])
    low, high = _length(width.min()), _length(width.max())
    return f"{low} wide" if low == high else f"{low} to {high} wide"


def _length(kilometres: float) -> str:
    """A length in two digits."""
    metres = float(f"{1000 * kilometres:.2g}")
    return f"{metres / 1000:,g} km" if metres >= 1000 else f"{metres:g} m"
