"""Kinds of features: a number that may be averaged, a category, or an identifier; inferred by name and type."""

import re
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

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

_LARGE: Final = 1e6  # least size of whole numbers that are identifiers, as of phones or of cells
_CLOCK: Final = 1e9  # least size of epoch times: seconds since 1970 have ten digits from September 2001 on
_BELOW: Final = 0.01  # fraction of values that may be smaller, such as 0 for none
_FEW: Final = 10  # values of the median user; measurements take more, identifiers of one user hardly ever do
_ALONE: Final = 0.9  # of the rows, whose value no other user has


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


def identifying(
    values: npt.NDArray[np.float64], users: npt.NDArray[np.integer], category: bool
) -> str | None:
    """The reason why a feature identifies users or times by its values, whatever it is called, if there is one.

    Parameters
    ----------
    values : ndarray of float64, shape (rows,)
        The feature's, finite or NaN.
    users : ndarray of int, shape (rows,)
        The user of each row, as small numbers.
    category : bool
        Whether the values are names.

    Examples
    --------
    >>> identifying(np.array([1364774400.5, 1364774460.25]), np.array([0, 0]), False)
    'numbers as large as identifiers or epoch times'
    """
    if not len(values) or not np.isfinite(values).all():
        return None
    if not category:
        size = float(np.quantile(np.abs(values), _BELOW, method="lower"))
        if size >= _CLOCK or (size >= _LARGE and bool((values == np.rint(values)).all())):
            return "numbers as large as identifiers or epoch times"
    distinct, at, repeats = np.unique(values, return_inverse=True, return_counts=True)
    pairs = np.unique(users * np.int64(len(distinct)) + at)  # of user and value
    _, own = np.unique(pairs // len(distinct), return_counts=True)  # values of each user
    count, single = len(own), np.bincount(pairs % len(distinct)) == 1
    if len(pairs) == count > 1 and len(users) > count and len(distinct) > count / 2:
        return "one value for each user"
    if count == 1 or len(distinct) <= count:
        return None
    if category:
        return "most of their values are of one user each" if single.mean() > 0.5 else None
    # Measurements of several users overlap, or hardly ever repeat.
    few = np.median(own) <= _FEW and 2 * len(distinct) <= len(values)
    alone = repeats[single].sum() >= _ALONE * len(values)
    return "few values for each user, hardly ever another's" if few and alone else None
