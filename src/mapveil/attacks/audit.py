"""Audit the epsilon of a method by name, on invented worst-case inputs."""

from collections.abc import Mapping
from typing import Any

from mapveil.attacks.audited_inputs import worst_neighbours, worst_replacements
from mapveil.attacks.epsilon_audit import AuditReport, audit_epsilon, no_claim
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.mechanisms.mechanism import AnyMechanism
from mapveil.mechanisms.methods import METHODS, find_method
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.randomness.random import Randomness


def audit(
    method: str | AnyMechanism | None = None,
    *,
    trust: str | None = None,
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
    trust : str, optional
        The trust model of a named method; by default the first that has the method with an epsilon. For ``"local"`` the
        inputs are one user in one cell or in another, otherwise the sums with and without one user.
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
        claiming = (row.trust for row in METHODS if row.name == method and row.has_budget)
        row = find_method(method, trust or next(claiming, "central"))
        if not row.has_budget:
            raise no_claim(row.name)
        mechanism = row.make(as_epsilon(1 if epsilon is None else epsilon), options)
    tiling = Quadtree(Region.without_georeference(4, 4), depth=2)
    local = isinstance(mechanism, LocalMechanism)
    pairs = worst_replacements(tiling) if local else worst_neighbours(tiling)
    return audit_epsilon(mechanism, pairs, trials=trials, confidence=confidence, rng=rng)
