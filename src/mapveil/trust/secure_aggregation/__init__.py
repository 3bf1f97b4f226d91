"""Secure aggregation: one server, many clients, the noise in shares."""
