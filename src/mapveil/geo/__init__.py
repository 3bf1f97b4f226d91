"""Regions, points, counts, measurements, and the tilings that divide a region into cells."""
