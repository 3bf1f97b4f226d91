"""Reproduction of Bagdasaryan et al. (2022)."""
