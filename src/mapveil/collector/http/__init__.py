"""The HTTP API of the collector: what devices, operators and the console may say to it, and how much of it."""
