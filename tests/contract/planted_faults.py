"""The table of planted faults: each is patched into the real code, and names the check that must catch it.

`docs/reference/planted-faults.md` has this table, as :func:`table` prints it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import pytest

from mapveil_client.encodings import MarginsEncoding
from mapveil_client.level_encoding import LevelEncoding, SketchEncoding
from mapveil_client.randomness.noise_shares import share_shape

from . import account_faults as account
from . import faults as plant
from . import operator_faults


class Fault(NamedTuple):
    """A fault, and the check that catches it."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    caught_by: str  # a name of CHECKS in test_planted_faults
    about: str  # the row, or the method, that the check is run on
    says: str  # part of the check's message


FAULTS = (
    Fault("noise halved", plant.noise(plant.HALF), "accounting", "central laplace", "charged"),
    Fault("noise 15 % small", plant.noise(plant.SMALL), "accounting", "central multiscale", "charged"),
    Fault(
        "noise for one copy less",
        plant.noise(Fraction(1), 1),
        "accounting",
        "central hierarchical",
        "charged",
    ),
    Fault(
        "number of users exact",
        plant.exact_where(lambda n, sums: sums.size == 1),
        "accounting",
        "central uniform",
        "one draw of noise",
    ),
    Fault(
        "second round without noise",
        plant.exact_where(lambda n, sums: n == 2),
        "accounting",
        "central adaptive-grid",
        "one draw of noise",
    ),
    Fault(
        "no noise where nobody is",
        plant.answers(plant.empty_cells_dropped),
        "accounting",
        "central laplace",
        "not sums and noise",
    ),
    Fault(
        "a reply tells the number of users",
        plant.answers(plant.number_of_rows_told),
        "accounting",
        "central uniform",
        "that is not public",
    ),
    Fault(
        "leaf depths from exact sums",
        plant.leaf_depths_from_exact_sums,
        "non-interference",
        "central multiscale depth=2",
        "queries",
    ),
    Fault(
        "splits from exact sums",
        plant.splits_from_exact_sums,
        "non-interference",
        "central adaptive",
        "queries",
    ),
    Fault(
        "level from the true number of users",
        plant.begins(plant.level_from_true_users),
        "non-interference",
        "central uniform",
        "queries",
    ),
    Fault(
        "threshold from the data",
        plant.theta_from_the_data,
        "non-interference",
        "central privtree",
        "queries",
    ),
    Fault(
        "noise seeded by the data",
        plant.begins(plant.noise_seeded_by_the_data),
        "non-interference",
        "central emd",
        "tell",
    ),
    Fault(
        "map scaled to the true total",
        plant.map_scaled_to_true_total,
        "non-interference",
        "central thresholded",
        "output",
    ),
    Fault(
        "notes quote a true count",
        plant.notes_quote_a_true_count,
        "non-interference",
        "central laplace",
        "output",
    ),
    Fault(
        "region from the bounding box",
        plant.region_is_the_bounding_box,
        "region",
        "central",
        "follows the table",
    ),
    Fault("tree noise halved", plant.tree_noise(plant.HALF), "accounting", "central privtree", "the tree"),
    Fault(
        "tree noise of one decision",
        plant.tree_noise_of_the_leaves,
        "accounting",
        "central privtree",
        "the tree",
    ),
    Fault("tree without its bias", plant.tree_bias_forgotten, "accounting", "central privtree", "the tree"),
    Fault(
        "empty nodes are leaves", plant.empty_nodes_not_split, "accounting", "central privtree", "the tree"
    ),
    Fault(
        "noise of features 15 % small",
        plant.features_noise(plant.SMALL),
        "accounting",
        "central private-fourier-kde",
        "charged",
    ),
    Fault(
        "skipped charge",
        plant.begins(plant.second_charge_skipped),
        "accounting",
        "central multiscale",
        "without a charge",
    ),
    Fault(
        "charge after reveal", plant.charge_after_reveal, "accounting", "central laplace", "before the charge"
    ),
    Fault("share of half the epsilon", plant.share_understated, "accounting", "central uniform", "charged"),
    Fault(
        "budget spent twice",
        plant.budget_spent_twice,
        "accounting",
        "central multiscale depth=2",
        "spent",
    ),
    Fault(
        "a row's share rounded up",
        plant.user_sums_sql("SUM({quotient})", "SUM({quotient} + 1)"),
        "accounting",
        "central laplace",
        "charged",
    ),
    Fault(
        "a user counts each row once",
        plant.user_sums_sql("{quotient}", "268435456"),
        "accounting",
        "central laplace",
        "charged",
    ),
    Fault(
        "noise shares halved",
        plant.shape(lambda *given: share_shape(*given) / 2),
        "accounting",
        "distributed laplace",
        "less than one noise",
    ),
    Fault(
        "dropouts not provisioned for",
        plant.shape(lambda size, *rest: Fraction(1, size)),
        "accounting",
        "distributed adaptive",
        "less than one noise",
    ),
    Fault(
        "clients' noise halved",
        plant.client_noise(plant.HALF),
        "accounting",
        "distributed multiscale",
        "charged",
    ),
    Fault(
        "operators' noise halved",
        operator_faults.operators_noise(plant.HALF),
        "accounting",
        "operators multiscale",
        "charged",
    ),
    Fault(
        "operators' noise 15 % small",
        operator_faults.operators_noise(plant.SMALL),
        "accounting",
        "operators adaptive",
        "charged",
    ),
    Fault(
        "noise of one operator only",
        operator_faults.one_operators_noise,
        "accounting",
        "operators laplace",
        "not one draw of noise of each operator",
    ),
    Fault(
        "clients' noise 15 % small",
        plant.client_noise(plant.SMALL),
        "accounting",
        "distributed proportions",
        "charged",
    ),
    Fault(
        "margins of sensitivity 1",
        plant.copies(MarginsEncoding, lambda query: 1),
        "region",
        "distributed",
        "loses",
    ),
    Fault(
        "levels of one copy less",
        plant.copies(LevelEncoding, lambda query: 1),
        "accounting",
        "distributed hierarchical",
        "charged",
    ),
    Fault(
        "sketches of one row less",
        plant.copies(SketchEncoding, lambda query: 1),
        "accounting",
        "distributed count-min width=64 rows=2",
        "charged",
    ),
    Fault(
        "remainder rounding adds a unit",
        plant.remainder_adds_a_unit,
        "accounting",
        "distributed uniform",
        "charged",
    ),
    Fault(
        "clients outside are not asked",
        plant.clients_outside_not_asked,
        "non-interference",
        "distributed multiscale",
        "tell",
    ),
    Fault(
        "curator charged 9/10 of what it answered",
        account.spends(Fraction(9, 10)),
        "front door",
        "central multiscale",
        "cost",
    ),
    Fault(
        "charged when all is answered", account.charged_at_the_end, "front door", "central laplace", "cost"
    ),
    Fault(
        "later rounds of secure sums not charged",
        account.later_rounds_not_charged,
        "front door",
        "distributed adaptive-grid",
        "cost",
    ),
    Fault(
        "search for a region not charged",
        account.search_not_charged,
        "front door",
        "without a region, central",
        "cost",
    ),
    Fault(
        "search over secure sums not charged",
        account.search_not_charged,
        "front door",
        "without a region, distributed",
        "cost",
    ),
    Fault(
        "second release of a session not charged",
        account.second_of_a_session_not_charged,
        "front door",
        "session, central",
        "cost",
    ),
    Fault(
        "a resumed release draws anew", account.resumed_draws_anew, "front door", "resumed, central", "cost"
    ),
    Fault(
        "resumed secure sums draw anew",
        account.resumed_draws_anew,
        "front door",
        "resumed, distributed",
        "cost",
    ),
    Fault("reports charged half", account.spends(Fraction(1, 2)), "front door", "local olh-h", "cost"),
    Fault("one end of each trip charged", account.spends(Fraction(1, 2)), "front door", "flows", "cost"),
    Fault("neighbours not charged", account.neighbours_not_charged, "front door", "neighbours", "cost"),
    Fault(
        "budget not checked before the first round",
        account.budget_not_checked_first,
        "refusal",
        "distributed adaptive-grid",
        "charged before the refusal",
    ),
    Fault("sampler's tables 15 % small", plant.sampler_tables, "sampler law", "curator", "0.0665"),
    Fault("clients' sampler 15 % small", plant.clients_sampler, "share law", "secure sums", "fits"),
    Fault(
        "noise shares 15 % small",
        plant.shape(lambda *given: share_shape(*given) / plant.SMALL),
        "accounting",
        "distributed adaptive-grid",
        "less than one noise",
    ),
    Fault("local epsilon doubled", plant.local_epsilon(plant.HALF), "local ratio", "grr", "e\\^epsilon"),
    Fault(
        "hash function from the location",
        plant.hash_seed_from_the_data,
        "local law",
        "olh",
        "chi_square_excess",
    ),
)


def table() -> str:
    """The table of the documentation."""
    rows = "".join(f"| {each.name} | {each.about} | {each.caught_by} |\n" for each in FAULTS)
    return f"| planted fault | in | caught by |\n|---|---|---|\n{rows}"
