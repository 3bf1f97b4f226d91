"""A simulated rush hour: fleets, congested worlds, and routes under exact and private traffic."""
