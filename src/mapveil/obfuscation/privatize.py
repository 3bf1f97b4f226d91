"""Files of measurements privatized as the clients of their users would, and read back by a server."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.formats.csv import write_csv_table
from mapveil.geo.measurements import LAT, LON, RSS, Measurements
from mapveil.geo.read_measurements import STRONGEST_DBM, WEAKEST_DBM, read_measurements
from mapveil.geo.read_points import open_table
from mapveil.geo.tables import connect, reading
from mapveil.obfuscation.export.privatizer_file import fingerprint
from mapveil.obfuscation.privatized_file import METADATA_KEY, REPORTS_KEY, ROWS_KEY, parquet_rows_hash
from mapveil.obfuscation.privatizers.category import Category
from mapveil.obfuscation.privatizers.map_error import learn_map_error
from mapveil.obfuscation.privatizers.privatizer import (
    FittedPrivatizer,
    Privatizer,
    check_date,
    find_privatizer,
)
from mapveil.privacy.claim import Assumes
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import IntArray
from mapveil_client.epsilon import EpsilonLike
from mapveil_client.errors import BudgetExceeded, InputError, check
from mapveil_client.randomness.random import Randomness, as_randomness
from mapveil_client.report_account import ReportBudget, ReportTotal, compose

if TYPE_CHECKING:
    import pyarrow

DAYS: Final = 30
"""Days after which phones refuse a privatizer, by default: operators fit again every month (a convention)."""

_MOST_DAYS: Final = 3650
_ERROR_ROWS: Final = 20_000  # of the pilot, privatized to learn the error of a map: a fit stays fast
_RANGES: Final = {LAT: (-90.0, 90.0), LON: (-180.0, 180.0), RSS: (WEAKEST_DBM, STRONGEST_DBM)}


@dataclass(frozen=True, eq=False, repr=False)
class PrivatizedTable:
    """A privatized table with its guarantee.

    Parameters
    ----------
    table : pyarrow.Table
        The columns of the source, in its order and types.
    guarantee : Guarantee
        The guarantee of one report.
    emptied : tuple of str
        Columns that were neither privatized nor kept.
    notes : tuple of str
        Remarks for a reader.
    total : ReportTotal or None
        All reports together that the budget allows a user; None where no budget bounds them.
    """

    table: pyarrow.Table
    guarantee: Guarantee
    emptied: tuple[str, ...]
    notes: tuple[str, ...]
    total: ReportTotal | None


def fit_privatizer(
    pilot: Measurements,
    privatizer: str | Privatizer,
    options: Mapping[str, Any] | None = None,
    *,
    rng: Randomness | int | None = None,
    progress: Callable[[str, float], None] | None = None,
    null_code: bool = True,
    category_epsilon: EpsilonLike = 1,
    days: int | None = DAYS,
    today: date | None = None,
) -> FittedPrivatizer:
    """Fit a privatizer on measurements of people who opted in. Run by: the curator of the pilot, who sees them.

    Parameters
    ----------
    pilot : Measurements
        The pilot's rows.
    privatizer : str or Privatizer
        A name of the table of privatizers, or one with its parameters.
    options : mapping, optional
        Parameters of a privatizer that is given by name.
    rng, progress : optional
        The source of bits; called with a step's name and its finished fraction.
    null_code : bool
        Whether a privatizer that proves nothing answers rows unlike the pilot empty.
    category_epsilon : int, float, str, Decimal or Fraction
        Epsilon of each category of a measurement.
    days : int, optional
        Days after which phones refuse it; None for never.
    today : date, optional
        The day (UTC) that they are counted from; the clock's where none is given.

    Raises
    ------
    ParameterError
        No such privatizer or option, or a value outside its range.
    InputError
        The pilot is too small.
    """
    chosen = find_privatizer(privatizer).make(options) if isinstance(privatizer, str) else privatizer
    check(days is None or 1 <= days <= _MOST_DAYS, "days", f"from 1 to {_MOST_DAYS}", days)
    stream = as_randomness(rng)
    fitted = chosen.fit(
        pilot,
        rng=stream.child("fit"),
        progress=progress,
        null_code=null_code and chosen.answers_null,
        category_epsilon=category_epsilon,
        expires=None if days is None else _today(today) + timedelta(days=days),
    )
    # A map of reports errs by what privatizing moved: learnt here, where the truth is known.
    own = stream.child("map error")
    known = pilot.sample(_ERROR_ROWS, own.child("rows"), length=chosen.sequence)
    reports = fitted.reports(known, rng=own.child("reports"))
    return replace(fitted, map_error=learn_map_error(known, reports, own.child("halves").generator()))


def privatize(
    fitted: FittedPrivatizer,
    source: Any,
    *,
    keep: Sequence[str] = (),
    budget: ReportBudget | None = None,
    rng: Randomness | int | None = None,
    progress: Callable[[str, float], None] | None = None,
    today: date | None = None,
    **columns: Any,
) -> PrivatizedTable:
    """Privatize the features of a table, row by row, and empty its other columns. Run by: a simulation of the clients.

    Privatized values are brought into the range of their column (degrees, dBm, whole numbers where the source has
    them): that is processing after the privatizer, which no promise depends on. Categories of text stay text. Where the
    source has no types (CSV), other categories become whole numbers where the pilot's are, and further features
    numbers. The record in the file states the
    first and the last day of the reports, which certificates need and the guarantee names as not protected. Reports are
    shuffled, the runs of a user apart; a seeded run, which is not for release, keeps the order of the source.

    Parameters
    ----------
    fitted : FittedPrivatizer
        The privatizer that the clients hold.
    source : path, str, sequence of paths, frame or relation
        As :func:`mapveil.read_points` takes; its features are the columns of ``fitted``.
    keep : sequence of str
        Columns left as they are, which no guarantee covers; others that are no feature are emptied.
    budget : ReportBudget, optional
        Of each phone: rows of a user beyond it are left out, as the account on the phone refuses them.
    rng, progress : optional
        The source of bits; called with a step's name and its finished fraction.
    today : date, optional
        The day (UTC) by which the privatizer may have expired; the clock's where none is given.
    **columns
        ``user``, ``lat``, ``lon``, ``rss``, ``time`` and ``fill``, as for :func:`mapveil.read_measurements`.

    Raises
    ------
    InputError
        A column is missing, or one to keep is a feature; a row cannot be read.
    PromiseError
        The privatizer has expired.
    BudgetExceeded
        The budget allows no report.
    """
    import pyarrow

    check_date(fitted.expires, _today(today))
    opened = open_table(source)
    measurements = read_measurements(opened, names=fitted.names, texts=fitted.texts, **columns)
    with connect() as connection, reading(opened.name):
        whole = connection.sql(f"SELECT * FROM {opened.relation(connection)}").to_arrow_table()
    for name in keep:
        if name not in whole.column_names or name in fitted.names:
            free = ", ".join(each for each in whole.column_names if each not in fitted.names) or "none"
            raise InputError(
                f"{opened.name}: {name!r} cannot be kept; columns that are not privatized: {free}"
            )
    stream, tell = as_randomness(rng), progress or (lambda step, done: None)
    notes = list(measurements.notes)
    if budget is not None:
        measurements = _within(budget, fitted, measurements, notes)
    tell("privatize", 0.0)
    rows = fitted.reports(measurements, rng=stream)
    if not stream.seeded:
        # Rows in the order of the source are of one user in one place: reports arrive in any order.
        order = _shuffled(measurements, fitted.privatizer.sequence, stream.child("order").generator())
        measurements, rows = measurements.take(order), rows[order]
    tell("privatize", 1.0)
    for at, (low, high) in _RANGES.items():
        outside = float(((rows[:, at] < low) | (rows[:, at] > high)).mean())
        if outside:
            notes.append(
                f"{outside:.1%} of the privatized {fitted.names[at]} were brought into {low:g} .. {high:g}"
            )
            rows[:, at] = np.clip(rows[:, at], low, high)
    taken = whole.take(pyarrow.array(measurements.positions))
    guarantee, period = fitted.guarantee(seeded=stream.seeded).as_simulation(), _period(measurements)
    if period is not None:
        guarantee = replace(guarantee, assumptions=(*guarantee.assumptions, Assumes.PERIOD_PUBLIC()))
    untyped = all(pyarrow.types.is_string(field.type) for field in taken.schema)
    categories = {each.column: each for each in fitted.categories}
    whole_categories = {at for at, each in categories.items() if (each.values == np.rint(each.values)).all()}
    if keep:
        guarantee = replace(
            guarantee,
            assumptions=(
                *guarantee.assumptions,
                Assumes.KEPT_COLUMNS(columns=", ".join(map(repr, sorted(set(keep))))),
            ),
        )
    emptied, kept, kinds = [], [], []
    for field in taken.schema:
        kind = field.type
        if field.name in fitted.names:
            at = fitted.names.index(field.name)
            if field.name in fitted.texts:
                made = _texts(rows[:, at], categories[at], kind)
                kind = made.type
            else:
                if untyped:
                    kind = pyarrow.int64() if at in whole_categories else pyarrow.float64()
                made = _typed(rows[:, at], kind)
            kept.append(made)
        elif field.name in keep:
            kept.append(taken[field.name])
        else:
            emptied.append(field.name)
            kept.append(pyarrow.nulls(len(taken), kind))
        kinds.append(pyarrow.field(field.name, kind))
    total = None
    if budget is not None and (most := budget.most(fitted.report_cost)) is not None:
        total = compose({fitted.report_cost: most}, budget.delta)
    record = {
        "privatizer": fitted.privatizer.name,
        "fingerprint": fingerprint(fitted),
        "period": period,
        REPORTS_KEY: len(rows),
        "order": "kept" if stream.seeded else "shuffled",
        "empty": float(np.isnan(rows).all(axis=1).mean()) if len(rows) else 0.0,
        "per_user": total_record(total),
        "parameters": fitted.privatizer.parameters(),
        "privatized": list(fitted.names),
        "texts": fitted.texts,
        "kept": list(keep),
        "map_error": None if fitted.map_error is None else fitted.map_error._asdict(),
        "guarantee": guarantee.to_dict(),
        "in_words": guarantee.in_words(),
    }
    schema = pyarrow.schema(kinds, {METADATA_KEY: json.dumps(record).encode()})
    table = pyarrow.Table.from_arrays(kept, schema=schema)
    return PrivatizedTable(table, guarantee, tuple(emptied), tuple(notes), total)


def total_record(total: ReportTotal | None) -> dict[str, Any] | None:
    """The total as a JSON-ready record; epsilon is null where nothing bounds it."""
    if total is None:
        return None
    return {**total._asdict(), "epsilon": total.epsilon if total.bounded else None}


def _today(given: date | None) -> date:
    return datetime.now(UTC).date() if given is None else given


def _period(measurements: Measurements) -> list[str] | None:
    """The first and the last day (UTC) of reports: of the table, and not protected."""
    if measurements.time is None or not len(measurements):
        return None
    ends = (measurements.time.min(), measurements.time.max())
    return [np.datetime64(int(each), "us").astype("datetime64[D]").item().isoformat() for each in ends]


def _shuffled(measurements: Measurements, length: int, draw: np.random.Generator) -> IntArray:
    """A random order of the users' runs of so many rows, each run's rows together; shape (rows,)."""
    order = measurements.sequences(1)[:, 0]
    users = measurements.users[order]
    rank = np.arange(len(order)) - np.searchsorted(users, users)
    run = np.cumsum(rank % length == 0) - 1
    return np.asarray(order[np.argsort(draw.permutation(len(order))[run], kind="stable")])


def _within(
    budget: ReportBudget, fitted: FittedPrivatizer, measurements: Measurements, notes: list[str]
) -> Measurements:
    """The rows that phones with such a budget report: the first of each user."""
    most = budget.checked().most(fitted.report_cost)
    if most == 0:
        raise BudgetExceeded(
            "the budget of a phone allows no report of this privatizer; nothing is privatized"
        )
    if most is None:
        return measurements
    order = measurements.sequences(1)[:, 0]
    users = measurements.users[order]
    rank = np.arange(len(order)) - np.searchsorted(users, users)
    kept = np.sort(order[rank < most * fitted.privatizer.sequence])
    if len(kept) < len(measurements):
        notes.append(
            f"{len(measurements) - len(kept)} of {len(measurements)} rows are left out: a phone's account allows "
            f"{most} reports"
        )
    return measurements.take(kept)


def write_privatized(privatized: PrivatizedTable, path: str | Path) -> None:
    """Write Parquet (with the guarantee inside) or CSV (with the guarantee beside it), whole or not at all.

    Raises
    ------
    InputError
        Another suffix, or a place that cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".parquet", ".csv"):
        raise InputError(f"{path}: privatized measurements are written as .parquet or .csv")
    if suffix == ".csv":
        write_csv_table(privatized.table, _csv_record(privatized.table), path)
        return
    from pyarrow import parquet

    record = json.loads(privatized.table.schema.metadata[METADATA_KEY])
    with atomic_path(path) as place:
        # Twice: the metadata, which come after the rows, hold the rows' hash.
        parquet.write_table(privatized.table, place, compression="zstd")
        text = json.dumps(record | {ROWS_KEY: parquet_rows_hash(place)})
        parquet.write_table(
            privatized.table.replace_schema_metadata({METADATA_KEY: text}), place, compression="zstd"
        )


