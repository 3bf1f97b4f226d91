"""The client half of local differential privacy: one report about one location, randomized on the device."""
