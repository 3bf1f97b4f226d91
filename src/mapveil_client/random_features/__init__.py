"""The client half of random Fourier features: a location becomes the phases of a few random frequencies."""
