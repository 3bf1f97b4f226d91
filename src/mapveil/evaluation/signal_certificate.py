"""Certificates of privatized reports: what adversaries learnt from THESE reports, of other users and on later days.

A certificate is about one privatizer, by the hash of its file, and about one period. Adversaries are given users and
places of a part of the users in that period; they are judged on the other users, and on later days. What is measured of
a pilot says little of the weeks after it, so no figure of the pilot is repeated for them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mapveil.attacks.signal_adversary import BlindGuess
from mapveil.attacks.signal_attack import attack_parts, signal_adversaries
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.geo.measurements import LAT, LON
from mapveil.obfuscation.export.privatizer_file import fingerprint
from mapveil.privacy.claim import Assumes, Measured, Quantity
from mapveil_client.errors import InputError, check
from mapveil_client.randomness.random import Randomness, as_randomness

if TYPE_CHECKING:
    from mapveil.attacks.signal_adversary import SignalAdversary
    from mapveil.attacks.signal_score import SignalAttack
    from mapveil.geo.measurements import Measurements
    from mapveil.obfuscation.privatized_file import Provenance
    from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer, Progress
    from mapveil.privacy.guarantee import Guarantee

FORMAT: Final = "mapveil signal certificate 3"
"""Format name in the record."""


_DAY_US: Final = 86_400_000_000
OTHER_USERS, LATER_DAYS = "other users", "later days"
_BLIND: Final = BlindGuess.name
_WEAKER: Final = "not its full work"
_SLIVER: Final = (
    0.01  # of the rows, left out where they alone stretch the period: dates that clocks got wrong
)
_LONGEST_GAP: Final = 7  # days without rows at an end of the period: measurements by working week have 3
MOST_EMPTY: Final = 0.5  # of the reports: beyond it a certificate is about reports that say nothing
_LEAST_RUNS: Final = 30  # of each part: the standard error of a user error is then at most 0.09
_TAIL: Final = 0.005  # of true places at either end: one at latitude 0 would add kilometres to every mean


class Judged(NamedTuple):
    """The strongest adversaries on one part of the reports."""

    part: str  # OTHER_USERS or LATER_DAYS
    runs: int
    user_error: (
        float | None
    )  # fraction of the runs whose user the strongest names wrong; None of unknown users
    user_adversary: str | None
    location_error_m: float  # mean distance of the strongest's location from the true one
    location_adversary: str
    blind_user_error: float | None  # the same of a guess that sees no report
    blind_location_error_m: float
    users: int  # whose reports are judged
    user_error_users: int  # of them, those whom adversaries could name
    user_error_interval: tuple[float, float] | None  # 95 %, clustered by user; None of unknown users


@dataclass(frozen=True)
class SignalCertificate:
    """Success of the strongest adversaries on one privatizer's reports in one period.

    Parameters
    ----------
    fingerprint : str
        SHA-256 of the privatizer's file.
    first, last : date
        The period (UTC days).
    days : int
        Number of days in it that hold rows: more than half.
    left_out : int
        Number of rows before and after it, too few and too far from the others to certify those days.
    adversaries : tuple of str
        Those that were tried, with a remark where one was given less work than by default.
    judged : tuple of Judged
        Their success on other users, and on later days.
    worst_epsilon : float
        Epsilon of the worst case of one report; infinite where nothing bounds it.
    empty : float
        Fraction of empty reports (null codes).
    labelled_users, labelled_reports : int
        Users whose reports adversaries were given with user and place, and number of these reports.
    """

    fingerprint: str
    first: date
    last: date
    days: int
    left_out: int
    adversaries: tuple[str, ...]
    judged: tuple[Judged, ...]
    worst_epsilon: float
    empty: float
    labelled_users: int
    labelled_reports: int

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record; an infinite epsilon is null."""
        record = {"format": FORMAT, **dataclasses.asdict(self)}
        worst = self.worst_epsilon if math.isfinite(self.worst_epsilon) else None
        return {
            **record,
            "first": self.first.isoformat(),
            "last": self.last.isoformat(),
            "adversaries": list(self.adversaries),
            "judged": [each._asdict() for each in self.judged],
            "worst_epsilon": worst,
        }

    def about(self, provenance: Provenance | None) -> str | None:
        """The reason for which it says nothing of such reports; None where it is about them."""
        if provenance is None:
            return "the reports do not say which privatizer made them, and when"
        if provenance.fingerprint != self.fingerprint:
            return "the certificate is of another privatizer"
        if provenance.first < self.first or provenance.last > self.last:
            return (
                f"the reports are of {provenance.first} to {provenance.last}, the certificate of {self.first} to "
                f"{self.last}"
            )
        if provenance.kept:
            kept = ", ".join(map(repr, provenance.kept))
            return f"the reports keep {kept} as it was, which no adversary of the certificate was given"
        if provenance.empty > MOST_EMPTY:
            return f"{provenance.empty:.1%} of the reports are empty: they are of rows unlike the pilot"
        if any(each.endswith(f"({_WEAKER})") for each in self.adversaries):
            return (
                "an adversary was not given its full work, so that privacy looks higher than it is; expected a "
                "certificate made without --quick"
            )
        return None


