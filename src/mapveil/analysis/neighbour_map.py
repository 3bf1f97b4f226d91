"""Maps of the k nearest users of every cell: release, exports, picture, and records for private retrieval."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from os import PathLike
from typing import Any, Final

import numpy as np

from mapveil.analysis.nearest_users import NearestUsers, check_lists, nearest_users
from mapveil.geo.parse_tiling import tiling_for
from mapveil.geo.points import Points
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.maps.density_map import DensityMap, Detail
from mapveil.maps.scene import Layer, ScaleKind, Scene, Shading
from mapveil.mechanisms.release import release
from mapveil.privacy.account import OWN, Account
from mapveil.retrieval.records import Database
from mapveil.trust.queries import Progress
from mapveil_client.arrays import IntArray
from mapveil_client.epsilon import EpsilonLike
from mapveil_client.errors import InputError, ParameterError, check
from mapveil_client.randomness.random import Randomness

DEFAULT_CELLS: Final = "quadtree:5"
_CELL: Final = np.dtype("<i4")


@dataclass(frozen=True, eq=False)
class NeighbourMap(DensityMap):
    """A released map with, for each cell, its k nearest users. Made by :meth:`of`.

    Post-processing: it promises what its density map promises.

    Parameters
    ----------
    values, tiling, guarantee, method, parameters, measurements, notes, outside, rounds, version
        As for :class:`~mapveil.maps.density_map.DensityMap`.
    k : int
        Users in a list.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=2000, seed=1)
    >>> heat = mv.mechanisms.Multiscale(epsilon=1).release(city, mv.Grid(city.region, rows=12, columns=12))
    >>> near = NeighbourMap.of(heat, k=25)
    >>> near.lists.cell.shape, near.layers()[0].name
    ((144, 25), 'radius_25_m')
    """

    k: int = field(kw_only=True, default=25)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.k >= 1, "k", "at least 1", self.k)

    @classmethod
    def of(cls, heat: DensityMap, k: int) -> NeighbourMap:
        """The same map, with its k nearest users: fewer, with a note, where the map has fewer users.

        Run by: anybody who holds the map.

        Raises
        ------
        ParameterError
            k is below 1.
        """
        kept = {item.name: getattr(heat, item.name) for item in fields(DensityMap)}
        check(k >= 1, "k", "at least 1", k)
        if np.maximum(heat.values, 0).sum() < k - 0.5:
            note = f"the map has fewer than {k} users, so every list is shorter"
            kept["notes"] = (*dict.fromkeys((*heat.notes, note)),)
        return cls(**kept, k=k)

    @cached_property
    def lists(self) -> NearestUsers:
        """The k nearest users of every cell."""
        return nearest_users(self.values, self.tiling, self.k)

    def find_lists(self, progress: Progress) -> None:
        """Find :attr:`lists` now, told how far that is."""
        if "lists" not in self.__dict__:
            self.__dict__["lists"] = nearest_users(self.values, self.tiling, self.k, progress=progress)

    def layers(self) -> tuple[Layer, ...]:
        """The distance to the k-th nearest user, NaN where the map has fewer."""
        radius = np.where(np.isfinite(self.lists.radius_m), self.lists.radius_m, np.nan)
        title = f"distance to the {_ordinal(self.k)} nearest user"
        return (Layer(f"radius_{self.k}_m", title, "m", radius, Shading("linear")),)

    def scene(self, *, page: bool = False, scale: ScaleKind | None = None, detail: Detail = "cells") -> Scene:
        """The distance to the k-th nearest user, and on a page what the density map shows of every cell."""
        scene = self.cell_scene()
        (radius,) = self.layers()
        unit = radius.unit if page else f"m to the {_ordinal(self.k)} nearest user, darker is farther"
        shown = radius._replace(unit=unit)
        shown = shown._replace(shading=Shading(scale or "linear"))
        return scene._replace(
            title=f"How far the {self.k} nearest users are", layers=(shown, *scene.layers[:2]), main=2
        )

    def about(self) -> dict[str, Any]:
        """The metadata that are particular to a map of neighbours."""
        return {**super().about(), "neighbours": {"k": self.k}}

    def database(self, *, queries: int = 100) -> Database:
        """The lists for private retrieval: record i is what a user in cell i asks for. Run by: the server.

        k cells of 32 bits each, little-endian, -1 where there are fewer users; read by :func:`neighbour_cells`.
        """
        records = np.ascontiguousarray(self.lists.cell.astype(_CELL)).view(np.uint8)
        about = json.dumps(
            {"record": "cells of the nearest users", "k": self.k, "map": self.metadata()},
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
        )
        return Database.of(records, about.encode(), queries=queries)

    def nearest(self, lon: float, lat: float) -> dict[str, Any]:
        """The nearest users of one location, cell by cell, as a JSON-ready record.

        Parameters
        ----------
        lon, lat : float
            The location, degrees.

        Raises
        ------
        InputError
            The location is outside the map's region.
        """
        place = int(self.tiling.locate(np.array([lon]), np.array([lat]))[0])
        if place < 0:
            raise InputError(f"{lon:g},{lat:g}: is outside the map's region {self.tiling.region}")
        found = nearest_users(self.values, self.tiling, self.k, places=[place])
        listed = found.cell[0][found.cell[0] >= 0]
        cells, first, users = np.unique(listed, return_index=True, return_counts=True)
        order = np.argsort(first)
        centres = self.tiling.centres(cells[order])
        rows = zip(
            cells[order].tolist(),
            users[order].tolist(),
            found.distance_m[0][first[order]].tolist(),
            centres.lon.tolist(),
            centres.lat.tolist(),
            strict=True,
        )
        return {
            "place": [lon, lat],
            "cell": place,
            "radius_m": float(found.radius_m[0]),
            "neighbours": [
                {
                    "cell": at,
                    "users": many,
                    "distance_m": round(far, 1),
                    "lon": round(x, 6),
                    "lat": round(y, 6),
                }
                for at, many, far, x, y in rows
            ],
        }

    def write_lists(self, path: str | PathLike[str]) -> None:
        """Write the lists as CSV: one row a cell and neighbour, with the metadata beside it.

        Columns: ``cell``, ``rank`` from 1, ``neighbour`` (a cell), ``distance_m``.

        Raises
        ------
        InputError
            The file cannot be written.
        """
        import pyarrow as pa

        from mapveil.formats.csv import write_csv_table

        lists = self.lists
        listed = np.flatnonzero(lists.cell.ravel() >= 0)
        table = pa.table(
            {
                "cell": lists.place[listed // self.k],
                "rank": listed % self.k + 1,
                "neighbour": lists.cell.ravel()[listed],
                "distance_m": np.round(lists.distance_m.ravel()[listed], 1),
            }
        )
        write_csv_table(table, self.metadata_json(), path)


def neighbours(
    points: Points | DensityMap,
    tiling: Tiling | str | None = None,
    *,
    k: int = 25,
    epsilon: EpsilonLike | None = None,
    method: str | LocalMechanism | None = None,
    options: Mapping[str, Any] | None = None,
    region: Region | None = None,
    places_are_public: bool = False,
    accept_large_epsilon: bool = False,
    account: Account | None = OWN,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
) -> NeighbourMap:
    """Find the k nearest users of every cell, from randomized reports or from a released map.

    Parameters
    ----------
    points : Points or DensityMap
        A table, of which every user reports one randomized location; or a released map, which costs nothing further
        and takes none of the parameters below ``k``.
    tiling : Tiling or str, optional
        The cells, or their specification in ``region``; ``"quadtree:5"`` by default.
    k : int
        Users in a list, at least 1; fewer, with a note, where the map has fewer users.
    epsilon, method, options, region, places_are_public, accept_large_epsilon, account, rng, progress
        As for :func:`mapveil.mechanisms.release.release` with trust ``"local"``.

    Raises
    ------
    ParameterError
        k is out of range, or a map is given with parameters of a release; nothing is charged.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=500, seed=1)
    >>> heat = mv.release(city, mv.Grid(city.region, rows=8, columns=8), epsilon=1)
    >>> mv.neighbours(heat, k=5).lists.cell.shape
    (64, 5)
    """
    check(k >= 1, "k", "at least 1", k)
    if isinstance(points, DensityMap):
        given: dict[str, bool] = {
            "tiling": tiling is not None,
            "epsilon": epsilon is not None,
            "method": method is not None,
            "options": bool(options),
            "region": region is not None,
            "places_are_public": places_are_public,
            "accept_large_epsilon": accept_large_epsilon,
            "account": account is not OWN,
            "rng": rng is not None,
        }
        if any(given.values()):
            raise ParameterError(
                "a released map brings its own tiling, method and guarantee, and nothing is charged; leave out "
                + ", ".join(name for name, there in given.items() if there)
            )
        check_lists(k, points.tiling.size)
        return NeighbourMap.of(points, k)
    chosen = DEFAULT_CELLS if tiling is None else tiling
    cells = tiling_for(points, chosen, region, places_are_public=places_are_public)
    check_lists(k, cells.size)
    heat = release(
        points,
        chosen,
        epsilon=epsilon,
        method=method,
        trust="local",
        options=options,
        region=region,
        places_are_public=places_are_public,
        accept_large_epsilon=accept_large_epsilon,
        account=account,
        rng=rng,
        progress=progress,
    )
    return NeighbourMap.of(replace(heat, provenance=replace(heat.provenance, function="neighbours")), k)


def neighbour_cells(record: bytes) -> IntArray:
    """The cells of the nearest users in a retrieved record, nearest first. Run by: the client."""
    cells = np.frombuffer(record, dtype=_CELL).astype(np.int64)
    return cells[cells >= 0]


def _ordinal(k: int) -> str:
    ending = "th" if 10 <= k % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(k % 10, "th")
    return f"{k}{ending}"
