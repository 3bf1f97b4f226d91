"""Simulations that only studies need: not installed."""
