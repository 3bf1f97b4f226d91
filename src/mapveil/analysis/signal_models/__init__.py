"""Models of signal strength over places: what the server makes of measurements, privatized or not."""
