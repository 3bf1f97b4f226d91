"""The two drivers of a secure sum: the ideal one for simulations, and the protocol itself."""

from __future__ import annotations

from mapveil.secure_sum.ideal_sum import IdealSum
from mapveil.secure_sum.protocol_sum import ProtocolSum
from mapveil.secure_sum.shard_sum import BeforeReveal, SecureSum, ShardSum

__all__ = ["BeforeReveal", "IdealSum", "ProtocolSum", "SecureSum", "ShardSum"]