def certify(
    fitted: FittedPrivatizer,
    measurements: Measurements,
    *,
    labelled: float = 0.7,
    later: float = 0.3,
    adversaries: Sequence[SignalAdversary] | None = None,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
) -> SignalCertificate:
    """Privatize true rows of a reporting period, and attack the reports. Run by: the evaluator; NOT private.

    Parameters
    ----------
    fitted : FittedPrivatizer
        The privatizer that phones hold.
    measurements : Measurements
        True rows of people who opted in during the reporting period; of at least two users and two days.
    labelled : float
        Fraction of the users whose reports adversaries are given with user and place.
    later : float
        Fraction of the rows on the last days, which adversaries are given nothing of.
    adversaries : sequence of SignalAdversary, optional
        :func:`mapveil.attacks.signal_attack.signal_adversaries` by default.
    rng, progress : optional
        The source of bits; called with a step's name and its finished fraction.

    Raises
    ------
    InputError
        The table has no times, one user or one day only, rows on less than half of the days of its period, too few
        rows, rows most of which are answered empty, or other columns than the privatizer.
    """
    for name, value in (("labelled", labelled), ("later", later)):
        check(0 < value < 1, name, "a fraction between 0 and 1", value)
    stream = as_randomness(rng)
    if len(measurements) < 3 * _LEAST_RUNS:
        raise InputError(
            f"{measurements.source}: {len(measurements)} rows; expected at least {3 * _LEAST_RUNS}: {_LEAST_RUNS} "
            "reports of labelled users, of other users and on later days each"
        )
    whole, measurements = len(measurements), _period(measurements)
    day = _days(measurements)
    days, counts = np.unique(day, return_counts=True)
    users = np.unique(measurements.users)
    if len(days) < 2 or len(users) < 2:
        raise InputError(
            f"{measurements.source}: {len(users)} users on {len(days)} days; a certificate is about other users and "
            "later days, so at least two of each are needed"
        )
    reached = np.cumsum(counts) / len(measurements)
    last = days[int(np.abs(reached[:-1] - (1 - later)).argmin())]
    count = min(max(round(labelled * len(users)), 1), len(users) - 1)
    given = np.isin(measurements.users, stream.child("labelled").generator().permutation(users)[:count])
    rows = fitted.reports(measurements, rng=stream.child("reports"))
    empty = np.isnan(rows).all(axis=1)
    if empty.mean() > MOST_EMPTY:
        raise InputError(
            f"{measurements.source}: {empty.mean():.1%} of the reports are empty: their rows are unlike the pilot; "
            f"expected at most {MOST_EMPTY:.0%}: fit a privatizer on a pilot of this region and period"
        )
    true = measurements.rows.copy()
    ends = np.quantile(true[:, [LAT, LON]], [_TAIL, 1 - _TAIL], axis=0, method="nearest")
    true[:, [LAT, LON]] = np.clip(true[:, [LAT, LON]], *ends)
    truth, sent = (
        measurements.with_rows(true),
        measurements.with_rows(np.where(np.isnan(rows), fitted.normalisation.absent, rows)),
    )

    def evidence(kept: np.ndarray[Any, np.dtype[np.bool_]]) -> SignalEvidence:
        return SignalEvidence.of(
            truth.take(kept),
            sent.take(kept),
            fitted.normalisation,
            length=fitted.privatizer.sequence,
            cut=False,
        )

    full = signal_adversaries()
    chosen = full if adversaries is None else tuple(adversaries)
    parts = {OTHER_USERS: ~given, LATER_DAYS: given & (day > last)}
    if not parts[LATER_DAYS].any() or not (given & (day <= last)).any():
        raise InputError(
            f"{measurements.source}: the users whose reports are labelled have rows only before or only on later days; "
            "expected more users or days"
        )
    # A trace that ends before the later days names nobody there: an error of 1 would be no privacy.
    early = measurements.users[given & (day <= last)]
    named = {
        OTHER_USERS: False,
        LATER_DAYS: bool(np.isin(measurements.users[parts[LATER_DAYS]], early).any()),
    }
    known, judged = evidence(given & (day <= last)), [evidence(kept) for kept in parts.values()]
    for name, each in zip(("labelled users", *parts), (known, *judged), strict=True):
        if len(each) < _LEAST_RUNS:
            raise InputError(
                f"{measurements.source}: {len(each)} reports of {name} among {len(measurements)} rows of {len(users)} "
                f"users on {len(days)} days; expected at least {_LEAST_RUNS}: add rows, users or days"
            )
    attacks = attack_parts(
        known,
        judged,
        adversaries=chosen,
        rng=stream.child("attack"),
        progress=progress,
        strangers=True,
    )
    begin, end = (date.fromisoformat(str(np.datetime64(int(each), "D"))) for each in (days[0], days[-1]))
    return SignalCertificate(
        fingerprint(fitted),
        begin,
        end,
        len(days),
        whole - len(measurements),
        tuple(each.label if each in full else f"{each.label} ({_WEAKER})" for each in chosen),
        tuple(
            _judged(part, attack, named[part], len(np.unique(of.users)))
            for part, attack, of in zip(parts, attacks, judged, strict=True)
        ),
        fitted.worst_epsilon,
        float(empty.mean()),
        len(np.unique(known.users)),
        len(known),
    )


