"""Measurements rewritten on the phone: a signal map without user traces."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapveil.obfuscation.export.phone import read_phone_privatizer
    from mapveil.obfuscation.export.privatizer_file import read_privatizer
    from mapveil.obfuscation.privatizers.codebook import Codebook
    from mapveil.obfuscation.privatizers.funnel import Funnel
    from mapveil.obfuscation.privatizers.gap import Gap
    from mapveil.obfuscation.privatizers.gaussian_noise import GaussianNoise
    from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian
    from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer
    from mapveil.obfuscation.privatizers.truncated_laplacian import TruncatedLaplacian

__all__ = [
    "Codebook",
    "FittedPrivatizer",
    "Funnel",
    "Gap",
    "GaussianNoise",
    "LocalGaussian",
    "TruncatedLaplacian",
    "read_phone_privatizer",
    "read_privatizer",
]

_MODULES = {
    "Codebook": "privatizers.codebook",
    "FittedPrivatizer": "privatizers.privatizer",
    "Funnel": "privatizers.funnel",
    "Gap": "privatizers.gap",
    "GaussianNoise": "privatizers.gaussian_noise",
    "LocalGaussian": "privatizers.local_gaussian",
    "TruncatedLaplacian": "privatizers.truncated_laplacian",
    "read_phone_privatizer": "export.phone",
    "read_privatizer": "export.privatizer_file",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.obfuscation' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.obfuscation.{_MODULES[name]}"), name)
