"""The table of designs: its intervals are over data sets."""

from __future__ import annotations

import numpy as np

from benchmarks.curator_designs import Design, table


def test_epsilons_of_one_data_set_count_once_in_an_interval() -> None:
    designs = Design("default"), Design("other")
    sets = [np.array([[0.0], [change]]) for change in (0.01, 0.02, 0.03)]
    once = table([[each] for each in sets], designs)
    assert table([[each] * 5 for each in sets], designs) == once == [["other", "+2.0 % ± 2.5"]]
