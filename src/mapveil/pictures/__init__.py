"""Pictures and pages of maps."""
