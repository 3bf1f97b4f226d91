"""Mechanisms over secure sums: nobody sees a location, the server sees noisy sums only."""
