"""The table of privatizers: adding one is adding a row."""

from __future__ import annotations

from typing import Final

from mapveil.obfuscation.privatizers.privatizer import Privatizer
from mapveil.registry import Row, find_row

_ROOM = "mapveil.obfuscation.privatizers"

PRIVATIZERS: Final[tuple[Row[Privatizer], ...]] = (
    Row("gaussian-noise", f"{_ROOM}.gaussian_noise:GaussianNoise"),
    Row("local-gaussian", f"{_ROOM}.local_gaussian:LocalGaussian"),
    Row("truncated-laplacian", f"{_ROOM}.truncated_laplacian:TruncatedLaplacian"),
    Row("gap", f"{_ROOM}.gap:Gap"),
    Row("codebook", f"{_ROOM}.codebook:Codebook"),
    Row("funnel", f"{_ROOM}.funnel:Funnel"),
)


def find_privatizer(name: str) -> Row[Privatizer]:
    """The row of a privatizer's name; raises :class:`~mapveil_client.errors.ParameterError` where there is none."""
    return find_row(PRIVATIZERS, name, "privatizer")
