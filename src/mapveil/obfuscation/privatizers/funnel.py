"""The privacy funnel: codes chosen so that the best attacker on one report still learns little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mapveil.obfuscation.privatizers.codebook import choose_codes
from mapveil.obfuscation.privatizers.funnel_game import Game, play_funnel
from mapveil.obfuscation.privatizers.pilot_cells import nearest_centre
from mapveil.obfuscation.privatizers.privatizer import Privatizer, Progress, Rows, State
from mapveil.privacy.claim import Adversary, Assumes, Measured, Quantity, Reveals, TrustModel, Unit
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.randomness.random import Randomness

_CHUNK = 1 << 13
_FEW = 64  # rows whose own cells are searched sooner than all cells are summed


@dataclass(frozen=True, kw_only=True)
class Funnel(Privatizer):
    r"""Send one of a few codes, chosen at random by the cell a run lies in, so that codes tell little.

    .. math::

        \min_{q, y} \; \rho w_1 \sum_{i, c} \frac{q(c | a_i)}{n} \lVert y_c - x_i \rVert_2
        + (1 - \rho) \Big( v_1 \sum_c \max_u \sum_{i: u_i = u} \frac{q(c | a_i)}{n}
        - v_2 \sum_c \min_z \sum_i \frac{q(c | a_i)}{n} \lVert z - z_i \rVert_2 \Big)

    where: :math:`x_i`, :math:`u_i` and :math:`z_i` are run, user and place i of the n of the pilot, :math:`a_i` is
    the cell (nearest of ``cells`` centres) of :math:`x_i`, c one of ``codes`` codes, :math:`y_c` the rows it stands
    for, and q the channel. The two terms in v are :math:`1 - P_1` and :math:`-P_2` of the best attacker there can be
    on a code: a report is nothing but a code, so whatever an attacker is trained on, it does not do better.
    ``learn`` measures both on rows the game has not seen, and the guarantee states them.

    With :math:`w_2 > 0` the :math:`y_c` then move to where a regression on them, weighted by their use, gives the
    pilot's linear model of signal strength (equation 2). What they say of signal beyond that model they keep in the
    part (from all to nothing) that has the best :math:`w_1 U_1 + w_2 U_2` on rows the game has not seen.

    Run by: the curator of the pilot (``learn``), the client (``privatize``). The parameters are those of
    :class:`~mapveil.obfuscation.privatizers.gap.Gap` where they share a name.

    Parameters
    ----------
    rho : float
        Weight of utility against privacy, from 0 to 1.
    v1, v2 : float
        Weights of user and place, not below 0.
    w1, w2 : float
        Weights of distortion and of the linear model, not below 0.
    codes : int
        Codes at most.
    cells : int
        Cells at most; fewer where the pilot has fewer than 4 runs for each.
    rounds : int
        Rounds of the game.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Source: Mapveil's own; the game is that of Shokri et al. (CCS 2012), the objective a privacy funnel (Makhdoumi,
    Salamatian, Fawaz, Medard, ITW 2014) with the losses of Section 4 of Zhang et al. 2022 instead of information.
    """

    name: ClassVar[str] = "funnel"
    summary: ClassVar[str] = "one of a few codes, chosen so that the best attacker on a report learns little"
    source: ClassVar[str] = "Mapveil; after Shokri et al. 2012 and Makhdoumi et al. 2014"
    formal: ClassVar[bool] = False

    rho: float = 0.4
    v1: float = 1.0
    v2: float = 1.0
    w1: float = 1.0
    w2: float = 1.0
    codes: int = 256
    cells: int = 800
    rounds: int = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(0 <= self.rho <= 1, "rho", "a number from 0 to 1")
        for weight in ("v1", "v2", "w1", "w2"):
            self._check(0 <= getattr(self, weight) < np.inf, weight, "a finite number of at least 0")
        for name, least, most in (("codes", 1, 1 << 12), ("cells", 1, 1 << 16), ("rounds", 2, 1 << 16)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            self._check(whole and least <= value <= most, name, f"a whole number from {least} to {most}")

    @property
    def game(self) -> Game:
        """The rules that the channel is found by."""
        return Game(**{name: getattr(self, name) for name in Game._fields})

    def learn(
        self, pilot: Rows, users: npt.NDArray[np.int64], rng: Randomness, progress: Progress
    ) -> dict[str, npt.NDArray[Any]]:
        """Play the game; see :class:`Privatizer`."""
        channel, certificate = play_funnel(self.game, pilot, users, rng, progress)
        return {**channel._asdict(), "certificate": np.array(certificate)}

    def privatize(self, state: State, rows: Rows, rng: Randomness) -> Rows:
        """Find each run's cell and draw one of the codes that it sends."""
        made = np.empty_like(rows)
        codes, weights = state["codes"], state["weights"]
        reached = np.cumsum(weights, axis=1).astype(np.float64) if len(rows) > _FEW else None
        for start in range(0, len(rows), _CHUNK):
            cells = nearest_centre(rows[start : start + _CHUNK], state["centres"])
            if reached is None:
                chosen = choose_codes(weights[cells], rng)
            else:
                chosen = _choose(reached, cells, rng)
            made[start : start + _CHUNK] = codes[chosen]
        return made

    def promise(self, state: State, features: int, *, seeded: bool) -> Guarantee:
        """Average case, with what the best attacker reaches on rows of the pilot kept aside."""
        user_error, place_error, _ = state["certificate"].tolist()
        against = "the best attacker there is on one report, on rows of the pilot kept aside"
        return Guarantee(
            model=TrustModel.OBFUSCATION,
            unit=Unit.REPORT,
            epsilon=None,
            adversary=Adversary.REPORTS,
            disclosure=Reveals.BEST_CODE(codes=len(state["codes"])),
            assumptions=(Assumes.PILOT_REPRESENTATIVE(), Assumes.UNLINKED_REPORTS(), Assumes.PILOT_RAW()),
            measured=(
                Measured(Quantity.USER_ERROR, user_error, "of reports", against),
                Measured(Quantity.PLACE_ERROR, place_error, "deviations", against),
            ),
            seeded=seeded,
        )


def _choose(
    reached: npt.NDArray[np.float64], cells: npt.NDArray[np.int64], rng: Randomness
) -> npt.NDArray[np.int64]:
    """Draw as :func:`choose_codes` does, by one search among all cumulative sums of the cells' weights.

    Each cell's sums are shifted by twice its number, so that they ascend throughout; that rounds them to 2^-42.
    """
    count = reached.shape[1]
    keys = (reached + 2.0 * np.arange(len(reached))[:, None]).ravel()
    drawn = (rng.words(len(cells), np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    found = np.searchsorted(keys, 2.0 * cells + drawn * reached[cells, -1], side="right")
    return np.asarray(np.minimum(found - cells * count, count - 1), dtype=np.int64)
