r"""How large a share of the noise each client must carry, so that those who stay carry enough.

.. math:: \alpha = 1 / h, \qquad h = S - \lfloor \delta S \rfloor - \lfloor \gamma S \rfloor

where: :math:`S` is ``shard_size``, :math:`\delta` is ``dropout`` and :math:`\gamma` is ``corrupt``: at most so large
a part of the shard leaves, and at most so large a part may have told its noise to the server; :math:`h` is the
least number of honest survivors. All are exact: a float means the decimal number it prints as.

With fewer than :math:`S - \lfloor \delta S \rfloor` survivors the promise cannot be kept: nothing is released.

Deviation: the paper takes :math:`\alpha = 1 / ((1 - \delta) S)` (its Algorithm 1 prints 0.95 for a dropout of 0.05).
The noise of a corrupt client hides nothing from whom it colludes with, so it is not counted here; with
``corrupt`` = 0 both agree up to the rounding to whole clients.

Source: Bagdasaryan et al., "Towards Sparse Federated Analytics: Location Heatmaps under Distributed Differential
Privacy with Secure Aggregation" (2022), section 4.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from mapveil_client.epsilon import EpsilonLike
from mapveil_client.errors import ParameterError, PromiseError


def promised_survivors(shard_size: int, dropout: EpsilonLike) -> int:
    r"""The least number of clients whose sum may be released, :math:`S - \lfloor \delta S \rfloor`.

    Parameters
    ----------
    shard_size : int
        Clients that begin, at least 1.
    dropout : int, float, str, Decimal or Fraction
        The part that may leave, in [0, 1).

    Raises
    ------
    ParameterError
        A number is outside its range.
    """
    if shard_size < 1:
        raise ParameterError(f"shard_size is {shard_size}; 1 or more is accepted")
    return shard_size - int(_part(dropout, "dropout") * shard_size)


def honest_survivors(shard_size: int, dropout: EpsilonLike, corrupt: EpsilonLike = 0) -> int:
    r"""The least number of clients whose noise counts in a released sum, h of the module's header.

    Parameters
    ----------
    shard_size, dropout
        As for :func:`promised_survivors`.
    corrupt : int, float, str, Decimal or Fraction
        The part that may collude with the server, in [0, 1).

    Raises
    ------
    ParameterError
        A number is outside its range, or nobody honest might be left.
    """
    honest = promised_survivors(shard_size, dropout) - int(_part(corrupt, "corrupt") * shard_size)
    if honest < 1:
        raise ParameterError(
            f"dropout {dropout} and corrupt {corrupt} may leave nobody honest of {shard_size}; "
            "a sum below 1 is accepted"
        )
    return honest


def share_shape(shard_size: int, dropout: EpsilonLike, corrupt: EpsilonLike = 0) -> Fraction:
    r"""The shape :math:`\alpha` of each client's noise share. Run by: the server, which publishes it.

    Parameters
    ----------
    shard_size, dropout, corrupt
        As for :func:`honest_survivors`.

    Raises
    ------
    ParameterError
        A number is outside its range, or nobody honest might be left.

    Examples
    --------
    >>> share_shape(10_000, 0.05)
    Fraction(1, 9500)
    """
    return Fraction(1, honest_survivors(shard_size, dropout, corrupt))


def require_survivors(survivors: int, shard_size: int, dropout: EpsilonLike) -> None:
    """Refuse to release the sum of too few clients. Run by: the server, before it unmasks; and every client.

    Parameters
    ----------
    survivors : int
        Clients whose input is in the sum.
    shard_size, dropout
        As for :func:`promised_survivors`.

    Raises
    ------
    PromiseError
        Fewer than promised: their noise would not suffice.
    """
    promised = promised_survivors(shard_size, dropout)
    if survivors < promised:
        raise PromiseError(
            f"{survivors} of {shard_size} clients are left, {promised} were promised (dropout {dropout}): "
            "their noise would not suffice, so nothing is released"
        )


def _part(value: EpsilonLike, name: str) -> Fraction:
    """A part of a whole, exactly."""
    try:
        if isinstance(value, (int, str, Decimal, Fraction)):
            exact = Fraction(value)
        else:  # NumPy's numbers are here too
            exact = Fraction(str(float(value)))
    except (ValueError, TypeError, OverflowError, ZeroDivisionError):
        exact = Fraction(-1)
    if not 0 <= exact < 1:
        raise ParameterError(f"{name} is {value!r}; a number from 0 to below 1 is accepted, such as 0.05")
    return exact
