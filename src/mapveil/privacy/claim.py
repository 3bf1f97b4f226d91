"""The fields of a privacy claim: enumerations, numbers and their JSON, without a sentence.

:mod:`mapveil.privacy.promise` renders them; :mod:`mapveil.privacy.guarantee` is a claim with its rendered text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from mapveil_client.epsilon import plain
from mapveil_client.errors import ParameterError

K = TypeVar("K", bound=StrEnum)

_TOO_LARGE: Final = 10**300  # a float holds what is below
_EXACT: Final = re.compile(r"[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")

WARNED_EPSILON: Final = Fraction(10)
"""Largest epsilon without a warning; above it begins the tier of weakest guarantees of Ponomareva et al. (2023)."""

ACCEPTED_EPSILON: Final = Fraction(20)
"""Largest epsilon that need not be accepted expressly: just above the 19.61 of the 2020 United States census."""


ACCEPTED_DELTA: Final = Fraction(1, 100)
"""Largest delta that need not be accepted expressly: beyond it an outcome that is impossible without a user may have a
probability of 1 % with the user. A release has it at epsilon 17.5: :func:`mapveil.privacy.sampling.sampling_delta`."""


def check_large_epsilon(epsilon: Fraction, delta: Fraction, *, accepted: bool) -> None:
    """Refuse what is above :data:`ACCEPTED_EPSILON` or :data:`ACCEPTED_DELTA` unless accepted; before any charge."""
    if epsilon <= ACCEPTED_EPSILON and delta > ACCEPTED_DELTA and not accepted:
        raise ParameterError(
            f"epsilon must be smaller: at {plain(epsilon)} delta is {float(delta):g}, and above "
            f"{float(ACCEPTED_DELTA):g} a release needs accept_large_epsilon=True (--accept-large-epsilon)"
        )
    if epsilon > ACCEPTED_EPSILON and not accepted:
        raise ParameterError(
            f"epsilon must be at most {ACCEPTED_EPSILON}, above which the proved odds exceed 4.8*10^8 to 1, got "
            f"{plain(epsilon)}; to release all the same: accept_large_epsilon=True (--accept-large-epsilon)"
        )


class TrustModel(StrEnum):
    """The party that computes on raw data; the values are the names of ``--trust``."""

    CURATOR = "central"
    SECURE_AGGREGATION = "distributed"
    TWO_OPERATORS = "operators"
    LOCAL = "local"
    RANDOM_FEATURES = "random-features"
    OBFUSCATION = "obfuscation"


class Unit(StrEnum):
    """The unit that two neighbouring inputs differ in."""

    USER = "user"
    USER_WEEK = "user-week"
    WINDOW_RUN = "window-run"
    REPORT = "report"
    TRIP = "trip"
    DAY = "user's day"
    TRACE = "trace"


class Neighbouring(StrEnum):
    """The neighbouring relation."""

    ADD_OR_REMOVE = "add-or-remove"
    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"


class Adversary(StrEnum):
    """The adversary's view, and its deviation from the protocol."""

    RELEASE = "release"
    HONEST_SERVER = "honest-but-curious server"
    MALICIOUS_SERVER = "malicious server"
    EITHER_OPERATOR = "either operator"
    REPORTS = "reports"


class Norm(StrEnum):
    """The measure of a contribution bound."""

    L1 = "L1"
    L2 = "L2"
    REPORTS = "reports"


class ContributionBound(NamedTuple):
    """The largest contribution of one unit."""

    norm: Norm
    value: Fraction
    step: Fraction | None = None  # contributions are multiples of it; None where they are floating point

    def times(self, units: int) -> ContributionBound:
        """The bound of a unit that counts as so many."""
        return self._replace(value=units * self.value)


