"""The paper's adversary: a network of two hidden layers that tells user and places of privatized measurements."""

import copy
import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from mapveil.attacks.signal_adversary import Guesser, SignalAdversary, SignalGuess
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.obfuscation.privatizers.privatizer import Progress
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check, require
from mapveil_client.randomness.random import Randomness

_BLOCK: Final = 1 << 15
_SLOWEST: Final = 1 / 100  # of the learning rate: below it, training has converged


@dataclass(frozen=True, kw_only=True)
class SignalNetwork(SignalAdversary):
    r"""A fully connected network from a run to a user and a place for each of its measurements.

    .. math:: L_a = v_1 P_1^{ce} + v_2 P_2

    where: :math:`P_1^{ce}` is the cross-entropy of the user, :math:`P_2` the mean Euclidean distance of the places
    in normalised units, v is ``weights``. Rectified units, Adam.

    Deviation: inputs are standardised by what the adversary sees, a tenth of the evidence is kept to stop by, and the
    learning rate falls when that part's loss no longer does: the paper says neither, and without them the adversary is
    weaker, which flatters privatizers.

    Parameters
    ----------
    hidden : tuple of int
        Units of the hidden layers.
    weights : tuple of float
        :math:`v_1, v_2` of its loss; (0.8, 0.2) and (0.2, 0.8) are the paper's alternatives.
    rate : float
        Learning rate at first.
    batch : int
        Runs per step.
    epochs : int
        At most so many passes over the evidence.
    patience : int
        Passes without gain after which the rate falls to a third.

    Source: Sections 3.5 and 6.5, equation 7 of Zhang et al. 2022.
    """

    name: ClassVar[str] = "network"

    hidden: tuple[int, ...] = (256, 256)
    weights: tuple[float, float] = (1.0, 1.0)
    rate: float = 1e-3
    batch: int = 1024
    epochs: int = 50
    patience: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            all(units >= 1 for units in self.hidden),
            "hidden",
            "a tuple of positive whole numbers",
            self.hidden,
        )
        fair = len(self.weights) == 2 and min(self.weights) >= 0 and max(self.weights) > 0
        check(fair, "weights", "two numbers of at least 0, one above it,", self.weights)
        check(0 < self.rate < 1, "rate", "a number between 0 and 1", self.rate)
        for name in ("batch", "epochs", "patience"):
            check(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))

    @property
    def label(self) -> str:
        """Name in tables, with the loss weights where they are not the default."""
        if self.weights == (1.0, 1.0):
            return self.name
        return f"{self.name}, v = {self.weights[0]:g}, {self.weights[1]:g}"

    def train(self, evidence: SignalEvidence, rng: Randomness, progress: Progress) -> Guesser:
        """Train on a device with a GPU where there is one.

        Raises
        ------
        MissingExtra
            PyTorch is not installed.
        """
        torch = require("torch", "neural")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        kept, chosen = evidence.sample(self.most_runs, rng).parted(0.1, rng)
        mean, scale = kept.inputs.mean(axis=0), kept.inputs.std(axis=0)
        scale[scale == 0] = 1.0
        seed = int(rng.words(1, np.uint32)[0])
        # The global stream of PyTorch is left as it was: layers know no other to start from.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            net = _layers(torch, kept, self.hidden).to(device)
        order = torch.Generator().manual_seed(seed)
        learn, judge = (_tensors(torch, each, mean, scale, device) for each in (kept, chosen))
        optimiser = torch.optim.Adam(net.parameters(), lr=self.rate)
        best, state, waited, rate = np.inf, copy.deepcopy(net.state_dict()), 0, self.rate
        for epoch in range(self.epochs):
            net.train()
            shuffled = torch.randperm(len(kept), generator=order).to(device)
            for at in range(0, len(kept), self.batch):
                rows = shuffled[at : at + self.batch]
                optimiser.zero_grad(set_to_none=True)
                self._loss(torch, net, *(each[rows] for each in learn)).backward()
                optimiser.step()
            with torch.no_grad():
                parts = [
                    self._loss(torch, net, *(each[at : at + _BLOCK] for each in judge)).item()
                    * len(judge[1][at : at + _BLOCK])
                    for at in range(0, len(chosen), _BLOCK)
                ]
            loss = sum(parts) / len(chosen)
            progress("training the network", (epoch + 1) / self.epochs)
            if loss < best - 1e-4:
                best, state, waited = loss, copy.deepcopy(net.state_dict()), 0
                continue
            waited += 1
            if waited >= self.patience:
                rate, waited = rate / 3, 0
                if rate < self.rate * _SLOWEST:
                    break
                net.load_state_dict(state)
                optimiser = torch.optim.Adam(net.parameters(), lr=rate)
        net.load_state_dict(state)
        progress("training the network", 1.0)
        net.eval()

        def guess(observed: FloatArray) -> SignalGuess:
            runs, length, _ = observed.shape
            users, places = np.empty((runs, evidence.user_count)), np.empty((runs, length, 2))
            with torch.no_grad():
                for at in range(0, runs, _BLOCK):
                    block = observed[at : at + _BLOCK].reshape(-1, len(mean))
                    made = net(torch.from_numpy(((block - mean) / scale).astype(np.float32)).to(device))
                    who, where = made[:, : evidence.user_count], made[:, evidence.user_count :]
                    users[at : at + _BLOCK] = who.double().softmax(1).cpu().numpy()
                    places[at : at + _BLOCK] = where.reshape(-1, length, 2).cpu().numpy()
            return SignalGuess(users, places)

        return guess

    def _loss(self, torch: Any, net: Any, inputs: Any, users: Any, places: Any) -> Any:
        made = net(inputs)
        count = made.shape[1] - places.shape[1]
        who = torch.nn.functional.cross_entropy(made[:, :count], users)
        away = (made[:, count:] - places).reshape(len(places), -1, 2)
        # The least bit under the root keeps the gradient finite where a guess is exact.
        where = (away.square().sum(-1) + 1e-12).sqrt().mean()
        return self.weights[0] * who + self.weights[1] * where


def _layers(torch: Any, evidence: SignalEvidence, hidden: tuple[int, ...]) -> Any:
    widths = [evidence.inputs.shape[1], *hidden]
    layers: list[Any] = []
    for entering, leaving in itertools.pairwise(widths):
        layers += [torch.nn.Linear(entering, leaving), torch.nn.ReLU()]
    return torch.nn.Sequential(
        *layers, torch.nn.Linear(widths[-1], evidence.user_count + 2 * evidence.length)
    )


def _tensors(
    torch: Any, evidence: SignalEvidence, mean: FloatArray, scale: FloatArray, device: Any
) -> tuple[Any, Any, Any]:
    inputs = ((evidence.inputs - mean) / scale).astype(np.float32)
    places = evidence.places.reshape(len(evidence), -1).astype(np.float32)
    return tuple(torch.from_numpy(each).to(device) for each in (inputs, evidence.users.copy(), places))
