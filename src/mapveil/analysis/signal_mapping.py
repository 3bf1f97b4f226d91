"""A coverage map from a model of signal strength."""

from __future__ import annotations

from typing import Any

from mapveil.analysis.signal_models.model import SignalModel
from mapveil.geo.measurements import Measurements
from mapveil.geo.tiling import Tiling
from mapveil.maps.signal_map import SignalMap
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.randomness.random import Randomness


def map_signal(
    model: SignalModel,
    measurements: Measurements,
    tiling: Tiling,
    guarantee: Guarantee,
    *,
    reach_m: float | None = None,
    rng: Randomness | int | None = None,
    **about: Any,
) -> SignalMap:
    """Fit a model and predict at the centre of every cell. Run by: the server.

    The map's deviation is that of one new measurement in the cell, as the model has it; further features are at
    their mean.

    Parameters
    ----------
    model : SignalModel
        Which model, and its parameters.
    measurements : Measurements
        Rewritten or not.
    tiling : Tiling
        The cells; of a region on Earth.
    guarantee : Guarantee
        What was promised to those who measured.
    reach_m : float, optional
        Cells farther than this from every measurement are unknown, metres.
    rng : Randomness or int, optional
        The source of bits, where the model needs any.
    **about
        Further fields of :class:`~mapveil.maps.signal_map.SignalMap`.

    Raises
    ------
    InputError
        Too few measurements for the model.
    MissingExtra
        The model's library is not installed.
    """
    fitted = model.fit(measurements, rng=rng)
    centres = tiling.centres()
    predicted = fitted.at(centres.lat, centres.lon)
    return SignalMap.from_prediction(
        predicted.mean_dbm,
        predicted.deviation_db,
        measurements,
        tiling,
        guarantee,
        model.name,
        reach_m=reach_m,
        **about,
    )
