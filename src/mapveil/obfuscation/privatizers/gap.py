"""Generative adversarial privacy: a network that learnt to rewrite rows by playing against an attacker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mapveil.obfuscation.privatizers.dense_network import DenseNetwork, network_normals
from mapveil.obfuscation.privatizers.privatizer import Privatizer, Progress, Rows, State
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.randomness.random import Randomness

_HALVED = 240_000


@dataclass(frozen=True, kw_only=True)
class Gap(Privatizer):
    r"""Rewrite by a network trained to keep utility and to mislead an attacker that is trained beside it.

    .. math::

        y = g(x, z), \qquad \min_g \max_h \; -\rho U(x, y) - (1 - \rho) L_a(h(y), x, u), \qquad
        L_a = v_1 P_1^{ce} + v_2 P_2, \quad U = w_1 U_1 + w_2 U_2

    where: x is a normalised row, y its rewriting, z is ``noise`` standard normals drawn afresh for every row, u the
    user; g, the privatizer, and h, the attacker, are networks of two hidden layers of ``width`` rectified units;
    :math:`P_1^{ce}` is the cross-entropy of the attacker's user probabilities, :math:`P_2` the mean distance of its
    place from the true one, :math:`U_1` minus the mean distortion and :math:`U_2` minus the L1 distance between
    the parameters of the server's linear model before and after, over one batch.

    Run by: the curator of the pilot (``learn``, with PyTorch), the client (``rewrite``, with matrix products).

    Deviation: the paper's network has no z and is thus a fixed function, which an attacker trained afresh on its
    output inverts; ``noise=0`` is the paper's. With ``sequence`` L, g and h see L measurements at once.

    Parameters
    ----------
    rho : float
        Weight of utility against privacy, from 0 to 1.
    v1, v2 : float
        Weights of user and place in the attacker's loss, not below 0.
    w1, w2 : float
        Weights of distortion and map error in the utility, not below 0.
    noise : int
        Standard normals fed to the network for every measurement; 0 is the paper's deterministic network.
    epochs : int
        Passes over the pilot before the other network's turn (k of the paper).
    steps : int
        Gradient steps of each network in all, rounded up to whole turns.
    batch : int
        Runs of a gradient step.
    width : int
        Units of a hidden layer.
    rate : float
        Learning rate of Adam.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Source: Section 5.3 and equations 7, 12 and 17 of Zhang et al. 2022.
    """

    name: ClassVar[str] = "gap"
    summary: ClassVar[str] = "a network trained against an attacker rewrites each measurement"
    source: ClassVar[str] = "Zhang et al. 2022, Section 5.3"
    formal: ClassVar[bool] = False

    rho: float = 0.4
    v1: float = 1.0
    v2: float = 1.0
    w1: float = 1.0
    w2: float = 1.0
    noise: int = 16
    epochs: int = 1
    steps: int = 4000
    batch: int = 1024
    width: int = 256
    rate: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(0 <= self.rho <= 1, "rho", "a number from 0 to 1")
        for weight in ("v1", "v2", "w1", "w2"):
            self._check(0 <= getattr(self, weight) < np.inf, weight, "a finite number of at least 0")
        self._check(_whole(self.noise, 0, 1024), "noise", "a whole number from 0 to 1024")
        self._check(_whole(self.epochs, 1, 1000), "epochs", "a whole number from 1 to 1000")
        self._check(_whole(self.steps, 1, 10**7), "steps", "a whole number from 1 to 10 million")
        self._check(_whole(self.batch, 2, 1 << 20), "batch", "a whole number from 2 to 2^20")
        self._check(_whole(self.width, 1, 4096), "width", "a whole number from 1 to 4096")
        self._check(0 < self.rate < 1, "rate", "a number between 0 and 1")

    def learn(
        self, pilot: Rows, users: npt.NDArray[np.int64], rng: Randomness, progress: Progress
    ) -> dict[str, npt.NDArray[Any]]:
        """Train both networks and keep the privatizer's; see :class:`Privatizer`."""
        from mapveil.obfuscation.training.gap_training import train_gap

        network = train_gap(self, pilot, users, rng, progress)
        # In single precision it would not fit the megabyte of a phone's file.
        return (network.halved() if network.size > _HALVED else network).state()

    def rewrite(self, state: State, rows: Rows, rng: Randomness) -> Rows:
        """One pass through the network, with fresh normals beside every row."""
        network = DenseNetwork.of_state(state)
        inputs = rows.astype(np.float32)
        if self.noise:
            fresh = network_normals(len(rows), self.noise * self.sequence, rng)
            inputs = np.concatenate([inputs, fresh], axis=1)
        return network.apply(inputs).astype(np.float64)

    def promise(self, state: State, features: int, *, seeded: bool) -> Guarantee:
        """No factor bounds what is learnt: average case, against the attackers it was measured with."""
        fixed = (
            "the network is a fixed function of the row: an attacker trained on its output can undo it. "
            if self.noise == 0
            else ""
        )
        return Guarantee(
            trust="obfuscation",
            epsilon=None,
            unit="report",
            bounding=f"Average case, no formal guarantee: {fixed}privacy is what attackers trained afresh measure.",
            neighbours="user and place, on average, from attackers like those it was measured with",
            assumptions=("the pilot is like those who report", "the curator of the pilot saw its rows raw"),
            seeded=seeded,
        )


def _whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
