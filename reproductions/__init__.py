"""Reproductions of the papers' experiments: not installed, run by ``make reproduce PAPER=...``."""
