"""Collections and their rounds: drafted, started, closed phase by phase."""
