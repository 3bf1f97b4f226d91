"""The signal measurements of Zhang et al. (2022), and those that stand in for what cannot be had.

The Chania data are the paper's own. Its UCI and Radiocell data are not public; UJIIndoorLoc (people, phones and one
campus, indoors) and Cork 5G (many traces over a county) stand in for them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mapveil.geo.measurements import Measurements
from mapveil.geo.read_measurements import read_measurements
from mapveil_client.errors import ParameterError
from reproductions.data import shared_file

SIGNAL_SETS: Final = {
    "chania": "signal_chania_gsm.parquet",
    "uji": "signal_ujiindoorloc_train_even_users.parquet",
    "cork": "signal_cork_5g.parquet",
}
"""Name and file of each set, in the order of the paper's figures (Chania, UCI, Radiocell)."""

_CHANIA: Final = ("h_accuracy_m", "is_moving", *(f"rss{at}_dbm" for at in range(1, 6)), "cell_id", "arfcn")
_HEARD: Final = (61, 62, 65, 66, 70, 77, 78, 87, 248, 496, 502, 517)  # the access points heard in most rows
_UNHEARD_DBM: Final = -105.0


def read_signal(name: str, shared: Path) -> Measurements:
    """One of :data:`SIGNAL_SETS`, with the features that all experiments use.

    Chania and Cork have every feature that varies and is hardly ever missing, but not where a burst of Chania ended.
    That is its place again (in three rows 0, 0), and how a regression shares a coefficient between two copies of a
    feature is chance: the parameters of two random parts of the raw rows differ by up to 8 with it, by less than 0.5
    without, and U2 compares such parameters. UJIIndoorLoc has building, floor, the number of access points heard, the
    strongest of them as signal strength, and the twelve that are heard most.
    """
    if name not in SIGNAL_SETS:
        raise ParameterError(f"signal set {name!r}; expected one of {', '.join(SIGNAL_SETS)}")
    source = shared_file(shared, SIGNAL_SETS[name])
    if name == "uji":
        return read_measurements(
            source,
            user="user_id",
            rss="max_rss_dbm",
            features=["n_ap_heard", "building", "floor", *(f"wap{at:03d}_dbm" for at in _HEARD)],
            categories=(),
            fill=_UNHEARD_DBM,
        )
    if name == "cork":
        return read_measurements(source, user="trace_id", rss="rsrp_dbm", categories=(), identifiers=True)
    return read_measurements(
        source, user="user_id", rss="rss_dbm", features=_CHANIA, categories=(), identifiers=True
    )
