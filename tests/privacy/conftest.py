"""The fixtures of the samplers, for noise as well."""

from __future__ import annotations

from ..client.randomness.conftest import prescribed, units_of

__all__ = ["prescribed", "units_of"]
