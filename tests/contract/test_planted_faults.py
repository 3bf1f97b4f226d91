"""Every planted fault is caught by the check that the table names, and the documentation's table is made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import pytest

import mapveil as mv
from mapveil_client.epsilon import power
from mapveil_client.local.domain import Domain

from ..client.randomness.conftest import _units
from ..local import test_randomizer as local
from ..privacy import test_discrete_laplace as noise
from . import exact_checks
from .exact_checks import check_accounting, check_non_interference, check_region
from .planted_faults import FAULTS, Fault, table
from .worlds import REGION, ROWS

OF_ROW = {str(row): row for row in ROWS}


def _check_sampler(about: str) -> None:
    noise.test_the_tables_are_within_2_to_the_minus_60_of_the_law(_units, Fraction(1), 1)


def _check_local_ratio(method: str) -> None:
    domain = Domain(mv.Grid(REGION, rows=2, columns=3))
    assert local.make(method, domain, Fraction(1)).worst_ratio() <= power(Fraction(1)), (
        "the ratio is above e^epsilon"
    )


CHECKS: Mapping[str, Callable[[str], None]] = {
    "non-interference": lambda row: check_non_interference(OF_ROW[row]),
    "accounting": lambda row: check_accounting(OF_ROW[row]),
    "region": check_region,
    "sampler law": _check_sampler,
    "local ratio": _check_local_ratio,
    "local law": local.test_reports_follow_their_law_and_no_other,
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    exact_checks._pairs.cache_clear()
    fault.plant(monkeypatch)
    with pytest.raises(AssertionError, match=fault.says):
        CHECKS[fault.caught_by](fault.about)
    exact_checks._pairs.cache_clear()


def test_the_documentation_has_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "planted-faults.md"
    wanted = "python -c 'from tests.contract.planted_faults import table; print(table())'"
    assert table() in page.read_text(encoding="utf-8"), f"the page's table is another than that of: {wanted}"
