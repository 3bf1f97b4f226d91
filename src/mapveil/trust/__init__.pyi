from mapveil.trust.curator import Curator as Curator
from mapveil.trust.secure_aggregation.model import SecureAggregation as SecureAggregation
from mapveil.trust.secure_aggregation.model import WholeNoise as WholeNoise
from mapveil.trust.two_operators import TwoOperators as TwoOperators
