"""Attack a privatized file of measurements: one function from the files to the figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mapveil.attacks.signal_attack import attack_signal, signal_adversaries
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_score import SignalAttack
from mapveil.geo.measurements import Measurements
from mapveil.geo.read_points import open_table
from mapveil.geo.tables import column_types, quote_name, reading
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.obfuscation.privatizers.privatizer import Progress
from mapveil.obfuscation.utility import Utility, utility
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness


def attack_measurements(
    private: Any,
    truth: Measurements,
    *,
    pilot: float = 0.7,
    split: str = "random",
    sequence: int = 1,
    quick: bool = False,
    network: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[SignalAttack, Utility]:
    """Train adversaries on a pilot part of a privatized table and judge them on the rest. NOT private.

    Each adversary learns the users and locations of the pilot part and guesses those of the rest. Run by: the
    evaluator, who has the truth.

    Parameters
    ----------
    private : path, str, sequence of paths, frame or relation
        The privatized table, row for row that of ``truth``.
    truth : Measurements
        The measurements before they were privatized.
    pilot : float
        The fraction of the rows, or of the users, that adversaries learn from.
    split : str
        How they are drawn: ``"random"``, ``"time"`` or ``"user"``.
    sequence : int
        Number of measurements of a user that adversaries see together.
    quick : bool
        A tenth of the work: adversaries are weaker, so privacy looks higher than it is.
    network : bool
        Whether the neural network is among the adversaries; it needs PyTorch.
    seed : int
        The same seed gives the same figures.
    progress : callable, optional
        Called with a step's name and the fraction done.

    Returns
    -------
    SignalAttack, Utility
        The score of every adversary, and what privatization cost.

    Raises
    ------
    InputError
        The tables do not match, or cannot be divided.
    MissingExtra
        An adversary's library is not installed.
    """
    rng = Randomness(seed)
    truth = replace(truth, positions=np.arange(len(truth)))
    privatized = truth.with_rows(_rows(private, truth.names, len(truth)))
    parts = truth.split(split, rng.child("split"), pilot=pilot)
    normalisation = Normalisation.learn(parts.pilot)
    # Overlapping runs are more evidence to learn from; those that are judged do not overlap.
    known, held_out = (
        SignalEvidence.of(part, privatized.take(part.positions), normalisation, length=sequence, step=step)
        for part, step in zip(parts, (max(sequence // 4, 1), sequence), strict=True)
    )
    attack = attack_signal(
        known,
        held_out,
        adversaries=signal_adversaries(quick=quick, network=network),
        rng=rng.child("attack"),
        progress=progress,
    )
    return attack, utility(normalisation.apply(truth.rows), normalisation.standardise(privatized.rows))


def _rows(private: Any, names: tuple[str, ...], count: int) -> FloatArray:
    """The privatized features; ids and times of the table are not looked at."""
    import duckdb

    table = open_table(private)
    types = column_types(table)
    for name in names:
        if name not in types:
            raise InputError(
                f"{table.name}: no column {name!r}; expected the features of the truth (--truth)"
            )
    columns = ", ".join(f"CAST({quote_name(name)} AS DOUBLE) AS f{at}" for at, name in enumerate(names))
    with duckdb.connect() as connection, reading(table.name):
        found = connection.sql(f"SELECT {columns} FROM {table.relation(connection)}").to_arrow_table()
    if len(found) != count:
        raise InputError(
            f"{table.name}: {len(found)} rows; expected the {count} complete rows of the truth (--truth)"
        )
    rows = np.column_stack([np.asarray(column.to_numpy(), dtype=np.float64) for column in found.columns])
    if not np.isfinite(rows).all():
        raise InputError(
            f"{table.name}: a privatized value is missing; expected what 'signal privatize' wrote"
        )
    return rows
