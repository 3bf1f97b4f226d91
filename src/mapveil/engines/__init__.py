"""From tables to contributions to exact sums, by DuckDB in this process or on a cluster."""

from mapveil.engines.contributions import UNIT
from mapveil.engines.user_sums import UserSums, user_sums

__all__ = ["UNIT", "UserSums", "user_sums"]
