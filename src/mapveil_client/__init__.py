"""The device: the only code that runs on a phone. It needs NumPy, cryptography and httpx, nothing else."""

from __future__ import annotations

__version__ = "0.1.0"
