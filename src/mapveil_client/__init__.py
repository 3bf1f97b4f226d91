"""The device: the only code that runs on a phone. It needs NumPy, cryptography and httpx, nothing else."""
