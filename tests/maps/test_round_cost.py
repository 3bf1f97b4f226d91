"""A round's cost in words: what a device sends, by secure sums and by two operators."""

from __future__ import annotations

from mapveil.maps.round_cost import RoundCost


def test_numbers_and_reports_are_told_apart() -> None:
    masked = RoundCost("cells", 1024, 31, 500, 490, 2, {"inputs": 4096}, {"keys": 2048})
    assert masked.in_words() == (
        "1024 numbers of 31 bits; 4.0 KiB up, 2.0 KiB down at most; 490 of 500 devices in the sums"
    )
    reported = RoundCost("reports", 1024, 64, 500, 490, 1, {"report": 1163}, {})
    assert reported.in_words() == "one report about 1024 sites; 1.1 KiB up; 490 of 500 devices in the sum"
