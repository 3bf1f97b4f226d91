"""Kinds of features: a number that may be averaged, a category, or an identifier; inferred by name and type."""

import re
from enum import StrEnum
from typing import Final

_IDENTIFIER: Final = re.compile(
    r"(^|_)(id|ids|uuid|imei|imsi|iccid|serial|mac|bssid|cid|ci|eci|nci|lac|tac|pci|psc|arfcn|earfcn|uarfcn|nrarfcn"
    r"|enodeb|gnodeb|cellid|phoneid|deviceid|userid)($|_)|_id$|^id_"
)
_CATEGORY: Final = re.compile(
    r"(^|_)(mcc|mnc|band|rat|operator|carrier|network|mode|type|generation|technology|building|model|brand)($|_)"
    r"|^(is|has)_"
)

MOST_VALUES: Final = 1 << 12
"""Values of a category at most; columns of more are identifiers."""


class FeatureKind(StrEnum):
    """The kind of a feature."""

    NUMBER = "number"
    CATEGORY = "category"
    IDENTIFIER = "identifier"


def kind_of(name: str, boolean: bool = False) -> FeatureKind:
    """Infer the kind of a column by its name; whoever runs a command confirms or overrides it.

    Parameters
    ----------
    name : str
        The column's.
    boolean : bool
        Whether its type is a truth value.

    Examples
    --------
    >>> [str(kind_of(name)) for name in ("speed_kmh", "mnc", "raw_cell_id", "arfcn", "rss5_dbm")]
    ['number', 'category', 'identifier', 'identifier', 'number']
    """
    plain = re.sub(r"[\s-]+", "_", name.strip().lower())
    if _IDENTIFIER.search(plain):
        return FeatureKind.IDENTIFIER
    return FeatureKind.CATEGORY if boolean or _CATEGORY.search(plain) else FeatureKind.NUMBER
