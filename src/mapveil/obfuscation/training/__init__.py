"""Training of privatizers on a pilot set."""
