"""The page of held-out comparisons: counts of the test role, three metrics together, hot spots, losses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from benchmarks.heldout_page import command
from benchmarks.heldout_page import page as page_of
from benchmarks.heldout_tables import RULE


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
    sets = [{"name": "city", "role": "test", "users": 1234}, {"name": "known", "role": "tune", "users": 9}]
    settings = {"epsilons": [0.5, 1.0], "trials": 3, "max_cells": 1024, "max_users": 100, "rule": RULE}
    left_out = [{"data": "broken", "reason": "no archive"}]
    refused = [
        {"data": data, "method": "central/emd", "reason": "internal error"} for data in ("city", "known")
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
    assert page.index("central/multiscale | 1 ") < page.index("central/laplace | 2 ")
    assert "| city | 0.5 ± 0.1 | central/laplace | 0.25 |" in page
    assert "Rows where the default clearly loses: 2." in page
    assert "| town | 1 | KL, nats | 0.5 ± 0.1 | central/laplace | 0.25 | under uniform |" in page
    assert "| village | 1 | top-ten mass | not run | central/laplace | 0.25 | tie |" in page
    assert "the folder held city (1,234 users)" in page
    assert "- Left out: broken: no archive\n- Not run: central/emd on city: internal error\n\n" in page
    assert "known" not in page
    assert "--trust central --epsilon 0.5,1 --trials 3 --max-cells 1024 --max-users 100" in page


def test_a_record_of_an_earlier_rule_or_with_a_set_left_out_since_says_so() -> None:
    record = a_record()
    assert "rule of before" not in page_of([record])
    assert "left out since" not in page_of([record])
    del record["settings"]["rule"]
    record["data_sets"] += [{"name": "signal_chania_gsm", "role": "test", "users": 8}]
    assert "**Verdicts by the rule of before**" in page_of([a_record(), record])
    assert "left out since: signal_chania_gsm." in page_of([record])
