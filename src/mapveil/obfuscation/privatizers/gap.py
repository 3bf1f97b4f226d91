"""Generative adversarial privacy: a network that learnt to privatize rows by playing against an attacker."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from mapveil.obfuscation.privatizers.average_case import TradeOff, average_case
from mapveil.obfuscation.privatizers.dense_network import DenseNetwork, network_normals
from mapveil.obfuscation.privatizers.privatizer import Progress, State
from mapveil.privacy.claim import Assumes, Reveals
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import check, check_whole, require
from mapveil_client.randomness.random import Randomness

_HALVED: Final = 240_000  # numbers of a network that would not fit the megabyte of a phone's file

# A part of the mean square of a column added to the normal equations of a batch: a column that is constant in the
# batch gets parameter 0 instead of none, others hardly move.
_RIDGE = 1e-6

# Batches of one pass at most. Over a longer turn the privatizer runs to where the attacker, which stands still, has
# never been and errs without bound, and does not come back: on 300,000 rows it then ends a thousand deviations off.
_TURN = 20

Layers = list[tuple[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class Gap(TradeOff):
    r"""Privatize by a network trained to keep utility and to mislead an attacker that is trained beside it.

    .. math::

        y = g(x, z), \qquad \min_g \max_h \; -\rho U(x, y) - (1 - \rho) L_a(h(y), x, u), \qquad
        L_a = v_1 P_1^{ce} + v_2 P_2, \quad U = w_1 U_1 + w_2 U_2

    where: x is a normalised row, y its output, z is ``noise`` standard normals drawn afresh for every row, u the
    user; g, the privatizer, and h, the attacker, are networks of two hidden layers of ``width`` rectified units;
    :math:`P_1^{ce}` is the cross-entropy of the attacker's user probabilities, :math:`P_2` the mean distance of its
    place from the true one, :math:`U_1` minus the mean distortion and :math:`U_2` minus the L1 distance between
    the parameters of the server's linear model before and after, over one batch.

    Run by: the curator of the pilot (``learn``, with PyTorch), the client (``privatize``, with matrix products).

    Deviation: the paper's network has no z and is thus a fixed function, which an attacker trained afresh on its
    output inverts; ``noise=0`` is the paper's. With ``sequence`` L, g and h see L measurements at once.

    Parameters
    ----------
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

    noise: int = 16
    epochs: int = 1
    steps: int = 4000
    batch: int = 1024
    width: int = 256
    rate: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.noise, "noise", 0, 1024)
        check_whole(self.epochs, "epochs", 1, 1000)
        check_whole(self.steps, "steps", 1, 10**7)
        check_whole(self.batch, "batch", 2, 1 << 20)
        check_whole(self.width, "width", 1, 4096)
        check(0 < self.rate < 1, "rate", "a number between 0 and 1", self.rate)

    @property
    def answers_null(self) -> bool:
        """See :class:`Privatizer`: a network was never shown such rows."""
        return True

    def learn(self, pilot: FloatArray, users: IntArray, rng: Randomness, progress: Progress) -> State:
        """Train both networks and keep the privatizer's; see :class:`Privatizer`."""
        network = _train(self, pilot, users, rng, progress)
        return (network.halved() if network.size > _HALVED else network).state()

    def privatize(self, state: State, rows: FloatArray, rng: Randomness) -> FloatArray:
        """One pass through the network, with fresh normals beside every row."""
        network = DenseNetwork.of_state(state)
        inputs = rows.astype(np.float32)
        if self.noise:
            fresh = network_normals(len(rows), self.noise * self.sequence, rng)
            inputs = np.concatenate([inputs, fresh], axis=1)
        return network.apply(inputs).astype(np.float64)

    def promise(self, state: State, features: int) -> Guarantee:
        """No factor bounds what is learnt: average case, against the attackers it was measured with."""
        return average_case(
            Reveals.NETWORK(noise=self.noise),
            Assumes.PILOT_REPRESENTATIVE(),
            Assumes.PILOT_RAW(),
            Assumes.ATTACKERS_TRIED(),
        )


def batch_utility(rows: Any, privatized: Any, w1: float, w2: float) -> Any:
    r"""Utility of one batch, differentiable.

    .. math:: U = -\frac{w_1}{n} \sum_i \lVert y_i - x_i \rVert_2 - w_2 \lVert \alpha_X - \alpha_Y \rVert_1

    where: :math:`\alpha` are the parameters of the linear model of signal strength (equation 2), by normal equations
    with a small ridge, so that a column constant in the batch does no harm.

    Parameters
    ----------
    rows, privatized : tensor, shape (measurements, features)
        x and y, normalised.
    w1, w2 : float
        Weights of distortion and of the linear model's error.

    Source: equations 10, 11 and 12 of Zhang et al. 2022.
    """
    distortion = (privatized - rows).square().sum(1).add(1e-12).sqrt().mean()
    if w2 == 0:
        return -w1 * distortion
    error = (_linear_parameters(rows) - _linear_parameters(privatized)).abs().sum()
    return -w1 * distortion - w2 * error


