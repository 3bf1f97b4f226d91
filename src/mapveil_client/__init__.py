"""The device: the only code that runs on a phone. It needs NumPy, cryptography and httpx, nothing else."""

__version__ = "0.1.0"
