"""Numbers as a person writes them, on pictures and pages."""

from __future__ import annotations

import math


def number_text(value: float) -> str:
    """A number in three digits, with thin spaces between thousands.

    Examples
    --------
    >>> number_text(2.718281828), number_text(0.0)
    ('2.72', '0')
    """
    if value == 0:
        return "0"
    if abs(value) >= 1e7 or abs(value) < 1e-3:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}".replace(",", "\u202f")
    return text.rstrip("0").rstrip(".") if "." in text else text
