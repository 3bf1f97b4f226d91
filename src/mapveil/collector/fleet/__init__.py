"""A fleet of simulated devices that answers a collector."""
