"""The one colour ramp and the one density scale of every picture and page.

Lightness falls evenly along the ramp (in Oklab, Ottosson 2020), so that equal steps of the scale
look equal, print in grey, and stay readable with any colour vision.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.maps.scene import Layer, ScaleKind, Scene
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.colors import Colormap, Normalize


_KINDS: Final = ("linear", "log")

_LIGHTNESS = (0.972, 0.245)
_HUE_DEGREES = (98.0, 292.0)
_CHROMA = ((0.0, 0.3, 0.5, 0.75, 1.0), (0.02, 0.088, 0.084, 0.096, 0.12))
_DECADES = 3
_FAINTEST = 1e-12  # users per km2; a map below it everywhere shows nothing
_ALIKE = 1.01  # ratio up to which values count as one; chosen, not measured

# Oklab to linear sRGB: Ottosson (2020), "A perceptual color space for image processing".
_TO_LMS = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def ramp(steps: int = 256) -> npt.NDArray[np.uint8]:
    """The colours from nobody (paper) to the densest (ink), sRGB, shape (steps, 3), at least two."""
    check(steps >= 2, "steps", "at least 2", steps)
    part = np.linspace(0.0, 1.0, steps)
    lightness = _LIGHTNESS[0] + (_LIGHTNESS[1] - _LIGHTNESS[0]) * part
    hue = np.radians(_HUE_DEGREES[0] + (_HUE_DEGREES[1] - _HUE_DEGREES[0]) * part)
    chroma = np.interp(part, *_CHROMA)
    oklab = np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], axis=1)
    linear = np.clip((oklab @ _TO_LMS.T) ** 3 @ _TO_RGB.T, 0.0, 1.0)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.asarray(np.rint(encoded * 255), dtype=np.uint8)


def colormap(first: float = 0.0) -> Colormap:
    """The ramp without its fraction ``first`` as a matplotlib colour map, NaN transparent; needs the extra ``viz``."""
    made: Colormap = require("matplotlib.colors", "viz").ListedColormap(ramp()[int(first * 256) :] / 255.0)
    return made


class DensityScale(NamedTuple):
    r"""A map from densities to the colour ramp.

    .. math:: f(d) = (d - l) / (m - l) \quad\text{(linear)}, \qquad
              f(d) = \frac{\log(1 + d / k)}{\log(1 + m / k)} \quad\text{(log)}

    where: :math:`m` is ``top``, :math:`k` is ``knee``, both users per km², and :math:`l` is ``low``; below the knee
    the log scale is nearly linear, so zero has a colour. Densities below ``low`` count as ``low``. ``alone`` says that
    the densities above 0 are nearly one, which has a tone of the middle.
    """

    kind: ScaleKind
    top: float
    knee: float
    low: float = 0.0
    alone: bool = False

    def fraction(self, density: npt.ArrayLike) -> FloatArray:
        """Positions of densities (users per km²) on the ramp, not clipped above 1."""
        kept = np.maximum(np.asarray(density, dtype=np.float64), self.low)
        if self.kind == "linear":
            return np.asarray((kept - self.low) / (self.top - self.low))
        return np.asarray(np.log1p(kept / self.knee) / math.log1p(self.top / self.knee))

    def density(self, fraction: npt.ArrayLike) -> FloatArray:
        """Densities (users per km²) at positions on the ramp: the inverse of :meth:`fraction`."""
        part = np.asarray(fraction, dtype=np.float64)
        if self.kind == "linear":
            return np.asarray(self.low + part * (self.top - self.low))
        return np.asarray(np.expm1(part * math.log1p(self.top / self.knee)) * self.knee)

    def ticks(self) -> FloatArray:
        """Round values to write beside the ramp, from zero (or ``low``) up."""
        if self.low:
            step = max(round_down((self.top - self.low) / 3), 1.0)
            return np.arange(math.ceil(self.low / step) * step, self.top + 1e-9, step)
        decades = self.knee * 10.0 ** np.arange(0, _DECADES + 2)
        decades = decades[decades <= self.top * (1 + 1e-9)]
        # A scale of less than a decade is nearly linear.
        if self.kind == "linear" or decades.size < 2:
            return np.arange(0.0, self.top * (1 + 1e-9), round_down(self.top / 4))
        return np.concatenate([[0.0], decades])

    def norm(self) -> Normalize:
        """The scale as a matplotlib norm, clipped at its ends; needs the extra ``viz``."""
        make = require("matplotlib.colors", "viz").FuncNorm
        made: Normalize = make((self.fraction, self.density), vmin=self.low, vmax=self.top, clip=True)
        return made


def density_scale(
    densities: FloatArray, kind: ScaleKind = "log", *, noise_floor: float = 0.0
) -> DensityScale:
    """Choose the scale for a map's densities, three decades deep or down to the noise floor.

    Its top is the largest density, or twice a density that is alone beside zero: the darkest tone would say that it is
    dense, compared with nothing.

    Densities that are not finite are left aside; ``noise_floor`` is in users per km².

    Examples
    --------
    >>> density_scale(np.array([0.0, 5.0, 20000.0])).ticks().tolist()
    [0.0, 10.0, 100.0, 1000.0, 10000.0]
    """
    check(kind in _KINDS, "scale", f"one of {', '.join(_KINDS)}", kind)
    finite = densities[np.isfinite(densities)]
    top = float(finite.max()) if finite.size else 0.0
    if top < _FAINTEST:
        top = 1.0
    knee = 10.0 ** (math.floor(math.log10(top)) - _DECADES)
    floor = 10.0 ** math.ceil(math.log10(noise_floor)) if noise_floor > 0 else 0.0
    told = finite[finite >= _FAINTEST]
    alone = bool(told.size) and bool(told.max() <= _ALIKE * told.min())
    if alone:
        top *= 2
        knee = top
    return DensityScale(kind, top, max(knee, floor), alone=alone)


def layer_scale(layer: Layer) -> DensityScale:
    """The scale of a layer's colours, as its shading has it."""
    shading = layer.shading
    if shading.top is not None:
        return DensityScale(shading.kind, shading.top, 1.0, shading.low)
    return density_scale(layer.values, shading.kind, noise_floor=shading.noise_floor)


def scene_scale(scene: Scene) -> DensityScale:
    """The one scale of a scene's first layer and of its dots."""
    layer = scene.layers[0]
    if scene.dots is None:
        return layer_scale(layer)
    return layer_scale(layer._replace(values=np.concatenate([layer.values, scene.dots])))


def shared_scale(layers: Sequence[Layer]) -> DensityScale:
    """The one scale of several layers of a kind: down to the smallest noise floor that one of them has."""
    floors = [each.shading.noise_floor for each in layers if each.shading.noise_floor > 0]
    shading = layers[0].shading._replace(noise_floor=min(floors, default=0.0))
    return layer_scale(
        layers[0]._replace(values=np.concatenate([each.values for each in layers]), shading=shading)
    )


def round_down(value: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is at most ``value``.

    Examples
    --------
    >>> round_down(0.3), round_down(999.0)
    (0.2, 500.0)
    """
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in (1.0, 2.0, 5.0) if step * power <= value * (1 + 1e-9))
