"""Measurements rewritten on the phone: a signal map without user traces."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapveil.obfuscation.codebook import Codebook
    from mapveil.obfuscation.fitted import FittedPrivatizer
    from mapveil.obfuscation.funnel import Funnel
    from mapveil.obfuscation.gap import Gap
    from mapveil.obfuscation.gaussian_noise import GaussianNoise
    from mapveil.obfuscation.local_gaussian import LocalGaussian
    from mapveil.obfuscation.phone import read_phone_privatizer
    from mapveil.obfuscation.privatizer_file import read_privatizer
    from mapveil.obfuscation.truncated_laplacian import TruncatedLaplacian

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
    "Codebook": "codebook",
    "FittedPrivatizer": "fitted",
    "Funnel": "funnel",
    "Gap": "gap",
    "GaussianNoise": "gaussian_noise",
    "LocalGaussian": "local_gaussian",
    "TruncatedLaplacian": "truncated_laplacian",
    "read_phone_privatizer": "phone",
    "read_privatizer": "privatizer_file",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.obfuscation' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.obfuscation.{_MODULES[name]}"), name)
