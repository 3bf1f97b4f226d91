"""The windows of a series that a client reports about: drawn by itself, whatever its data."""

from __future__ import annotations

import numpy as np

from mapveil_client.arrays import IntArray
from mapveil_client.errors import check_whole
from mapveil_client.randomness.random import Randomness, uniform_below


def draw_windows(windows: int, most: int, rng: Randomness, *, clients: int = 1) -> IntArray:
    """Draw ``most`` different windows of each client, every choice equally likely. Run by: the client.

    Parameters
    ----------
    windows : int
        Number of windows of the series.
    most : int
        Number of windows to draw, from 1 to ``windows``.
    rng : Randomness
        The source of bits.
    clients : int
        Number of clients, in a simulation.

    Returns
    -------
    ndarray of int64, shape (clients, most)
        Ascending numbers of windows, from 0.

    Raises
    ------
    ParameterError
        There are fewer windows than are drawn.
    """
    check_whole(most, "most", 1, windows)
    drawn = np.empty((clients, most), dtype=np.int64)
    for at in range(most):
        # A number among the windows that are left, counted past those drawn before.
        new = uniform_below(clients, windows - at, rng)
        for before in range(at):
            new += new >= drawn[:, before]
        drawn[:, at] = new
        drawn[:, : at + 1].sort(axis=1)
    return drawn
