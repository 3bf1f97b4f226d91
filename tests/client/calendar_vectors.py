"""The vectors of public windows: calendars with the windows of moments, and windows that are to be refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from mapveil_client.public_windows import PublicWindows

PARIS = {"zone": "Europe/Paris"}
CALENDARS: tuple[dict[str, Any], ...] = (
    {"every": "1w", "start": "2026-10-19", "until": "2026-11-09", **PARIS},
    {"every": "1d", "start": "2026-03-28", "until": "2026-03-31", **PARIS},
    {"every": "3h", "start": "2026-10-24T21", "until": "2026-10-26T00:00", **PARIS},
    {"every": "1h", "start": "2026-10-25", "until": "2026-10-26", **PARIS},
    {"every": "1h", "start": "2026-03-29", "until": "2026-03-30", **PARIS},
    {"every": "2h", "start": "2026-10-25", "until": "2026-10-26", "by": "hour", **PARIS},
    {"every": "1h", "start": "2026-04-05", "until": "2026-04-06", "zone": "Australia/Lord_Howe"},
    {"every": "1h", "start": "2026-10-04", "until": "2026-10-05", "zone": "Australia/Lord_Howe"},
    {"every": "6h", "start": "2026-04-23", "until": "2026-04-25", "zone": "Africa/Cairo"},
    {"every": "24h", "start": "2026-10-31", "until": "2026-11-03", "zone": "America/Havana"},
    {"every": "2mo", "start": "2025-12-01", "until": "2026-12-01", "by": "weekend"},
    {"every": "1mo", "start": "2026-01-01", "until": "2026-12-01", "zone": "America/New_York"},
    {"every": "1w", "start": "2026-12-21", "until": "2027-01-18"},
    {"by": "hour-of-week", "zone": "Asia/Kathmandu"},
    {"by": "weekday", **PARIS},
    {"by": "purpose", "values": ("work", "loisir, et café")},
)
BAD_WINDOWS: tuple[dict[str, Any], ...] = (
    {"every": "1w", "start": "20260105", "until": "20260202"},  # of ISO 8601, and not of every client
    {"every": "1w", "start": "2026-W02", "until": "2026-W06"},
    {},
    {"every": "1w", "start": "2026-01-05"},
    {"every": "1w", "start": "2026-01-05", "until": "2026-01-13"},
    {"every": "1w", "start": "2026-01-05", "until": "2026-01-12"},
    {"every": "0d", "start": "2026-01-05", "until": "2026-01-09"},
    {"every": "1mo", "start": "2026-01-02", "until": "2026-04-02"},
    {"every": "1d", "start": "2026-01-05T03", "until": "2026-01-07T03"},
    {"every": "1d", "start": "soon", "until": "later"},
    {"every": 1, "start": "2026-01-05", "until": "2026-01-12"},
    {"by": "hour", "zone": "Europe/Atlantis"},
    {"by": "hour", "values": ["00:00", "01:00"]},
    {"by": "purpose"},
    {"by": "purpose", "values": ["work", "work"]},
    {"by": "purpose", "values": "work"},
    {"by": "hour", "also": "this"},
)
EMPTY = {"every": None, "start": None, "until": None, "zone": None, "by": None, "values": []}


def calendars() -> dict[str, Any]:
    """Windows of moments by each calendar, and windows that are refused."""
    rng = np.random.default_rng(3)
    instants = rng.integers(1_764_000_000, 1_803_000_000, 60)
    near = [
        1_774_746_000,
        1_774_749_600,
        1_792_886_400,
        1_792_890_000,
        1_792_893_600,  # clocks of Paris change
        *(1_775_311_200, 1_775_314_800, 1_791_041_400, 1_791_043_200),  # of Lord Howe
        *(1_776_981_600, 1_793_505_600, 1_793_509_200),  # of Cairo, and of Havana
    ]
    moments = sorted({*instants.tolist(), *(at + step for at in near for step in (-1, 0, 1))})
    made = []
    for given in CALENDARS:
        windows = PublicWindows(**given)
        categories = ["work", None, "loisir, et café", "other"] * (len(moments) // 4 + 1)
        held = categories[: len(moments)] if windows.category else []
        numbers = windows.numbers(np.array(moments, dtype=np.float64), held)
        made.append(
            {
                "windows": windows.to_dict(),
                "names": list(windows.names),
                "ends": [windows.ends(window) for window in range(windows.count)],
                "categories": held,
                "numbers": numbers.tolist(),
            }
        )
    refused = [{**EMPTY, **each} for each in BAD_WINDOWS]
    return {"moments": moments, "calendars": made, "refused_windows": refused}
