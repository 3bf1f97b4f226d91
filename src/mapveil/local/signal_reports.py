"""Coverage by randomized reports: where a phone measured, and whether weak or strong, under local privacy."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, NamedTuple

import numpy as np

from mapveil.engines.contributions import user_cells
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.local.randomizers.local_hashing import hashed_nodes
from mapveil.local.randomizers.randomizer import Tally
from mapveil.maps.density_map import DensityMap
from mapveil.maps.proportion_map import EstimatedLabels
from mapveil.mechanisms.mechanism import Mechanism, charged_to, held_for, tiling_of
from mapveil.mechanisms.signal_sums import COVERAGE_UNITS, FINEST_LEVEL, check_residuals
from mapveil.privacy.account import OWN, Account
from mapveil.privacy.claim import (
    Adversary,
    Assumes,
    ContributionBound,
    Neighbouring,
    Norm,
    Share,
    TrustModel,
    Unit,
)
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.queries import Estimate, Progress, Raster
from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Outside
from mapveil_client.errors import InputError
from mapveil_client.level_encoding import LevelEncoding
from mapveil_client.local.cell_labels import LABELS, CellLabelReports
from mapveil_client.randomness.random import Randomness, as_randomness

_REPORT: Final = "reports of each unit"


class ReportDesign(NamedTuple):
    """The public facts that reports are made and read by."""

    raster: Raster  # of the tiling
    encoding: LevelEncoding  # the one level of squares
    law: CellLabelReports

    def squares(self, cells: IntArray) -> IntArray:
        """The square of each cell, -1 where nobody can be, shape (cells,)."""
        return self.encoding.positions(self.raster.site[cells])[:, 0]


@dataclass(frozen=True, kw_only=True)
class SignalReports(Mechanism):
    r"""Ask every unit for a bounded number of randomized (cell, label) pairs.

    A unit draws ``reports`` entries of its contribution (:mod:`mapveil.analysis.coverage_contributions`) in proportion
    to their weights: a cell that it measured, and *strong* with the probability :math:`\tfrac12 (1 + r / B)`, else
    *weak*. Each is sent by local hashing over the pairs of a cell and a label, with an equal part of epsilon. The
    unbiased numbers of both labels stand for the sums of :class:`~mapveil.mechanisms.signal_sums.SignalSums`:
    B times their difference is the sum of clipped residuals.

    Cells are the nodes of the level whose number is nearest to

    .. math:: m^2 = \frac{\sqrt 2\, n}{c\, \sigma}, \qquad \sigma^2 = \frac{2 n v}{k}

    where: n is the number of units, k is ``reports``, v the variance of one report's term of a pair's estimate, c is
    ``c``: the rule of Qardaji, Yang, Li (ICDE 2013) with the noise of the reports. n is public: who reports is.

    Source: Wang, Blocki, Li, Jha (2017) for the reports; J. Duchi, M. Jordan, M. Wainwright, "Minimax optimal
    procedures for locally private estimation" (2018), for a bounded value as one of its two ends.

    Parameters
    ----------
    depth : int, optional
        The level, instead of the rule's; at most 5 and the tiling's own.
    reports : int
        Reports of a unit, from 1 to 16. Each has a part of epsilon, so that one is the most exact.
    c : float
        The rule's constant, above 0.
    unit : str
        As for :class:`~mapveil.mechanisms.signal_sums.SignalSums`.
    """

    name: ClassVar[str] = "signal-reports"
    summary: ClassVar[str] = (
        "each client randomizes where it measured, and whether weaker than a published map"
    )
    source: ClassVar[str] = "Wang et al. 2017 over pairs of a cell and a label"

    depth: int | None = None
    reports: int = 1
    c: float = 8.0
    unit: str = "user"

    def __post_init__(self) -> None:
        super().__post_init__()
        held = self.depth is None or 0 <= self.depth <= FINEST_LEVEL
        self._check(held, "depth", f"a level from 0 to {FINEST_LEVEL}, or none")
        self._check(1 <= self.reports <= 16, "reports", "a whole number from 1 to 16")
        self._check_positive("c")
        self._check(self.unit in COVERAGE_UNITS, "unit", f"one of {', '.join(COVERAGE_UNITS)}")

    def design(self, tiling: Tiling, units: int) -> ReportDesign:
        """The squares and the law of the reports of so many units, which are public. Run by: the server."""
        raster = Raster.of(tiling.lattice())
        encoding = LevelEncoding.of_members(raster.depth, (self._level(raster, units),), raster.members)
        return ReportDesign(raster, encoding, self._law(encoding.length))

    def _law(self, cells: int) -> CellLabelReports:
        return CellLabelReports(cells, self.budget, self.reports)

    def _level(self, raster: Raster, units: int) -> int:
        if self.depth is not None:
            return min(self.depth, raster.depth)

        def off(level: int) -> float:
            cells = int(raster.members.reshape(1 << (2 * level), -1).any(axis=1).sum())
            law = self._law(cells)
            variance = 2 * hashed_nodes(law, np.arange(1), np.zeros(law.symbols), 1.0).variance
            wanted = min(math.sqrt(2 * max(units, 1) * self.reports / variance) / self.c, 2.0**62)
            return abs(math.log(cells / max(wanted, 1.0)))

        return min(range(min(raster.depth, FINEST_LEVEL) + 1), key=off)

    def release(
        self,
        points: Points,
        tiling: Tiling | None = None,
        *,
        account: Account | None = OWN,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
    ) -> DensityMap:
        """Simulate a whole collection in this process: every client's half, and the server's.

        Parameters
        ----------
        points : Points
            Contributions, with labels 0 (weak) and 1 (strong); a unit without any in the region does not report.
        tiling, account, rng, progress
            As for :meth:`mapveil.local.local_mechanism.LocalMechanism.release`.

        Raises
        ------
        InputError
            The table cannot be used, or has no labels.
        """
        check_residuals(points)
        stream = as_randomness(rng)
        tell = progress or (lambda step, done: None)
        cells = tiling_of(points, tiling)
        with held_for(points, cells, account) as held:
            charges = self.charges(account, held, cells, seeded=stream.seeded)
            tell("collect reports", 0.0)
            found = user_cells(held, cells, Outside.DROP)
            starts = np.append(found.starts[:-1][np.diff(found.starts) > 0], found.cells.size)
            design = self.design(cells, starts.size - 1)
            labels = np.asarray(found.labels, dtype=np.int64)
            if labels.size and (labels.min() < 0 or labels.max() >= LABELS):
                raise InputError(
                    f"{points.source}: labels must be 0 (weak) and 1 (strong), got another number"
                )
            pairs = design.squares(found.cells) * LABELS + labels

            def ask() -> Tally:
                symbols = design.law.randomize(starts, pairs, found.weights, stream)
                return Tally(np.bincount(symbols, minlength=design.law.symbols), symbols.size)

            with charges:
                charges.spend(self.budget)
                tally = charges.keep(_REPORT, Tally, ask)
                made = self.estimate(tally, design, cells, seeded=stream.seeded)
        tell("collect reports", 1.0)
        return charged_to(dataclasses.replace(made, guarantee=made.guarantee.as_simulation()), charges)

    def estimate(
        self,
        tally: Tally,
        design: ReportDesign,
        tiling: Tiling,
        *,
        seeded: bool = False,
    ) -> DensityMap:
        """The map of a tally, with the estimates of both labels of every square. Run by: the server.

        Parameters
        ----------
        tally : Tally
            Counts of the reports.
        design : ReportDesign
            See :meth:`design`.
        tiling : Tiling
            The cells of the map.
        seeded : bool
            Whether the reports were made with a seed.
        """
        raster, encoding, law = design
        units = tally.reports / self.reports
        noise = hashed_nodes(law, np.arange(law.pairs), tally.counts.astype(np.float64), 1.0)
        by_label = (units * noise.estimates).reshape(-1, LABELS)
        users = np.maximum(by_label.sum(axis=1), 0.0)
        measured = EstimatedLabels(
            encoding.groups(0),
            by_label.sum(axis=1),
            self.budget,
            1,
            reports=tally.reports,
            variance=(LABELS * noise.variance + noise.slope) / self.reports**2,
            step=noise.step / self.reports,
            slope=noise.slope / self.reports**2,
            independent=True,
            by_label=by_label,
            reports_each=self.reports,
        )
        inside = _members_of(encoding, raster)
        node = encoding.positions(np.arange(raster.members.size))[:, 0]
        density = np.where(node >= 0, (users / np.maximum(inside, 1))[node], 0.0) * raster.members
        on = raster.on_cells(Estimate(np.asarray(density, dtype=np.float64), (measured,)))
        return DensityMap(
            values=on.values,
            tiling=tiling,
            guarantee=self.guarantee((Share(_REPORT, self.budget),), seeded=seeded),
            method=self.name,
            parameters=self.parameters(),
            measurements=on.measurements,
            notes=(
                f"{tally.reports} reports of {'one square' if encoding.length == 1 else f'{encoding.length} squares'}, "
                f"each weak or strong, "
                f"{self.reports} of each {self.unit}",
            ),
        )

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release, about one ``unit``."""
        self._spent(shares)
        unit = Unit(self.unit)
        return Guarantee(
            model=TrustModel.LOCAL,
            unit=unit,
            neighbours=Neighbouring.REPLACE_ONE,
            epsilon=self.budget,
            adversary=Adversary.REPORTS,
            bound=ContributionBound(Norm.REPORTS, Fraction(self.reports)),
            assumptions=(
                Assumes.ONE_CLIENT(),
                Assumes.ONE_CONTRIBUTION() if unit is Unit.USER else Assumes.COMPOSES(),
                Assumes.CLIENT_RANDOMNESS(),
                Assumes.PARTICIPATION_PUBLIC(),
                Assumes.PILOT_PUBLIC(),
            ),
            shares=shares,
            seeded=seeded,
        )


def _members_of(encoding: LevelEncoding, raster: Raster) -> IntArray:
    """Number of cells on each node."""
    node = encoding.positions(np.arange(raster.members.size))[:, 0]
    kept = node >= 0
    return np.bincount(node[kept], raster.members[kept], encoding.length).astype(np.int64)
