"""The collector: the service that runs collections from devices nobody has to trust it with."""
