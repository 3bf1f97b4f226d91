"""Coverage maps from measurements of signal strength: means of cells, or a model's predictions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from mapveil.analysis.signal_models.signal_model import SignalModel, signal_model
from mapveil.geo.measurements import Measurements
from mapveil.geo.parse_tiling import parse_tiling
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.maps.provenance import Provenance
from mapveil.maps.signal_map import SignalMap
from mapveil.obfuscation.privatizers.average_case import average_case
from mapveil.obfuscation.privatizers.map_error import MapError
from mapveil.privacy.claim import Reveals
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

_MARGIN: Final = 0.05  # of the side of a box around reports: a tiling may keep only cells centred inside
_DEFAULT_CELLS: Final = "quadtree:7"
_UNDOCUMENTED: Final = (
    "Nothing documents these rows: if they were privatized, the intervals are not about the truth"
)


def signal_map(
    measurements: Measurements,
    tiling: Tiling | str | None = None,
    *,
    region: Region | None = None,
    guarantee: Guarantee | None = None,
    model: str | SignalModel = "cells",
    options: Mapping[str, Any] | None = None,
    least: int | None = None,
    reach_m: float | None = None,
    hole_dbm: float = -110.0,
    error: MapError | None = None,
    rng: Randomness | int | None = None,
) -> SignalMap:
    """Map signal strength from measurements, privatized or not. Run by: the server.

    Parameters
    ----------
    measurements : Measurements
        Locations and strengths.
    tiling : Tiling or str, optional
        The cells, or their specification in ``region``; ``"quadtree:7"`` by default.
    region : Region, optional
        The region of a specification; by default a box around the middle 99 % of the locations, where a
        ``guarantee`` covers them.
    guarantee : Guarantee, optional
        The guarantee the measurements were privatized under; without one the map says that none is documented.
    model : str or SignalModel
        ``"cells"``: the mean of each cell's measurements; or a model, or the name of one. A model predicts at the
        centres of the cells, with further features at their mean; its deviation is that of one new measurement.
    options : mapping, optional
        Parameters of a named model.
    least : int, optional
        For ``"cells"``: minimum number of measurements of a known cell, 1 by default.
    reach_m : float, optional
        For models: maximum distance of a known cell from a measurement, metres.
    hole_dbm : float
        A cell with a lower mean is a coverage hole, dBm.
    error : MapError, optional
        The error of a map of such reports, learnt on the pilot
        (:func:`~mapveil.obfuscation.privatized_file.privatized_map_error`): the deviations include it.
    rng : Randomness or int, optional
        The source of bits, where the model needs any.

    Raises
    ------
    ParameterError
        An option of the other kind of model, or one outside its range.
    InputError
        The measurements are too few, or the region would be taken from raw measurements.
    MissingExtra
        The model's library is not installed.
    """
    if isinstance(model, SignalModel):
        chosen: SignalModel | None = model
    else:
        chosen = None if model == "cells" else signal_model(model, options or {})
    for name, value, of_cells in (
        ("reach_m", reach_m, False),
        ("least", least, True),
        ("options", options, False),
    ):
        if value and ((chosen is None) != of_cells or (name == "options" and chosen is model)):
            raise ParameterError(
                f"{name} is for {'the model cells' if of_cells else 'other models'}; leave it out"
            )
    if tiling is None or isinstance(tiling, str):
        if region is None and guarantee is None:
            raise InputError(
                "region (--region) is required: it must not be taken from measurements that were not privatized"
            )
        tiling = parse_tiling(tiling or _DEFAULT_CELLS, region or _around(measurements))
    privatized = guarantee is not None or error is not None
    if guarantee is None:
        guarantee = average_case(Reveals.UNDOCUMENTED())
    if chosen is None:
        made = SignalMap.from_measurements(
            measurements, tiling, guarantee, least=1 if least is None else least, hole_dbm=hole_dbm
        )
    else:
        centres = tiling.centres()
        fitted = chosen.fit(measurements, rng=rng)
        predicted = fitted.at(centres.lat, centres.lon)
        made = SignalMap.from_prediction(
            predicted.mean_dbm,
            predicted.deviation_db * fitted.interval_factor(),
            measurements,
            tiling,
            guarantee,
            chosen.name,
            reach_m=reach_m,
            hole_dbm=hole_dbm,
            parameters={name: value for name, value in (options or {}).items() if value is not None},
        )
    made = with_map_error(made, error) if privatized else replace(made, notes=(*made.notes, _UNDOCUMENTED))
    if not made.measurements.any():
        raise InputError(
            f"no measurement lies in the region ({tiling.region}): give another region (--region W,S,E,N)"
        )
    columns = dict(zip(("lat", "lon", "rss"), measurements.names, strict=False))
    return replace(made, provenance=Provenance(function="signal map", columns=columns))


def with_map_error(made: SignalMap, error: MapError | None) -> SignalMap:
    r"""A map of privatized rows, whose deviations are of the truth and not of the reports. Run by: the server.

    .. math:: \sigma_c'^2 = \sigma_c^2 + v^2 \quad \text{(a mean of cell c)}, \qquad
              \sigma_c'^2 = \sigma_c^2 + \max\big(0,\ r^2 - \min_{c'} \sigma_{c'}^2\big)
              \quad \text{(one new measurement)}

    where: :math:`\sigma_c` is the deviation that the reports give, v and r are ``visit_db`` and ``row_db`` of
    ``error``. A model's least deviation, where reports are densest, is at least r, and grows from there as the model's.
    No hole of the map is told from covered ground: reports may have moved there.
    """
    notes = made.notes
    deviation = made.deviation_db
    if error is None:
        notes += (
            "The reports do not say how far privatizing moved the map: the intervals are about reports, not about the "
            "truth",
        )
    else:
        own = np.square(deviation)
        if made.deviation_of == SignalMap.deviation_of:
            deviation = np.sqrt(own + error.visit_db**2)
        elif made.known.any():
            deviation = np.sqrt(own + max(0.0, error.row_db**2 - float(np.nanmin(own))))
        notes += (
            "The intervals include what privatizing did, as it was measured on the pilot: "
            f"{error.row_db:.1f} dB for a measurement, between halves of its {error.split}",
        )
    return replace(made, deviation_db=deviation, notes=notes, holes_known=False)


def _around(measurements: Measurements) -> Region:
    """A box of the reported locations: reports are public, and a few may lie anywhere."""
    (south, west), (north, east) = np.quantile(measurements.rows[:, :2], [0.005, 0.995], axis=0)
    if not (south < north and west < east):
        raise InputError("region (--region) is required: all reports are at one location")
    across, up = _MARGIN * (east - west), _MARGIN * (north - south)
    box = (west - across, max(south - up, -90.0), east + across, min(north + up, 90.0))
    return Region.from_bbox(*map(float, box))
