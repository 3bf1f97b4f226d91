"""Mechanisms: what every one shares, and the table of them all."""
