"""Collections and their rounds: created, started, closed phase by phase."""
