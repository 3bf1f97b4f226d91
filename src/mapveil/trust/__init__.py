"""Trust models: who answers the plans of mechanisms, and what the adversary sees."""

from mapveil.lazy import attach_stub

__getattr__, __dir__ = attach_stub(__name__, __file__)
