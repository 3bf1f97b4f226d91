"""Local differential privacy: every report is randomized on the device, nobody is trusted with a place."""
