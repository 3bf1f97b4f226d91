"""The state of a live series for its curator: the windows that were released, and what is left of the promise."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from mapveil.mechanisms.series_file import SeriesFile
from mapveil.mechanisms.series_promise import epsilon_charged
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.ledger_accounts import Balance, SpendId


class SeriesStatus(NamedTuple):
    """A live series, for its curator; nothing of any user."""

    name: str
    windows: str  # in words, with the clock that they follow
    charged: bool  # to an account of a ledger
    epsilon: Fraction  # of a user over all windows, or of a user's run of windows
    each: Fraction  # of one window; the most that a comparison and a publication may cost where runs are protected
    whole: Fraction  # of a user over all windows: what an account is charged
    run: int | None  # windows of a protected run
    windows_per_user: int
    released: tuple[str, ...]  # names of windows
    passed_over: tuple[str, ...]  # names of windows of which no map can be released any more
    stand_ins: Mapping[str, str]  # the window whose map stands for a released one, by the name of the latter
    used_up_after: str | None  # the window after which users may be missing who counted in all that they may
    next: str | None  # that may be added next, or any later one; none where the charge was annulled
    account: Balance | None  # that was charged, where its ledger was read
    annulled: bool  # as far as its ledger was read


def status_of(file: SeriesFile, ledger: Ledger | None) -> SeriesStatus:
    """The state of an open series.

    Parameters
    ----------
    file : SeriesFile
        The series.
    ledger : Ledger, optional
        The ledger that it may have been charged to, for the account and whether the charge was annulled.
    """
    facts, released = file.facts, file.released()
    names, drawn = facts.windows.names, sorted(file.maps())
    after, later = (max(each) + 1 if each else 0 for each in (released, drawn))
    entries = () if ledger is None else ledger.release(SpendId(file.spend))
    annulled = any(entry.status == "annulled" for entry in entries)
    ended = annulled or after >= len(names)
    alone = facts.run is None
    goes_on = later < len(names) or facts.most < len(released)
    return SeriesStatus(
        name=facts.name,
        windows=str(facts.windows),
        charged=facts.charged,
        epsilon=facts.epsilon,
        each=(
            facts.epsilon / facts.most
            if facts.run is None
            else facts.epsilon * (facts.run + 1) / (2 * facts.run)
        ),
        whole=epsilon_charged(facts),
        run=facts.run,
        windows_per_user=facts.most,
        released=tuple(names[at] for at in released),
        passed_over=tuple(names[at] for at in range(later) if at not in drawn),
        stand_ins={} if alone else _stand_ins(file, released),
        used_up_after=names[released[facts.most - 1]]
        if alone and facts.most <= len(released) and goes_on
        else None,
        next=None if ended else names[after],
        account=ledger.account(entries[0].dataset) if ledger is not None and entries else None,
        annulled=annulled,
    )


def _stand_ins(file: SeriesFile, released: list[int]) -> dict[str, str]:
    """The window whose map stands for each released one that was not published again."""
    names, published = file.facts.windows.names, sorted(file.publications().spent)
    return {
        names[at]: names[max(each for each in published if each < at)]
        for at in released
        if at not in published
    }
