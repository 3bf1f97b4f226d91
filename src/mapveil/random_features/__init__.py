"""Density from random Fourier features: each report is a projection, without a formal epsilon."""
