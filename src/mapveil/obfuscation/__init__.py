"""Measurements privatized on the phone: a signal map without user traces."""
