"""The page of held-out comparisons: counts of the test role, three metrics together, hot spots, losses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from benchmarks.heldout_page import command


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
    return row | more


def a_record() -> dict[str, Any]:
    rows = [
        *(a_row(metric, verdict) for metric in ("kl", "similarity", "emd") for verdict in ("win", "tie")),
        a_row("kl", "loss", data="town"),
        a_row("kl", "loss", data="known", role="tune"),
        a_row("top_ten", "win"),
    ]
    mean = {"mean": 0.5, "length": 0.0, "sets": 2}
    means = [
        {"trust": "central", "method": f"central/{name}", "metric": "kl", "test": mean | {"mean": value}}
        for name, value in (("laplace", 2.0), ("multiscale", 1.0))
    ]
    sets = [{"name": "city", "role": "test"}, {"name": "known", "role": "tune"}]
    settings = {"epsilons": [0.5, 1.0], "trials": 3, "max_cells": 1024, "max_users": 100}
    return {"rows": rows, "means": means, "data_sets": sets, "settings": settings}


def test_it_counts_the_test_role_and_names_every_loss(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(json.dumps(a_record()))
    done = CliRunner().invoke(command, [str(tmp_path / "page.md"), str(tmp_path / "record.json")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.md").read_text()
    assert "| KL, nats | 1 | 1 | 1 | 3 |" in page
    assert "| KL, similarity and EMD together | 3 | 3 | 1 | 7 |" in page
    assert page.index("central/multiscale | 1 ") < page.index("central/laplace | 2 ")
    assert "| city | 0.5 ± 0.1 | central/laplace | 0.25 |" in page
    assert "Rows where the default clearly loses: 1." in page
    assert "| town | 1 | KL, nats | 0.5 ± 0.1 | central/laplace | 0.25 |" in page
    assert "known" not in page
    assert "--trust central --epsilon 0.5,1 --trials 3 --max-cells 1024 --max-users 100" in page
