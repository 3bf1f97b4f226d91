"""One window of a live series: the rows that count in it, and its map with the promise of the whole series."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mapveil.engines import user_sums
from mapveil.engines.contributions import located_rows
from mapveil.geo.files import parquet_files
from mapveil.geo.points import Points, id_text
from mapveil.geo.read_points import read_points
from mapveil.geo.tables import connection, quote_text, reading
from mapveil.maps.counted_windows import exhaustion_note, live_window
from mapveil.maps.density_map import DensityMap
from mapveil.maps.provenance import Provenance
from mapveil.maps.scene import Note
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.series_file import SeriesFacts, SeriesFile
from mapveil.mechanisms.series_promise import epsilon_charged, promise_of_series
from mapveil.mechanisms.window_runs import differs
from mapveil.privacy.claim import Share
from mapveil.privacy.population import ids_as_texts
from mapveil_client.epsilon import readable
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of_window(file: SeriesFile, table: Points, number: int, path: Path) -> Points:
    """The rows of a window, of users who may still count, in a file that is made."""
    import pyarrow as pa

    name = file.facts.windows.names[number]
    exhausted = pa.table({"id": file.exhausted()})
    with connection() as engine, reading(table.source):
        engine.register("exhausted", exhausted)
        scan = table.scan(engine)
        kind = str(engine.execute(f"DESCRIBE SELECT user_id FROM ({scan}) AS points").fetchall()[0][1])
        weight = ", weight" if table.columns.weight is not None else ""
        rows = f"SELECT user_id AS id, lon, lat{weight} FROM ({scan}) AS points WHERE label = {number}"
        texts = (
            ids_as_texts(rows, kind)
            if file.facts.same_ids
            else f"SELECT * REPLACE ({id_text('id', kind)} AS id) FROM ({rows}) AS ids"
        )
        hashed = f"md5(concat({quote_text(file.key)}, id))"
        engine.execute(
            f"COPY (SELECT {hashed} AS user_id, lon, lat{weight} FROM ({texts}) AS rows "
            f"WHERE {hashed} NOT IN (SELECT id FROM exhausted)) TO {quote_text(str(path))} (FORMAT parquet)"
        )
    found = read_points(path, user="user_id", weight="weight" if weight else None)
    source = f"{table.source}, users of window {name} who may still count"
    return replace(found, table=parquet_files((path,), source))


def users_present(week: Points, facts: SeriesFacts) -> pa.Table:
    """The users who count in a window: those with a row in a cell."""
    with located_rows(week, facts.tiling) as rows:
        return rows.connection.sql(f"SELECT DISTINCT user_id FROM ({rows.sql}) AS rows").to_arrow_table()


def map_of_window(file: SeriesFile, week: Points, number: int, provenance: Provenance) -> DensityMap:
    """Draw the map of a window, with the promise of the whole series, which holds for all its windows together.

    A user counts 1 in it, at epsilon / k; where runs of windows are protected, by budget absorption.
    """
    facts, name = file.facts, file.facts.windows.names[number]
    if facts.run is None:
        heat = Multiscale(epsilon=facts.epsilon / facts.most).release(week, facts.tiling, account=None)
    else:
        heat = _absorbed(file, week, number)
    released = len(file.released()) + 1
    about = live_window(file.spend, facts.windows, name, released, most=facts.most, run=facts.run)
    heat = replace(heat, parameters=heat.parameters | about)
    if facts.run is None:
        note = (
            f"window {name} of a live series: epsilon is for all its windows together, of which a user counts in at "
            f"most {facts.most}; this one costs {readable(facts.epsilon / facts.most)} of it"
        )
    else:
        note = (
            f"window {name} of a live series: epsilon is for a user's rows in any {facts.run} consecutive windows, and "
            f"{readable(epsilon_charged(facts))} for all {facts.windows.count} windows together"
        )
    guarantee = promise_of_series(heat.guarantee, facts)
    notes = (*heat.notes, note, *(Note(text, "warning") for text in exhaustion_note(heat)))
    title = facts.windows.title(number)
    if heat.stand_in:
        title += f"; by the map of {heat.stand_in}"
    return replace(heat, guarantee=guarantee, title=title, notes=notes, provenance=provenance)


def _absorbed(file: SeriesFile, week: Points, number: int) -> DensityMap:
    """The map of a window by budget absorption: its own, or the last that was published."""
    facts, budget, rng = file.facts, file.publications(), Randomness()
    sums = user_sums(week, facts.tiling)
    compared: tuple[Share, ...] = ()
    if budget.spent:
        last = file.map(max(budget.spent))
        compared = (Share("comparison with the last map", budget.unit),)
        if not differs(sums, last, budget, number, rng):
            stand_in = facts.windows.names[max(budget.spent)]
            note = f"window {stand_in} stands for this one, which the noise does not tell from it"
            # The noisy sums of another window have no interval that holds for this one.
            return replace(
                last,
                guarantee=replace(last.guarantee, shares=compared),
                measurements=(),
                stand_in=stand_in,
                repeated=last.measurements,
                notes=(*last.notes[:-1], note),
            )
    allowed = budget.of(number)
    heat = Multiscale(epsilon=allowed).release(sums, facts.tiling, account=None, rng=rng)
    file.publish(number, allowed)
    return replace(heat, guarantee=replace(heat.guarantee, shares=(*compared, *heat.guarantee.shares)))
