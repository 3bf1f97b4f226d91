"""Mapveil: private maps of where people are.

The names of ``__init__.pyi`` load on first use, so that ``import mapveil`` costs almost nothing.
"""

from mapveil.lazy import attach_stub
from mapveil_client import __version__ as __version__

__getattr__, __dir__ = attach_stub(__name__, __file__)
