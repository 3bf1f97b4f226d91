"""Privatizers of signal measurements, one file each."""
