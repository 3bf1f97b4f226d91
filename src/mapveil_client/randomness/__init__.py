"""Randomness: one keyed stream, and exact samplers on it."""