@dataclass(frozen=True)
class Clause(Generic[K]):
    """An assumption or a disclosure, with its parameters."""

    kind: K
    parameters: tuple[tuple[str, float | str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {"kind": self.kind.value, **dict(self.parameters)}

    @classmethod
    def from_dict(cls, kinds: type[K], record: dict[str, Any]) -> Clause[K]:
        """Read back what :meth:`to_dict` wrote."""
        parameters = {name: value for name, value in record.items() if name != "kind"}
        return Clause(kinds(record["kind"]), tuple(sorted(parameters.items())))


class _Kind(StrEnum):
    def __call__(self, **parameters: float | str) -> Clause[Self]:
        """The clause with these parameters."""
        return Clause(self, tuple(sorted(parameters.items())))


class Assumes(_Kind):
    """The conditions under which a guarantee holds; call a member with its parameters for a :class:`Clause`."""

    TABLE_SECRET = "table secret"
    DISTINCT_USERS = "distinct users"
    OTHER_PEOPLE = "other people"
    PLACES_PUBLIC = "places public"
    PRIOR_PUBLIC = "prior public"
    ONE_CLIENT = "one client per user"
    ONE_CONTRIBUTION = "one contribution"
    ONE_TRIP = "one trip per user"
    COMPOSES = "composes"
    RUN_LENGTH = "run length"
    UNITS_OF_USER = "units of a user"
    DROPOUT = "dropout"
    SECURE_SUM = "secure sum"
    OPERATORS_APART = "operators apart"
    SECRET_SHARES = "secret shares"
    ROSTER_TRUSTED = "roster trusted"
    AUTHORITY_APART = "authority apart"
    AUTHORITY_OF_OPERATOR = "authority of the operator"
    CLIENT_RANDOMNESS = "client randomness"
    CLIENT_ALONE = "client alone"
    PARTICIPATION_PUBLIC = "participation public"
    TIMING_PUBLIC = "timing public"
    PERIOD_PUBLIC = "period public"
    TRIPS_PUBLIC = "trips public"
    SIMULATED_VEHICLES = "simulated vehicles"
    FIXED_FREQUENCIES = "fixed frequencies"
    NO_SITE_LIST = "no site list"
    COARSE_SITE_LIST = "coarse site list"
    SINGLE_LOCATION = "single location"
    BANDWIDTH_READ = "bandwidth read"
    LOCATIONS_TRUSTED = "locations trusted"
    FLOATING_POINT = "floating point"
    PILOT_PUBLIC = "pilot public"
    PILOT_RADIUS_PUBLIC = "pilot radius public"
    PILOT_REPRESENTATIVE = "pilot representative"
    PILOT_RAW = "pilot raw"
    UNLINKED_REPORTS = "unlinked reports"
    ATTACKERS_TRIED = "attackers tried"
    PRIVATIZED_INPUT = "privatized input"
    KEPT_COLUMNS = "kept columns"
    NULL_CODE = "null code"
    NOT_CERTIFIED = "not certified"
    NO_WORST_CASE = "no worst case"


class Reveals(_Kind):
    """Kinds of reports; call a member with its parameters for a :class:`Clause`."""

    PHASES = "phases"
    PLANAR_LAPLACE = "planar laplace"
    LOCATION = "location"
    PRESENCE = "presence"
    CLIPPED_GAUSSIAN = "clipped gaussian"
    CLIPPED_LAPLACIAN = "clipped laplacian"
    GAUSSIAN = "gaussian"
    NETWORK = "network"
    CODE = "code"
    UNDOCUMENTED = "undocumented"


Assumption = Clause[Assumes]
"""A condition of the guarantee."""

Disclosure = Clause[Reveals]
"""A fact that one report reveals by construction."""


class Share(NamedTuple):
    """One part of a budget: the sums that were measured with it, and its exact epsilon."""

    purpose: str
    epsilon: Fraction


class Quantity(StrEnum):
    """A quantity that is measured of an adversary."""

    POSTERIOR_ERROR = "posterior error"
    WORST_ERROR = "posterior error for one device in twenty, at most"
    PRIOR_ERROR = "error of a guess without the report"
    PLACES_LEFT = "places left"
    USER_ERROR = "user error"
    PLACE_ERROR = "place error"
    WORST_EPSILON = "epsilon of the worst case of one report"


class Measured(NamedTuple):
    """An adversary's success, measured where nothing is proved (or beside a proof)."""

    quantity: Quantity
    value: float
    unit: str  # such as "m"
    against: str  # the adversary, and on what it was measured


class AccountReference(NamedTuple):
    """The record of the charge."""

    entries: tuple[str, ...]  # of the ledger, random names
    name: str | None = None  # of the account, as its owner gave it
    before: Fraction | None = None  # spent before this release
    after: Fraction | None = None  # and with it
    budget: Fraction | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        amounts = {name: _text(getattr(self, name)) for name in ("before", "after", "budget")}
        return {"entries": list(self.entries), "name": self.name, **amounts}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> AccountReference:
        """Read back what :meth:`to_dict` wrote."""
        amounts = (_fraction(record[name]) for name in ("before", "after", "budget"))
        if not isinstance(record["name"], str | None):
            raise TypeError("the name of an account must be a text")
        return cls(tuple(map(str, record["entries"])), record["name"], *amounts)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The fields of a guarantee.

    Parameters
    ----------
    model : TrustModel
        The party that computes on raw data.
    unit : Unit
        The unit that two neighbouring inputs differ in.
    neighbours : Neighbouring or None
        The neighbouring relation; None exactly where ``epsilon`` is.
    epsilon : Fraction or None
        The exact privacy parameter of everything that was released; None where the claim is not differential privacy.
    delta : Fraction
        Additive slack in Pr[M(x) in S] <= e^epsilon Pr[M(x') in S] + delta, from 0 to 1, the samplers' distance
        from their laws included.
    adversary : Adversary
        The adversary's view.
    bound : ContributionBound or None
        The contribution bound of one unit.
    disclosure : Disclosure or None
        Facts that a report reveals by construction, where epsilon alone does not say them.
    assumptions : tuple of Assumption
        Conditions of the claim.
    shares : tuple of Share
        Parts of epsilon; their sum is at most ``epsilon``.
    measured : tuple of Measured
        Success of adversaries that were tried.
    account : AccountReference or None
        The ledger that epsilon was charged to; None: not accounted.
    simulated : bool
        Whether one process read the raw data in place of clients.
    seeded : bool
        Whether anybody who knows the seed can repeat the noise; such an answer must not be published.
    """

    model: TrustModel
    unit: Unit = Unit.USER
    neighbours: Neighbouring | None = None
    epsilon: Fraction | None
    delta: Fraction = Fraction(0)
    adversary: Adversary
    bound: ContributionBound | None = None
    disclosure: Disclosure | None = None
    assumptions: tuple[Assumption, ...] = ()
    shares: tuple[Share, ...] = ()
    measured: tuple[Measured, ...] = ()
    account: AccountReference | None = None
    simulated: bool = False
    seeded: bool = False

    def __post_init__(self) -> None:
        if (self.epsilon is None) != (self.neighbours is None):
            raise ParameterError(
                f"a guarantee needs a neighbouring relation with epsilon and none without, got {self.neighbours} with "
                f"epsilon {self.epsilon}"
            )
        if not 0 <= self.delta <= 1:
            raise ParameterError(f"delta must be from 0 to 1, got {float(self.delta):g}")

    def assumes_besides(self, *kinds: Assumes) -> tuple[Assumption, ...]:
        """The assumptions of all kinds but these."""
        return tuple(each for each in self.assumptions if each.kind not in kinds)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record; exact fractions as strings, beside their decimals."""
        bound = self.bound
        return {
            "model": self.model.value,
            "unit": self.unit.value,
            "neighbours": self.neighbours and self.neighbours.value,
            "epsilon": _text(self.epsilon),
            "epsilon_decimal": None if self.epsilon is None else float(self.epsilon),
            "delta": str(self.delta),
            "delta_decimal": float(self.delta),
            "adversary": self.adversary.value,
            "bound": bound
            and {"norm": bound.norm.value, "value": str(bound.value), "step": _text(bound.step)},
            "disclosure": self.disclosure and self.disclosure.to_dict(),
            "assumptions": [each.to_dict() for each in self.assumptions],
            "shares": [{"purpose": share.purpose, "epsilon": str(share.epsilon)} for share in self.shares],
            "measured": [each._asdict() for each in self.measured],
            "account": self.account and self.account.to_dict(),
            "simulated": self.simulated,
            "seeded": self.seeded,
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Self:
        """Read back what :meth:`to_dict` wrote."""
        bound, disclosure, account = record["bound"], record["disclosure"], record["account"]
        return cls(
            model=TrustModel(record["model"]),
            unit=Unit(record["unit"]),
            neighbours=None if record["neighbours"] is None else Neighbouring(record["neighbours"]),
            epsilon=_fraction(record["epsilon"]),
            delta=read_exact(record["delta"]),
            adversary=Adversary(record["adversary"]),
            bound=bound
            and ContributionBound(Norm(bound["norm"]), read_exact(bound["value"]), _fraction(bound["step"])),
            disclosure=disclosure and Clause.from_dict(Reveals, disclosure),
            assumptions=tuple(Clause.from_dict(Assumes, each) for each in record["assumptions"]),
            shares=tuple(Share(part["purpose"], read_exact(part["epsilon"])) for part in record["shares"]),
            measured=tuple(
                Measured(**{**part, "quantity": Quantity(part["quantity"])}) for part in record["measured"]
            ),
            account=account and AccountReference.from_dict(account),
            simulated=bool(record["simulated"]),
            seeded=bool(record["seeded"]),
        )


def _text(value: Fraction | None) -> str | None:
    return None if value is None else str(value)


def _fraction(text: str | None) -> Fraction | None:
    return None if text is None else read_exact(text)


def read_exact(text: str) -> Fraction:
    """An exact number as ``str`` writes it: digits, with at most one slash; a ValueError for anything else."""
    # No exponents: ten letters could ask for a number that fills the memory.
    if not _EXACT.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no exact number")
    found = Fraction(text)
    if abs(found) >= _TOO_LARGE:
        raise ValueError(f"{text[:40]}... is too large a number")
    return found
