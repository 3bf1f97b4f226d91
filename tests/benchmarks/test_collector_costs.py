"""The page of a collector's costs follows from the benchmarks' page, and from nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.collector_costs import (
    BENCHMARKS,
    DEVICES,
    LINES,
    PAGE,
    Prices,
    constants,
    main,
    needs,
    page,
    row_bytes,
)
from benchmarks.collector_rounds import GOAL_MINUTES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> dict[str, float]:
    return constants((ROOT / BENCHMARKS).read_text(encoding="utf-8"))


def test_the_page_is_that_of_the_benchmarks(found: dict[str, float]) -> None:
    """Run ``python -m benchmarks.collector_costs`` after ``make bench``."""
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(found, Prices())


def test_a_constant_that_no_benchmark_has_is_no_constant() -> None:
    text = (ROOT / BENCHMARKS).read_text(encoding="utf-8")
    with pytest.raises(KeyError):
        constants(text.replace(LINES["report_rate"][0], "another line"))


def test_needs_are_the_measured_figures_times_devices(found: dict[str, float]) -> None:
    local, active, sums, operators = needs(found, 10_000)
    assert sums.measured == {"core-hours", "GB in", "GB out"}
    assert not local.measured | active.measured | operators.measured
    assert active.gb_out > sums.gb_out
    assert sums.core_hours * 3600 == pytest.approx(found["sum_cpu"])
    assert sums.gb_in * 1e9 == pytest.approx(1e3 * found["sum_up"] * 10_000)
    assert local.core_hours * 3600 / 2 == pytest.approx(10_000 / (1e3 * found["report_rate"]))
    assert operators.core_hours > local.core_hours
    for small, large in zip((local, active, sums, operators), needs(found, max(DEVICES)), strict=True):
        assert not large.measured
        assert large.cost(Prices()) == pytest.approx(small.cost(Prices()) * 10_000)


def test_the_figures_that_were_measured_are_bold_and_no_others(found: dict[str, float]) -> None:
    rows = [[each.strip() for each in row.split("|")] for row in page(found, Prices()).splitlines()]
    header = next(row for row in rows if row[1:3] == ["devices", "trust"])
    bold = {
        (row[1], row[2], column)
        for row in rows
        for column, figure in zip(header, row, strict=False)
        if len(row) == len(header) and figure.startswith("**")
    }
    sums = ("core-hours", "GB in", "GB out")
    assert bold == {
        ("1,000,000", "local reports", "time on 2 cores"),
        *(("1,000", "secure sums, malicious server", each) for each in sums),
        *(("10,000", "secure sums, honest but curious server", each) for each in sums),
    }
    run = re.escape(f"| {LINES['report_rate'][0]}, from the first to the last | ")
    (seconds,) = re.findall(rf"^{run}(\S+) s ", (ROOT / BENCHMARKS).read_text(encoding="utf-8"), re.MULTILINE)
    assert found["report_rate"] * float(seconds) == pytest.approx(1_000, rel=0.02)


def test_the_goal_is_met_or_missed_as_the_figures_are(found: dict[str, float]) -> None:
    share = GOAL_MINUTES * 60 / 1e3  # milliseconds of a device
    for least, told in ((0.0, "met"), (0.1, "missed")):
        given = found | {"round_cpu": 0.75 * share + least, "round_database": 0.25 * share}
        assert f"is {GOAL_MINUTES:g} minutes of both together: it is {told}." in page(given, Prices())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--core-hour", "-1"), "a finite number of at least 0, got -1"),
        (("--gb-month", "inf"), "a finite number of at least 0, got inf"),
        (("--gb-out", "nan"), "a finite number of at least 0, got nan"),
        (("--gb-out", "much"), "invalid price value: 'much'"),
        (("--page", "/nofolder/x.md"), "--page /nofolder/x.md cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["collector_costs", "--page", "-", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert told in capsys.readouterr().err.splitlines()[-1]


def test_a_row_takes_at_least_its_body() -> None:
    assert row_bytes("reports", body=1000) - row_bytes("reports", body=100) == pytest.approx(900, rel=0.4)
