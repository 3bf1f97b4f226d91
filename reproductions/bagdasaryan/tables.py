"""Tables 1, 2 and 3 of Bagdasaryan et al. (2022), beside the paper's figures."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from reproductions.bagdasaryan.claims import table_1_claims, table_2_claims, table_3_claims
from reproductions.bagdasaryan.data import TOKYO, TOKYO_DEPTH
from reproductions.bagdasaryan.runs import COLUMN_L1, EPIDEMIC, PLAIN, Asked, Crowd, jobs_of
from reproductions.bagdasaryan.sections import Shown
from reproductions.data import printed_figures
from reproductions.driver import Section
from reproductions.report import Report, Table
from reproductions.results import Results

ALGORITHM_2: Final = "Algorithm 2"


_PRINTED: Final = printed_figures("bagdasaryan")

_SETTINGS: Final = (
    ("10k users", 10_000, 0.0),
    ("100k users", 100_000, 0.0),
    ("100k users, 10 % drop out", 100_000, 0.1),
)
"""Title, users and dropout of each pair of columns of Table 1."""

_TRIED: Final = (3, 4)  # one of these is always the best
_GEOMETRIC: Final = (("growth", 2 ** (-1 / 3)),)  # more of the budget for higher levels, as the paper has it

_ROWS_1: Final = (
    Asked("non-private", PLAIN, best_level=True),
    Asked("flat", "laplace"),
    Asked("hierarchical", "hierarchical", best_level=True),
    Asked("CM sketch", "count-min", levels=_TRIED),
    Asked("adaptive grid", "adaptive-grid"),
    Asked("spatial decomposition", "spatial-decomposition", _GEOMETRIC, levels=_TRIED),
    Asked(ALGORITHM_2, "adaptive"),
    Asked("uniform grid (ours)", "uniform"),
    Asked("multiscale (ours)", "multiscale", (("rounds", 1),)),
)


def _with_dropout(asked: Asked, dropout: float) -> Asked:
    tolerated = (("tolerated_dropout", dropout),) if dropout and asked.method != PLAIN else ()
    return asked._replace(options=(*asked.options, *tolerated), dropout=dropout)


_JOBS_1: Final = jobs_of(
    *(
        Crowd(f"table 1, {title}", users, tuple(_with_dropout(asked, dropout) for asked in _ROWS_1))
        for title, users, dropout in _SETTINGS
    )
)


def _printed(table: str, row: str, column: str) -> str:
    value = _PRINTED.get((table, row, column))
    return "" if value is None else f"{value:,.0f}" if column.endswith("vector") else f"{value:.2f}"


def _report_1(results: Results) -> Report:
    labels = [asked.label for asked in _ROWS_1]
    header = ["method"]
    body: list[list[str]] = [[label] for label in labels]
    for title, _, _ in _SETTINGS:
        found = {label: results.of(group=f"table 1, {title}", label=label) for label in labels}
        best = min(found[label].mean for label in labels[1:])
        header += [f"{title}: MSE, 1e-13", "paper", "vector", "paper"]
        for line, (label, mine) in zip(body, found.items(), strict=True):
            mark = "*" if mine.mean == best else ""
            error, vector = (_printed("table 1", label, f"{title}: {of}") for of in ("MSE", "vector"))
            line += [f"{mark}{Shown()(mine)}", error, f"{mine.length:,.0f}", vector]
    note = (
        "Non-private, hierarchical, CM sketch and spatial decomposition show the level that the truth picks, as "
        "the paper does. Of the paper's vectors the CM sketch's is 400,000 in its text, the spatial decomposition's "
        "counts the leaves only. How it treats the negative sums of the flat row it does not say; here they are zero."
    )
    table = Table("Table 1: density of Manhattan, ε = 1, shards of 10,000", header, body, note)
    return Report([table], claims=table_1_claims(results))


TABLE_1: Final = Section("table 1", _JOBS_1, _report_1)


class _Row2(NamedTuple):
    """A row of Table 2."""

    asked: Asked
    gamma: int
    clip: int
    rounding: str


def _tokyo_rows() -> tuple[_Row2, ...]:
    # The paper gives no calibration for Tokyo. With Manhattan's c = 0.1 the rounds end at level 3 of 6.
    calibrated = (("c", 1.0), ("b", 1.0))
    rows = [
        _Row2(Asked("non-private", PLAIN), 1, 16, ""),
        _Row2(Asked("single location", "adaptive", (("scale", 1), *calibrated), clip_bits=16), 1, 16, ""),
        _Row2(Asked("single location, c = 0.1, b = 2", "adaptive", (("scale", 1),), clip_bits=16), 1, 16, ""),
    ]
    for rounding in ("stochastic", "largest-remainder"):
        rows += [
            _Row2(
                Asked(
                    f"multi-location, {rounding}, scale {gamma:g}, {clip} bits",
                    "adaptive",
                    (("scale", gamma), ("rounding", rounding), *calibrated),
                    clip_bits=clip,
                ),
                gamma,
                clip,
                rounding,
            )
            for gamma, clip in ((1, 16), (100, 16), (100, 32), (10_000, 32), (1_000_000, 32))
        ]
    for label, options in (
        ("multiscale (ours)", (("rounds", 1),)),
        ("multiscale, two rounds (ours)", (("rounds", 2),)),
        ("multiscale at the grid's depth (ours)", (("rounds", 1), ("depth", TOKYO_DEPTH))),
    ):
        rows.append(
            _Row2(Asked(label, "multiscale", (("scale", 1024), *options)), 1024, 0, "largest-remainder")
        )
    return tuple(rows)


_ROWS_2: Final = _tokyo_rows()


_JOBS_2: Final = jobs_of(
    Crowd("table 2", None, tuple(row.asked for row in _ROWS_2), TOKYO, ("mse", COLUMN_L1))
)


def _report_2(results: Results) -> Report:
    errors, columns = Shown(1e7), Shown(1e2)
    header = [
        "method", "scale", "bits", "rounding", "MSE, 1e-7", "paper", "L1 (column), 1e-2", "paper",
        "MSE of users, 1e-7", "vector", "paper",
    ]  # fmt: skip
    body = []
    for row in _ROWS_2:
        label = row.asked.label
        visits = results.of(label=label, against="visits")
        column = results.of(COLUMN_L1, label=label, against="visits")
        users = results.of(label=label, against="users")
        paper = [_printed("table 2", label, column) for column in ("MSE", "L1", "vector")]
        bits = int(np.max(results.values("bits", label=label))) if row.clip == 0 else row.clip
        body.append(
            [
                label.partition(", scale")[0].replace(", stochastic", "").replace(", largest-remainder", ""),
                f"{row.gamma:,}",
                f"{bits}",
                row.rounding,
                errors(visits),
                paper[0],
                columns(column),
                paper[1],
                errors(users),
                f"{visits.length:,.0f}",
                paper[2],
            ]
        )
    note = (
        "MSE is against all visits, as in the paper (found by its non-private row); MSE of users is against the map "
        "in which each user counts 1, which is what is asked for. Sums wrap around at the bits given. c = 1 and b = 1 "
        "are our choice: the paper gives none, and with c = 0.1 the rounds end at level 3 of 6."
    )
    table = Table("Table 2: several places per user, Foursquare Tokyo on 64 x 64, ε = 1", header, body, note)
    return Report([table], claims=table_2_claims(results))


TABLE_2: Final = Section("table 2", _JOBS_2, _report_2)

_FIXED: Final = (("threshold", 10), ("schedule", "even"))
_LEVELS: Final = 10

_ROWS_3: Final = (
    Asked("no noise, T = 10", "adaptive", _FIXED, Fraction(10**6), best_of_rounds=_LEVELS),
    Asked("fixed ε, T = 10", "adaptive", _FIXED, best_of_rounds=_LEVELS),
    Asked("scheduled ε, T = 10", "adaptive", (("threshold", 10),)),
    Asked("scheduled ε, adaptive T", "adaptive"),
    Asked("the same, threshold of equation 6", "adaptive", (("threshold", "equation-6"),)),
    Asked("the same, threshold of Algorithm 2", "adaptive", (("threshold", "algorithm-2"),)),
    Asked("multiscale (ours)", "multiscale", (("rounds", 1),)),
)

_MEASURES: Final = (
    ("mse", "MSE, 1e-13", Shown()),
    (COLUMN_L1, "L1 (column), 1e-3", Shown(1e3)),
    ("floored_mape", "MAPE", Shown(1)),
    ("smape", "sMAPE", Shown(1)),
    ("maape", "MAAPE", Shown(1, 3)),
    ("l1", "L1 (all cells)", Shown(1, 3)),
)


def _report_3(results: Results) -> Report:
    header = ["algorithm"]
    for place, (_, title, _) in enumerate(_MEASURES):
        header += [title, "paper"] if place < 5 else [title]
    header += ["vector", "paper"]
    body = []
    for asked in _ROWS_3:
        line = [asked.label]
        for place, (metric, title, shown) in enumerate(_MEASURES):
            line.append(shown(results.of(metric, label=asked.label)))
            if place < 5:
                line.append(_printed("table 3", asked.label, title.partition(" (")[0].partition(",")[0]))
        line += [f"{results.of(label=asked.label).length:,.0f}", _printed("table 3", asked.label, "vector")]
        body.append(line)
    note = (
        "In the first two rows the truth picks the best of the maps after each of ten rounds, as the paper must have "
        "done to get its figures: after the last round they are far worse. The paper's L1 is the largest sum along "
        "a column (a matrix norm); the sum over all cells stands beside it."
    )
    table = Table("Table 3: ablation, 10,000 users of Manhattan, ε = 1", header, body, note)
    return Report([table], claims=table_3_claims(results))


TABLE_3: Final = Section("table 3", jobs_of(Crowd("table 3", 10_000, _ROWS_3, metrics=EPIDEMIC)), _report_3)
