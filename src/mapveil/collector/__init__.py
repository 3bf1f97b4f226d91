"""The collector: the service that runs collections; devices need not trust it."""
