"""Distances between maps."""
