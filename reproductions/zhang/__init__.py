"""Reproduction of Zhang et al. (2022)."""
