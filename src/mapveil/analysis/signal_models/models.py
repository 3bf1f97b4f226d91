"""The table of signal models: adding one is adding a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mapveil.analysis.signal_models.model import SignalModel
from mapveil.registry import Row, find_row

_ROOM = "mapveil.analysis.signal_models"

SIGNAL_MODELS: Final[tuple[Row[SignalModel], ...]] = (
    Row("linear", f"{_ROOM}.linear:LinearSignal"),
    Row("path-loss", f"{_ROOM}.path_loss:PathLoss"),
    Row("random-forest", f"{_ROOM}.random_forest:ForestSignal"),
    Row("kriging", f"{_ROOM}.kriging:Kriging"),
)


def signal_model(name: str, options: Mapping[str, Any] | None = None) -> SignalModel:
    """Make the model of a name, which looks at locations alone unless the option ``features`` says otherwise.

    Raises
    ------
    ParameterError
        No such model or option, or a value outside its range.

    Examples
    --------
    >>> signal_model("kriging", {"blocks": 500})
    Kriging(features=(), blocks=500)
    """
    return find_row(SIGNAL_MODELS, name, "signal model").make({"features": (), **(options or {})})