def certified(
    guarantee: Guarantee, certificate: SignalCertificate | None, provenance: Provenance | None
) -> Guarantee:
    """The guarantee of reports with what was certified for them, or with the statement that nothing was.

    A formal guarantee without a certificate is left as it is: its epsilon is proved, whoever attacks.
    """
    if certificate is None or certificate.about(provenance) is not None:
        if guarantee.epsilon is not None:
            return guarantee
        return dataclasses.replace(guarantee, assumptions=(*guarantee.assumptions, Assumes.NOT_CERTIFIED()))
    against = f"the strongest of {', '.join(certificate.adversaries)}, labelled in the reporting period"
    period = (
        f"{certificate.first} to {certificate.last} (rows on {certificate.days} of these days; "
        f"{certificate.empty:.1%} of the reports are empty)"
    )
    measured = []
    for each in certificate.judged:
        words = f"{against}, on {each.part} of {period}, {each.runs:,} reports of {each.users:,} users"
        if each.user_error is not None:
            between = ""
            if each.user_error_interval is not None:
                low, high = each.user_error_interval
                between = (
                    f" (of {each.user_error_users:,} users; 95 % interval by user {low:.3f} to {high:.3f})"
                )
            measured.append(Measured(Quantity.USER_ERROR, each.user_error, "of reports", words + between))
        measured.append(Measured(Quantity.PLACE_ERROR, each.location_error_m, "m", words))
    return dataclasses.replace(guarantee, measured=(*guarantee.measured, *measured))


def _period(measurements: Measurements) -> Measurements:
    """The rows less a sliver at the ends that stretches the period over days without rows."""
    day = _days(measurements)
    days = np.unique(day)
    first, last = 0, len(days) - 1
    while first < last:
        before, after = days[first + 1] - days[first], days[last] - days[last - 1]
        dense = 2 * (last - first + 1) > days[last] - days[first] + 1
        if dense and max(before, after) <= _LONGEST_GAP:
            break
        first, last = (first + 1, last) if before >= after else (first, last - 1)
    kept = (day >= days[first]) & (day <= days[last])
    if np.mean(~kept) > _SLIVER:
        begin, end = (np.datetime64(int(each), "D") for each in (days[0], days[-1]))
        raise InputError(
            f"{measurements.source}: rows on {len(days)} of the {days[-1] - days[0] + 1} days from {begin} to {end}; "
            f"expected rows on more than half of a period's days, and at most {_LONGEST_GAP} days between an end of it "
            "and the others: certify a shorter period"
        )
    return measurements if kept.all() else measurements.take(kept)


def _days(measurements: Measurements) -> np.ndarray[Any, np.dtype[np.int64]]:
    if measurements.time is None:
        raise InputError(f"{measurements.source}: no times; a certificate is about later days")
    return np.asarray(measurements.time // _DAY_US)


def _judged(part: str, attack: SignalAttack, known: bool, users: int) -> Judged:
    # The blind guess is an adversary too: nobody does worse than without a look at the report.
    user, place = attack.strongest_by("p1"), attack.strongest_by("p2")
    blind = next((each for each in attack.scores if each.adversary == _BLIND), place)
    return Judged(
        part,
        place.runs,
        user.p1 if known else None,
        user.adversary if known else None,
        place.p2_m,
        place.adversary,
        blind.p1 if known else None,
        blind.p2_m,
        users,
        user.p1_users if known else 0,
        user.p1_interval if known else None,
    )
