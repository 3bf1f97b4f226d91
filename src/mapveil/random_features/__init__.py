"""Density from random waves: each report is a projection, hidden among equivalent places, without a formal epsilon."""