def _csv_record(table: pyarrow.Table) -> str:
    """The record beside a CSV, with a hash of its rows: others must not be taken for them."""
    from pyarrow import csv

    rows = io.BytesIO()
    csv.write_csv(table, rows)
    record = json.loads(table.schema.metadata[METADATA_KEY])
    return json.dumps(record | {ROWS_KEY: hashlib.sha256(rows.getbuffer()).hexdigest()})


def _texts(values: npt.NDArray[np.float64], category: Category, kind: pyarrow.DataType) -> pyarrow.Array:
    """The texts of a category's reports, null where NaN; in the column's own type where that is one of text."""
    import pyarrow

    at = np.searchsorted(category.values, np.where(np.isnan(values), category.values[0], values))
    taken = pyarrow.array(category.texts, pyarrow.string()).take(pyarrow.array(at, mask=np.isnan(values)))
    large = pyarrow.types.is_large_string(kind)
    return taken.cast(kind) if large else taken


def _typed(values: npt.NDArray[np.float64], kind: pyarrow.DataType) -> pyarrow.Array:
    """Numbers in a column's own type, null where NaN; whole ones are rounded and kept within it."""
    import pyarrow

    types, empty = pyarrow.types, np.isnan(values)
    values = np.where(empty, 0.0, values)
    if types.is_boolean(kind):
        return pyarrow.array(values >= 0.5, mask=empty)
    if types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        high = float(limits.max)
        if high > limits.max:  # of 64 bits: float64 rounds it up
            high = np.nextafter(high, 0)
        whole = np.clip(np.rint(values), limits.min, high).astype(kind.to_pandas_dtype())
        return pyarrow.array(whole, mask=empty)
    if types.is_decimal(kind):
        # What does not fit would become 0; half a unit off the end keeps rounding from leaving it.
        most = 10.0 ** (kind.precision - kind.scale) - 10.0**-kind.scale
        return pyarrow.array(np.clip(values, -most, most), mask=empty).cast(kind, safe=False)
    if types.is_floating(kind):
        return pyarrow.array(values.astype(kind.to_pandas_dtype()), mask=empty)
    return pyarrow.array(values, mask=empty).cast(kind, safe=False)
