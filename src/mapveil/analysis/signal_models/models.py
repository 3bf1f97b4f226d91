"""The table of signal models: every one by name, for the command line.

Joining is adding a row.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from mapveil.analysis.signal_models.model import SignalModel
from mapveil_client.errors import ParameterError

SIGNAL_MODELS: Final[dict[str, str]] = {
    "linear": "mapveil.analysis.signal_models.linear:LinearSignal",
    "path-loss": "mapveil.analysis.signal_models.path_loss:PathLoss",
    "random-forest": "mapveil.analysis.signal_models.random_forest:ForestSignal",
    "kriging": "mapveil.analysis.signal_models.kriging:Kriging",
}
"""Where each model's class is, as ``module:class``."""


def signal_model(name: str, options: Mapping[str, Any] | None = None) -> SignalModel:
    """The model of a name, which looks at places alone unless an option says otherwise.

    Parameters
    ----------
    name : str
        A key of :data:`SIGNAL_MODELS`.
    options : mapping of str to any, optional
        Its parameters.

    Raises
    ------
    ParameterError
        No such model or option, or a value outside its range.

    Examples
    --------
    >>> signal_model("kriging", {"blocks": 500})
    Kriging(features=(), blocks=500)
    """
    if name not in SIGNAL_MODELS:
        raise ParameterError(f"model {name!r} is not known; accepted: {', '.join(SIGNAL_MODELS)}")
    module, _, attribute = SIGNAL_MODELS[name].partition(":")
    kind: type[SignalModel] = getattr(importlib.import_module(module), attribute)
    accepted = [item.name for item in fields(kind)]
    given = {"features": (), **(options or {})}
    unknown = [each for each in given if each not in accepted]
    if unknown:
        raise ParameterError(f"{name} has no option {unknown[0]!r}; accepted: {', '.join(accepted)}")
    try:
        return kind(**given)
    except TypeError as error:
        raise ParameterError(f"{name}: an option has the wrong kind of value ({error})") from None
