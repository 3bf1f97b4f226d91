"""Training of generative adversarial privacy: two networks in turn, with PyTorch, without touching its global state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mapveil.obfuscation.privatizers.dense_network import DenseNetwork
from mapveil_client.errors import require

if TYPE_CHECKING:
    from mapveil.obfuscation.privatizers.gap import Gap
    from mapveil.obfuscation.privatizers.privatizer import Progress, Rows
    from mapveil_client.randomness.random import Randomness

# A part of the mean square of a column added to the normal equations of a batch: a column that is constant in the
# batch gets parameter 0 instead of none, others hardly move.
_RIDGE = 1e-6

# Batches of one pass at most. Over a longer turn the privatizer runs to where the attacker, which stands still, has
# never been and errs without bound, and does not come back: on 300,000 rows it then ends a thousand deviations off.
_TURN = 20

Layers = list[tuple[Any, Any]]


def batch_utility(rows: Any, rewritten: Any, w1: float = 1.0, w2: float = 1.0) -> Any:
    r"""Utility of one batch, differentiable.

    .. math:: U = -\frac{w_1}{n} \sum_i \lVert y_i - x_i \rVert_2 - w_2 \lVert \alpha_X - \alpha_Y \rVert_1

    where: :math:`\alpha` are the parameters of the linear model of signal strength (equation 2), by normal equations
    with a small ridge, so that a column constant in the batch does no harm.

    Parameters
    ----------
    rows, rewritten : tensor, shape (measurements, features)
        x and y, normalised.
    w1, w2 : float
        Weights.

    Returns
    -------
    tensor, scalar

    Source: equations 10, 11 and 12 of Zhang et al. 2022.
    """
    distortion = (rewritten - rows).square().sum(1).add(1e-12).sqrt().mean()
    if w2 == 0:
        return -w1 * distortion
    error = (_linear_parameters(rows) - _linear_parameters(rewritten)).abs().sum()
    return -w1 * distortion - w2 * error


def attacker_loss(outputs: Any, codes: Any, places: Any, v1: float = 1.0, v2: float = 1.0) -> Any:
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
        Weights.

    Source: equations 4, 6 and 7 of Zhang et al. 2022.
    """
    torch = require("torch", "neural")
    users = outputs.shape[1] - places.shape[1]
    crossed = torch.nn.functional.cross_entropy(outputs[:, :users], codes)
    off = (outputs[:, users:] - places).reshape(-1, 2).square().sum(1).add(1e-12).sqrt().mean()
    return v1 * crossed + v2 * off


def train_gap(
    gap: Gap, pilot: Rows, users: npt.NDArray[np.int64], rng: Randomness, progress: Progress
) -> DenseNetwork:
    """Play the game and return the privatizer's network. Run by: the curator of the pilot.

    The attacker moves for ``gap.epochs`` passes over the pilot, then the privatizer, and so on (Section 5.3). A
    GPU is used where there is one. With a seeded ``rng`` the training repeats on the same machine.

    Deviation: a pass ends after 20 batches, which is all of a pilot of 20,000 rows; see ``_TURN``.

    Parameters
    ----------
    gap : Gap
        The parameters.
    pilot : ndarray of float64, shape (runs, L x features)
        Normalised runs.
    users : ndarray of int64, shape (runs,)
        Who each run is of.
    rng : Randomness
        Seeds a PyTorch generator of its own.
    progress : callable
        Called with ``"train"`` and the part done, after every turn.

    Raises
    ------
    MissingExtra
        PyTorch is not installed.
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

    def rewritten(part: Any) -> Any:
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
                        changed = rewritten(part)
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
                            changed = rewritten(part)
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
    """Parameters of signal strength, the third column, on a constant and the other columns."""
    torch = require("torch", "neural")
    others = torch.cat([torch.ones_like(rows[:, :1]), rows[:, :2], rows[:, 3:]], 1).double()
    gram = others.T @ others
    gram = gram + _RIDGE * torch.diag(gram.diagonal() + _RIDGE * len(rows))
    return torch.linalg.solve(gram, others.T @ rows[:, 2].double()).float()