def attacker_loss(outputs: Any, codes: Any, places: Any, v1: float, v2: float) -> Any:
    r"""The attacker's loss on one batch.

    .. math:: L_a = -\frac{v_1}{n} \sum_i \log p_{i u_i} + \frac{v_2}{n} \sum_i \lVert \hat z_i - z_i \rVert_2

    Parameters
    ----------
    outputs : tensor, shape (runs, users + 2 L)
        Logits of the users, then L places.
    codes : tensor of int64, shape (runs,)
        True users.
    places : tensor, shape (runs, 2 L)
        True places, normalised.
    v1, v2 : float
        Weights of users and places.

    Source: equations 4, 6 and 7 of Zhang et al. 2022.
    """
    torch = require("torch", "neural")
    users = outputs.shape[1] - places.shape[1]
    crossed = torch.nn.functional.cross_entropy(outputs[:, :users], codes)
    off = (outputs[:, users:] - places).reshape(-1, 2).square().sum(1).add(1e-12).sqrt().mean()
    return v1 * crossed + v2 * off


def _train(gap: Gap, pilot: FloatArray, users: IntArray, rng: Randomness, progress: Progress) -> DenseNetwork:
    """Play the game and return the privatizer's network.

    The attacker moves for ``gap.epochs`` passes over the pilot, then the privatizer, and so on (Section 5.3). A
    GPU is used where there is one. With a seeded ``rng`` the training repeats on the same machine.

    Deviation: a pass ends after 20 batches, which is all of a pilot of 20,000 rows; see ``_TURN``.
    """
    torch = require("torch", "neural")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    stream = torch.Generator().manual_seed(int(rng.words(1, np.uint64)[0] >> np.uint64(1)))
    known, codes = np.unique(users, return_inverse=True)
    length = gap.sequence
    width = pilot.shape[1]
    features = width // length
    place_columns = (np.arange(length)[:, None] * features + np.arange(2)).ravel()
    rows = torch.tensor(pilot, dtype=torch.float32, device=device)
    truth = torch.tensor(codes, device=device)
    places = rows[:, torch.tensor(place_columns, device=device)]

    def network(inputs: int, outputs: int) -> Layers:
        sizes = [inputs, gap.width, gap.width, outputs]
        return [_layer(sizes[at], sizes[at + 1], stream, device) for at in range(3)]

    privatizer = network(width + gap.noise * length, width)
    attacker = network(width, len(known) + 2 * length)
    movers = [
        (False, torch.optim.Adam([part for layer in attacker for part in layer], lr=gap.rate)),
        (True, torch.optim.Adam([part for layer in privatizer for part in layer], lr=gap.rate)),
    ]
    batches = max(len(rows) // gap.batch, 1)
    moves = min(batches, _TURN)
    turns = math.ceil(gap.steps / (moves * gap.epochs))

    def privatized(part: Any) -> Any:
        if not gap.noise:
            return _forward(privatizer, part)
        fresh = torch.randn(len(part), gap.noise * length, generator=stream).to(device)
        return _forward(privatizer, torch.cat([part, fresh], 1))

    for turn in range(turns):
        for privatizers_turn, mover in movers:
            for _ in range(gap.epochs):
                order = torch.randperm(len(rows), generator=stream).to(device)
                for at in range(moves):
                    # The last batch takes the few rows that do not fill one.
                    kept = order[at * gap.batch : None if at == batches - 1 else (at + 1) * gap.batch]
                    part = rows[kept]
                    mover.zero_grad(set_to_none=True)
                    if privatizers_turn:
                        changed = privatized(part)
                        used = batch_utility(
                            part.reshape(-1, features), changed.reshape(-1, features), gap.w1, gap.w2
                        )
                        # Without gradients of the attacker's own weights, which nobody needs in this turn.
                        guessed = _forward(
                            [(weight.detach(), bias.detach()) for weight, bias in attacker], changed
                        )
                        lost = attacker_loss(guessed, truth[kept], places[kept], gap.v1, gap.v2)
                        loss = -gap.rho * used - (1 - gap.rho) * lost
                    else:
                        with torch.no_grad():
                            changed = privatized(part)
                        loss = attacker_loss(
                            _forward(attacker, changed), truth[kept], places[kept], gap.v1, gap.v2
                        )
                    loss.backward()
                    mover.step()
        progress("train", (turn + 1) / turns)
    return DenseNetwork(
        tuple(weight.detach().cpu().numpy() for weight, _ in privatizer),
        tuple(bias.detach().cpu().numpy() for _, bias in privatizer),
    )


def _layer(inputs: int, outputs: int, stream: Any, device: str) -> tuple[Any, Any]:
    """PyTorch's own law of a fresh linear layer, from a generator of ours."""
    torch = require("torch", "neural")
    bound = 1 / math.sqrt(inputs)
    weight = (torch.rand(inputs, outputs, generator=stream) * 2 - 1) * bound
    bias = (torch.rand(outputs, generator=stream) * 2 - 1) * bound
    return weight.to(device).requires_grad_(), bias.to(device).requires_grad_()


def _forward(layers: Layers, rows: Any) -> Any:
    for weight, bias in layers[:-1]:
        rows = (rows @ weight + bias).relu()
    return rows @ layers[-1][0] + layers[-1][1]


def _linear_parameters(rows: Any) -> Any:
    """Equation 2: parameters of signal strength, the third column."""
    torch = require("torch", "neural")
    others = torch.cat([torch.ones_like(rows[:, :1]), rows[:, :2], rows[:, 3:]], 1).double()
    gram = others.T @ others
    gram = gram + _RIDGE * torch.diag(gram.diagonal() + _RIDGE * len(rows))
    return torch.linalg.solve(gram, others.T @ rows[:, 2].double()).float()
