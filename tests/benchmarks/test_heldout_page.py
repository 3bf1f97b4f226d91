"""The page of held-out comparisons: counts of the test role, three metrics together, hot spots, losses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.heldout_local_page import page as local_page
from benchmarks.heldout_page import command
from benchmarks.heldout_page import page as page_of
from benchmarks.heldout_tables import NO_LONGER, RULE
from mapveil_client.errors import InputError


def a_row(metric: str, verdict: str, **more: Any) -> dict[str, Any]:
    row = {
        "data": "city",
        "role": "test",
        "shape": "hot spot",
        "trust": "central",
        "epsilon": 1.0,
        "metric": metric,
    }
    row |= {"mean": 0.5, "high": 0.6, "best_other": "central/laplace", "other_mean": 0.25, "verdict": verdict}
    return row | {"over_uniform": "win"} | more


def a_record() -> dict[str, Any]:
    rows = [
        *(a_row(metric, verdict) for metric in ("kl", "similarity", "emd") for verdict in ("win", "tie")),
        a_row("kl", "loss", data="town", over_uniform="loss"),
        a_row("top_ten", "loss", data="village", mean=None, high=None, over_uniform="tie"),
        a_row("kl", "loss", data="known", role="tune"),
        a_row("top_ten", "win"),
    ]
    mean = {"mean": 0.5, "length": 0.0, "sets": 2}
    means = [
        {"trust": "central", "method": f"central/{name}", "metric": "kl", "test": mean | {"mean": value}}
        for name, value in (("laplace", 2.0), ("multiscale", 1.0))
    ]
    sets = [
        {"name": "city", "role": "test", "users": 1234, "synthetic": False},
        {"name": "town", "role": "test", "users": 700, "synthetic": True},
        {"name": "known", "role": "tune", "users": 9, "synthetic": False},
    ]
    settings = {
        "epsilons": [0.5, 1.0],
        "trials": 3,
        "max_cells": 1024,
        "max_users": 100,
        "rule": RULE,
        "seed": 4,
    }
    left_out = [{"data": "broken", "reason": "no archive"}]
    refused = [
        {"data": data, "method": "central/emd", "epsilon": epsilon, "reason": "internal error"}
        for data in ("city", "known")
        for epsilon in (0.5, 1.0)
    ]
    return {
        "rows": rows, "means": means, "data_sets": sets, "settings": settings,
        "left_out": left_out, "refused": refused,
    }  # fmt: skip


def test_it_counts_the_test_role_and_names_every_loss(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(json.dumps(a_record()))
    done = CliRunner().invoke(command, [str(tmp_path / "page.md"), str(tmp_path / "record.json")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.md").read_text()
    assert "| KL, nats | 1 | 1 | 1 | 3 | 2 | 1 |" in page
    assert "| KL, similarity and EMD together | 3 | 3 | 1 | 7 | 6 | 1 |" in page
    assert "| KL, similarity and EMD together, real data | 3 | 3 | 0 | 6 | 6 | 0 |" in page
    assert page.index("central/multiscale | 1 ") < page.index("central/laplace | 2 ")
    assert "| city | 0.5 ± 0.1 | central/laplace | 0.25 |" in page
    assert "Rows where the default clearly loses: 2." in page
    assert "| town | 1 | KL, nats | 0.5 ± 0.1 | central/laplace | 0.25 | under uniform |" in page
    assert "| village | 1 | top-ten mass | not run | central/laplace | 0.25 | tie |" in page
    assert "the folder held city (1,234 users); synthetic: town (700 users)." in page
    not_run = "- Not run: central/emd on city at epsilon 0.5, 1: internal error\n"
    assert f"- Left out: broken: no archive\n{not_run}\n" in page
    assert "known" not in page
    arguments = "--trust central --epsilon 0.5,1 --trials 3 --max-cells 1024 --max-users 100 --seed 4 --json"
    assert f'`make heldout DATA=folder ARGS="--synthetic --role test {arguments}"`' in page


def test_a_record_of_an_earlier_rule_or_with_a_set_left_out_since_says_so() -> None:
    record = a_record()
    assert "rule of before" not in page_of([record])
    assert "left out since" not in page_of([record])
    del record["settings"]["rule"]
    record["data_sets"] += [{"name": "signal_chania_gsm", "role": "test", "users": 8, "synthetic": False}]
    assert "**Verdicts by a rule of before**" in page_of([a_record(), record])
    assert "left out since: signal_chania_gsm." in page_of([record])


def test_every_trust_model_of_a_record_has_its_section() -> None:
    record = a_record()
    record["rows"] += [a_row("kl", "win", trust="local", best_other="local/grr")]
    of_sums = {"trust": "distributed", "method": "distributed/laplace", "metric": "density_mse"}
    record["means"] += [record["means"][0] | of_sums]
    page = page_of([record])
    assert "| KL, nats | 1 | 1 | 1 | 3 | 2 | 1 |" in page
    assert "| KL, nats | 1 | 0 | 0 | 1 | 1 | 0 |" in page[page.index("## Local reports") :]
    assert "central/emd" not in page[page.index("## Local reports") :]
    assert "| vector |" not in page


def test_a_record_of_synthetic_sets_needs_no_folder_and_one_of_files_no_synthetic_ones() -> None:
    for synthetic, command_line in (
        (True, 'heldout ARGS="--synthetic'),
        (False, 'heldout DATA=folder ARGS="--role'),
    ):
        record = a_record()
        record["data_sets"] = [each | {"synthetic": synthetic} for each in record["data_sets"]]
        assert command_line in page_of([record])


def test_a_record_without_rows_of_the_test_role_is_an_error() -> None:
    record = a_record()
    record["rows"] = [row for row in record["rows"] if row["role"] == "tune"]
    with pytest.raises(InputError, match="rows of the role test, got none"):
        page_of([record])


def test_rows_with_vectors_no_longer_are_told_in_a_sentence() -> None:
    record = a_record()
    record["rows"] += [
        a_row(NO_LONGER, "tie", mean=0.26),
        a_row(NO_LONGER, "loss", mean=0.27),
        a_row(NO_LONGER, "tie", best_other="", other_mean=None),
    ]
    page = page_of([record])
    assert "the default has the least MSE of densities, or is within 5 % of it, in 1 of 2 rows." in page
    assert "vector: least" not in page


def test_the_page_of_local_reports_counts_the_test_role_only() -> None:
    row = a_row("kl", "win", trust="local", default="local/olh-h", low=0.4, other_low=0.2, other_high=0.3)
    row |= {"lead_low": 0.1, "lead_high": 0.2, "length": 0.0, "other_length": 0.0}
    record = a_record()
    record["rows"] = [row, row | {"data": "known", "role": "tune"}]
    record["settings"] |= {"seed": 0}
    assert "All together 1 rows" in local_page([record])
