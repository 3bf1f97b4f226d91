"""The local model for comparison: every device adds the whole noise itself, Figure 1 of Bagdasaryan et al. (2022)."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapveil.mechanisms.level_choice import LevelSums, require_level, show_levels
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Estimate, Plan, Query, Setting
from mapveil.trust.secure_aggregation.model import SecureAggregation, WholeNoise
from mapveil.trust.two_operators import TwoOperators
from mapveil_client.errors import ParameterError
from mapveil_client.level_encoding import LevelEncoding

_EVENTS = 1 << 30


@dataclass(frozen=True, kw_only=True)
class LocalLaplace(SumMechanism):
    r"""Ask about one level of the quadtree; each report alone carries the noise that a whole sum needs.

    Every device adds discrete Laplace noise of the whole budget to every coordinate (:math:`\alpha = 1` in
    Algorithm 1), so that its report is :math:`\epsilon`-DP before anybody adds anything up: between a place and none
    the factor is :math:`e^\epsilon`, between any two places :math:`e^{2 \epsilon}`, the measure of local DP. The sum
    of n reports is :math:`\sqrt{n}` times as noisy as a sum whose noise is shared. The level asked for is the finest l
    with

    .. math:: \frac{n}{b_l} \ge \sigma, \qquad
        \sigma^2 = \frac{n}{\gamma^2} \operatorname{Var} \mathrm{DLap}(\epsilon / \Delta)

    where: n is the number of devices, :math:`b_l` the number of nodes of level l that can hold anybody,
    :math:`\gamma` the units of a device and :math:`\Delta` its sensitivity: a node of average density is worth its
    noise.

    Deviation: the paper does not say which local mechanism Figure 1 shows; it names the Laplace mechanism applied
    locally as what loses (section 2.2). Deviation: negative sums become zero.

    Source: Bagdasaryan et al. (2022), section 2.2 and Figure 1.

    Parameters
    ----------
    level : int, optional
        Ask about this level, instead of the rule's.
    """

    name: ClassVar[str] = "local-laplace"
    summary: ClassVar[str] = "every device adds the whole noise itself: the local model, for comparison"
    source: ClassVar[str] = "Bagdasaryan et al. 2022, section 2.2 and Figure 1"
    unanswerable: ClassVar[Mapping[str, str]] = {
        "operators": "every client's report is private by itself there: no operator is needed",
        "central": "it shows what clients pay who add the whole noise themselves; laplace is a curator's",
    }

    trust: Curator | SecureAggregation | TwoOperators = dataclasses.field(default_factory=WholeNoise)
    level: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.trust.whole_noise, "trust", "WholeNoise()")
        self._check(self.level is None or self.level >= 0, "level", "a level of at least 0, or none")

    def plan(self, setting: Setting) -> Plan:
        """One query; see :meth:`SumMechanism.plan`.

        Raises
        ------
        ParameterError
            The noise of so many devices at so many coordinates would take too long to draw.
        """
        require_level(self.level, range(setting.depth + 1))
        level = self.level_for(setting) if self.level is None else self.level
        encoding = LevelEncoding.of_members(setting.depth, (level,), setting.members)
        draws = self._draws(setting, encoding)
        if draws > _EVENTS:
            raise ParameterError(
                f"{setting.clients} clients would draw about {draws:.2g} noise events for the "
                f"{encoding.length} nodes of level {level}; expected {_EVENTS:.2g} at most: a coarser "
                "level, or a sample"
            )
        sums = yield Query(f"every node of level {level}", encoding, self.budget)
        shown = LevelSums(level, encoding.fill(0, sums.values), sums.variance)
        return Estimate(
            show_levels([shown], setting.members, np.array([level])),
            (sums.measurement(encoding.groups(0)),),
            (
                f"the map shows level {level}: noise is added on every device, so nothing finer is worth asking",
            ),
        )

    def level_for(self, setting: Setting) -> int:
        """The finest level whose average node is worth its noise, and that can be drawn in time."""
        finest = 0
        for level in range(1, setting.depth + 1):
            encoding = LevelEncoding.of_members(setting.depth, (level,), setting.members)
            moves = setting.sensitivity(encoding)
            noise = math.sqrt((setting.clients or 0) * laplace_variance(self.budget, moves)) / setting.scale
            if (setting.clients or 0) / encoding.length < noise or self._draws(setting, encoding) > _EVENTS:
                break
            finest = level
        return finest

    def _draws(self, setting: Setting, encoding: LevelEncoding) -> float:
        """Events of all devices' noise (see :mod:`mapveil_client.randomness.noise_shares`) on average."""
        moves = setting.sensitivity(encoding)
        events = -math.log(-math.expm1(-float(self.budget) / moves))
        return 2 * (setting.clients or 0) * encoding.length * events
