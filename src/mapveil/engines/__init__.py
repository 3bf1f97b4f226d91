"""From tables to contributions to exact sums: one SQL text per step, run by DuckDB in process."""

from mapveil.engines.contributions import UNIT
from mapveil.engines.user_sums import UserSums, user_sums

__all__ = ["UNIT", "UserSums", "user_sums"]
