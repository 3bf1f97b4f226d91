"""Calibration of randomizers to their epsilon."""
