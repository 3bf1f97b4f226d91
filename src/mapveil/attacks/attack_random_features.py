"""Attack devices that report random Fourier features: one function for tables, rasters and released maps."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from mapveil.attacks.localisation import SCORED, LocalisationReport, Progress, localisation_report
from mapveil.attacks.localisation_scene import Scene, device_places, scene
from mapveil.attacks.localisation_score import PAPER_RATIO
from mapveil.geo.counts import Counts
from mapveil.geo.parse_tiling import tiling_for
from mapveil.geo.points import Points
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.methods import find_method
from mapveil.random_features.fourier_kde import FourierKde
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

METHOD: Final = "fourier-kde"


def attack_random_features(
    source: Points | Counts | DensityMap,
    tiling: Tiling | str | None = None,
    *,
    region: Region | None = None,
    places_are_public: bool = False,
    options: Mapping[str, Any] | None = None,
    prior: DensityMap | Counts | None = None,
    knows: str = "a population",
    features: Sequence[int] = (1, 2, 3),
    bandwidths: Sequence[float] = (),
    devices: int = 200,
    answers: int = 8,
    step_m: float | None = None,
    ratio: float = PAPER_RATIO,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[LocalisationReport, Scene]:
    """Locate devices that report random Fourier features, and measure the error. NOT private.

    Parameters
    ----------
    source : Points, Counts or DensityMap
        Locations of the devices; or a map that :class:`FourierKde` released, which brings tiling, region and options.
    tiling, region, places_are_public
        As for :func:`mapveil.mechanisms.release.release`.
    options : mapping, optional
        Parameters of :class:`FourierKde`.
    prior : DensityMap or Counts, optional
        Knowledge of a server: an external population or a private map; the density of these devices by default. Needed
        with a released map, whose devices are drawn from it: the map itself is no prior, as much of it is noise.
    knows : str
        A name for the prior.
    features, bandwidths, devices, answers, step_m, ratio, seed, progress
        See :func:`mapveil.attacks.localisation.localisation_report`.

    Returns
    -------
    LocalisationReport, Scene
        The figures, and the region they are about.

    Raises
    ------
    InputError
        The source, or a map of another method, cannot be used.
    """
    if isinstance(source, DensityMap):
        if tiling or region or options:
            raise ParameterError("a released map brings its own tiling, region and options; leave them out")
        mechanism = _mechanism_of(source)
        if prior is None:
            raise ParameterError(
                "prior (--prior) is required with a released map: an external population or a private map. Much of "
                "the released map is noise, and a server that takes it for people seems farther off than one is"
            )
        bandwidth, at = cast("float", mechanism.bandwidth_m), scene(source.tiling, None, prior, knows=knows)
    else:
        rng = Randomness(seed)
        mechanism = cast("FourierKde", find_method(METHOD, "random-features").make(None, options))
        cells = tiling_for(source, tiling, region, places_are_public=places_are_public)
        bandwidth = mechanism.chosen_bandwidth(source, cells, rng.child("bandwidth"))
        at = scene(cells, device_places(source, cells, SCORED, rng.child("devices")), prior, knows=knows)
    report = localisation_report(
        mechanism,
        bandwidth,
        at,
        features=features,
        bandwidths=bandwidths,
        devices=devices,
        answers=answers,
        step_m=step_m,
        ratio=ratio,
        seed=seed,
        progress=progress,
    )
    return report, at


def _mechanism_of(released: DensityMap) -> FourierKde:
    if released.method != METHOD:
        raise InputError(f"the map must be released by {METHOD}, got {released.method}")
    try:
        mechanism = FourierKde(**released.parameters)
    except TypeError as error:
        raise InputError(f"the map's parameters are of another version ({error})") from None
    if mechanism.bandwidth_m is None:
        raise InputError("the map does not record its bandwidth: it is of another version")
    return mechanism
