"""Categories of text as whole numbers, which a matrix of measurements holds in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray

if TYPE_CHECKING:
    import pyarrow

OTHER: Final = -1.0
"""The number of a text that has none, and of a missing one."""

TextNumbers = Mapping[str, Mapping[str, int]]
"""By a column's name, the number of each of its texts."""


class NumberedTexts(NamedTuple):
    """A column of text as numbers."""

    numbers: FloatArray  # shape (rows,)
    texts: Mapping[str, int]  # the number of each text


def number_texts(column: pyarrow.ChunkedArray, known: Mapping[str, int] | None = None) -> NumberedTexts:
    """Replace each text of a column by its number.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
        Of strings; null where one is missing.
    known : mapping of str to int, optional
        The number of each text, :data:`OTHER` being that of all others; by default texts are numbered from 0 in their
        order.
    """
    encoded = column.combine_chunks().dictionary_encode()
    held = encoded.dictionary.to_pylist()
    texts = {text: at for at, text in enumerate(sorted(held))} if known is None else known
    numbers = np.array([*(texts.get(text, OTHER) for text in held), OTHER], dtype=np.float64)
    return NumberedTexts(numbers[encoded.indices.fill_null(len(held)).to_numpy()], texts)
