"""What the tests of hostile input share: the service and the devices of the other tests."""

from __future__ import annotations

from ..engine.conftest import crowd_of, engine, make_spec, opened, totals_of
from ..http.conftest import api, api_with, live

__all__ = ["api", "api_with", "crowd_of", "engine", "live", "make_spec", "opened", "totals_of"]
