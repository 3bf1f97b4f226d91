"""Every planted fault is caught by the check that the table names, and the documentation's table is made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from ..client.randomness import test_noise_shares as shares
from ..client.randomness.conftest import _units
from ..local import test_randomizer as local
from ..privacy import test_discrete_laplace as noise
from . import exact_checks
from .claims import check_local_ratio
from .exact_checks import check_accounting, check_non_interference, check_region
from .front_door import check_front_door, check_refusal
from .planted_faults import FAULTS, Fault, table
from .worlds import ROWS

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*has no rows in the cells:mapveil_client.errors.CuratorWarning"
)  # a table elsewhere must change nothing

OF_ROW = {str(row): row for row in ROWS}


def _check_sampler(about: str) -> None:
    noise.test_the_tables_are_within_2_to_the_minus_60_of_the_law(_units, Fraction(1), 1)


CHECKS: Mapping[str, Callable[[str], None]] = {
    "non-interference": lambda row: check_non_interference(OF_ROW[row]),
    "accounting": lambda row: check_accounting(OF_ROW[row]),
    "region": check_region,
    "front door": check_front_door,
    "refusal": check_refusal,
    "sampler law": _check_sampler,
    "share law": lambda about: shares.test_coordinates_follow_the_law_and_the_test_has_power(*shares.LAWS[0]),
    "local ratio": check_local_ratio,
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
