"""Files of fitted privatizers, and what runs one on a phone."""
