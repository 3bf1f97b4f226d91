"""What the tests of hostile input share: the service and the devices of the other tests."""

from __future__ import annotations

from ..api.conftest import api, api_with, live
from ..engine.conftest import crowd_of, engine, make_spec, opened, totals_of

__all__ = ["api", "api_with", "crowd_of", "engine", "live", "make_spec", "opened", "totals_of"]
