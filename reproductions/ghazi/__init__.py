"""Reproduction of Ghazi et al. (2023)."""
