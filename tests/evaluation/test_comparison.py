from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from mapveil.evaluation.comparison import Comparison, Row, interval_of_mean, table_csv
from mapveil.evaluation.html_report import write_comparison
from mapveil.pictures.report_page import NOT_PRIVATE


def made() -> Comparison:
    rng = np.random.default_rng(0)
    rows = tuple(
        Row(method, epsilon, trial, metric, float(rng.normal(1, 0.1)) / epsilon, 0.5)
        for method in ("laplace", "laplace:clip=false")
        for epsilon in (0.5, 2.0)
        for trial in range(4)
        for metric in ("kl", "similarity")
    )
    return Comparison(rows, "A <comparison>", {"source": "made up"})


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    trials = 1000
    covered = sum(
        low <= 3 <= high for _, low, high in (interval_of_mean(rng.normal(3, 2, 5)) for _ in range(trials))
    )
    # Six standard deviations of a binomial at 0.95.
    assert abs(covered / trials - 0.95) < 6 * (0.95 * 0.05 / trials) ** 0.5


def test_the_interval_of_little() -> None:
    assert np.isnan(interval_of_mean([])).all()
    assert interval_of_mean([2.0]) == (2.0, float("-inf"), float("inf"))
    assert interval_of_mean([1.0, np.inf, 1.0])[0] == 1.0


def test_summary_and_csv_say_the_same() -> None:
    found = made()
    summary = found.summary()
    assert len(summary) == 8
    rows = list(csv.DictReader(io.StringIO(table_csv(Row._fields, found.rows))))
    for item in summary:
        values = [
            float(row["value"])
            for row in rows
            if (row["method"], float(row["epsilon"]), row["metric"])
            == (item.method, item.epsilon, item.metric)
        ]
        assert item.mean == pytest.approx(np.mean(values))
        assert item.low < item.mean < item.high
        assert item.trials == 4
    np.testing.assert_array_equal(
        found.values("laplace", "kl", 2.0),
        [row.value for row in found.rows if row[:2] == ("laplace", 2.0)][::2],
    )


def test_the_report_is_whole_and_says_it_is_not_for_release(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "report"
    paths = write_comparison(made(), folder)
    assert sorted(path.name for path in paths) == ["curves.png", "index.html", "rows.csv", "summary.csv"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in paths)
    page = (folder / "index.html").read_text()
    assert NOT_PRIVATE in page
    assert 'role="alert"' in page
    assert "A &lt;comparison&gt;" in page
    for outside in ("http://", "https://", 'src="/', "<script"):
        assert outside not in page
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    again = write_comparison(made(), folder)
    assert again == paths
