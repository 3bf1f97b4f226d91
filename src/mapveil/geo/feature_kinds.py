"""Kinds of features: a number that may be averaged, a category, or an identifier; inferred by name and type."""

import re
from enum import StrEnum
from typing import Final

_IDENTIFIER: Final = re.compile(
    r"(^|_)(id|ids|uid|uuid|guid|aaid|idfa|imei|imeisv|imsi|tmsi|iccid|msisdn|meid|esn|serial|mac|ip|ssid|bssid"
    r"|cid|lcid|ci|cgi|ecgi|ncgi|eci|nci|lac|tac|rac|pci|psc|arfcn|earfcn|uarfcn|nrarfcn|enb|gnb"
    r"|gcid|username|user|usr|subscriber|customer|account|email|telephone|contact|hash|token)($|_)"
    r"|(arfcn|node_?b(_?id)?|(cell|phone|device|user)_?id(entity)?)($|_)"
    # A thing's own name or number, but not what is counted or measured of one, as cell_count.
    r"|^((raw|global|serving|physical|phys|phy|primary|current|best)_?)?"
    r"[ps]?(cell|sector|phone|mobile|device|handset|sim|node|site|station|tracking|location|session|trip|trace|track)"
    r"(_(area|number|no|nr|num|code|name|hash|key|hex|[0-9]+))*$"
)
_CATEGORY: Final = re.compile(
    r"(^|_)(mcc|mnc|plmn|band|rat|operator|carrier|network|mode|type|generation|technology|building|model|brand)($|_)"
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
    """Infer the kind of a column by its name, in snake or camel case; whoever runs a command may override it.

    Parameters
    ----------
    name : str
        The column's.
    boolean : bool
        Whether its type is a truth value.

    Examples
    --------
    >>> [str(kind_of(name)) for name in ("speed_kmh", "mnc", "rawCellId", "arfcn", "rss5_dbm")]
    ['number', 'category', 'identifier', 'identifier', 'number']
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[a-z]{2})(?=[A-Z])", "_", name.strip())
    plain = re.sub(r"[^a-z0-9]+|(?<=[a-z])(?=[0-9]+$)", "_", words.lower())
    if _IDENTIFIER.search(plain):
        return FeatureKind.IDENTIFIER
    return FeatureKind.CATEGORY if boolean or _CATEGORY.search(plain) else FeatureKind.NUMBER
