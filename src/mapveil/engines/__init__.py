"""Heavy table work, one SQL text per step, run by DuckDB in process."""

from mapveil.engines.user_sums import UNIT, UserSums, user_sums

__all__ = ["UNIT", "UserSums", "user_sums"]
