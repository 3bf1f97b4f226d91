"""Mechanisms by name, and their classes (``mapveil.mechanisms.EmdHeatmap``), which load on first use."""

from mapveil.lazy import attach_stub

__getattr__, __dir__ = attach_stub(__name__, __file__)
