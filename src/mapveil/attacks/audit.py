"""Audit the epsilon of a method by name, on invented worst-case inputs."""

from collections.abc import Mapping
from typing import Any

from mapveil.attacks.epsilon_audit import (
    NO_EPSILON,
    AuditReport,
    audit_epsilon,
    worst_neighbours,
    worst_replacements,
)
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.mechanisms.mechanism import AnyMechanism, Mechanism
from mapveil.mechanisms.methods import find_method
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness


def audit(
    method: str | AnyMechanism | None = None,
    *,
    trust: str = "central",
    epsilon: EpsilonLike | None = None,
    options: Mapping[str, Any] | None = None,
    trials: int = 4000,
    confidence: float = 0.999,
    rng: Randomness | int | None = None,
) -> AuditReport:
    """Test an epsilon by running a mechanism on worst-case neighbouring inputs. Reads no data.

    Parameters
    ----------
    method : str or mechanism, optional
        A name from the table of methods, or a mechanism with its parameters; the default method of the trust model
        if left out.
    trust : str
        The trust model; for ``"local"`` the inputs are one user in one cell or in another, otherwise the sums with
        and without one user.
    epsilon : int, float, str, Decimal or Fraction, optional
        The claim, of a named method; 1 by default.
    options : mapping, optional
        Parameters of a named method.
    trials, confidence, rng
        See :func:`mapveil.attacks.epsilon_audit.audit_epsilon`.

    Raises
    ------
    ParameterError
        The method claims no epsilon, or a parameter is outside its range.
    """
    if isinstance(method, AnyMechanism):
        mechanism = method
    else:
        row = find_method(method, trust)
        if not row.has_budget:
            raise ParameterError(NO_EPSILON.format(row.name))
        mechanism = row.make(as_epsilon(1 if epsilon is None else epsilon), options)
    if not isinstance(mechanism, Mechanism):
        raise ParameterError(NO_EPSILON.format(mechanism.name))
    tiling = Quadtree(Region.without_georeference(4, 4), depth=2)
    pairs = worst_replacements(tiling) if trust == "local" else worst_neighbours(tiling)
    return audit_epsilon(mechanism, pairs, trials=trials, confidence=confidence, rng=rng)
