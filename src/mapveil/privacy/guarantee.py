"""What was promised: a record that travels with every answer and prints itself."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple


class Share(NamedTuple):
    """One part of a budget: what it bought, and its exact epsilon."""

    purpose: str
    epsilon: Fraction


class Measured(NamedTuple):
    """What an adversary achieves, measured where nothing is proved (or beside what is)."""

    quantity: str  # such as "posterior error"
    value: float
    unit: str  # such as "m"
    against: str  # the adversary, and on what it was measured


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The promise behind an answer.

    Parameters
    ----------
    trust : str
        Who sees raw locations: one of the five wings (``"central"``, ``"distributed"``, ...).
    epsilon : Fraction or None
        The exact privacy parameter of everything that was released; None where the promise is not differential
        privacy, and says so.
    delta : float
        Additive slack in Pr[M(x) in S] <= e^epsilon Pr[M(x') in S] + delta; 0 for pure DP.
    unit : str
        Whose data are protected: ``"user"`` or ``"report"``.
    bounding : str
        How one unit's influence is bounded.
    neighbours : str
        The neighbouring relation.
    assumptions : tuple of str
        What must be true for the promise to hold.
    shares : tuple of Share
        How epsilon was spent; sums to at most ``epsilon``.
    measured : tuple of Measured
        What adversaries achieve.
    seeded : bool
        Whether the noise can be repeated by whoever knows the seed.
    """

    trust: str
    epsilon: Fraction | None
    delta: float = 0.0
    unit: str = "user"
    bounding: str
    neighbours: str
    assumptions: tuple[str, ...] = ()
    shares: tuple[Share, ...] = ()
    measured: tuple[Measured, ...] = ()
    seeded: bool = False

    @property
    def for_release(self) -> bool:
        """Whether the answer may be published under this promise."""
        return not self.seeded

    @property
    def label(self) -> str:
        """The promise in a few words, for titles and tags."""
        return "not differentially private" if self.epsilon is None else f"epsilon {float(self.epsilon):g}"

    def in_words(self) -> str:
        """The promise in sentences for a person who does not know the theory."""
        if self.epsilon is None:
            text = (
                f"This is NOT differential privacy: no factor bounds what can be learnt of one {self.unit}. "
                f"{self.bounding} What stays hidden: {self.neighbours}."
            )
        else:
            delta = f", plus a probability of {self.delta:g}" if self.delta else ""
            text = (
                f"Whether or not one {self.unit}'s data are in it, anything this map shows is at most "
                f"e^{_decimal(self.epsilon)} times likelier either way{delta} ({self.neighbours}). {self.bounding}"
            )
        if self.measured:
            text += " Measured: " + "; ".join(_measured(each) for each in self.measured) + "."
        if self.assumptions:
            text += " This rests on: " + "; ".join(self.assumptions) + "."
        if self.seeded:
            text += " SEEDED: NOT FOR RELEASE, the noise can be removed by whoever knows the seed."
        return text

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record; exact fractions as strings."""
        return {
            "trust": self.trust,
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "epsilon_decimal": None if self.epsilon is None else float(self.epsilon),
            "delta": self.delta,
            "unit": self.unit,
            "bounding": self.bounding,
            "neighbours": self.neighbours,
            "assumptions": list(self.assumptions),
            "shares": [{"purpose": share.purpose, "epsilon": str(share.epsilon)} for share in self.shares],
            **({"measured": [each._asdict() for each in self.measured]} if self.measured else {}),
            "seeded": "seeded: not for release" if self.seeded else False,
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Guarantee:
        """Read back what :meth:`to_dict` wrote."""
        return cls(
            trust=record["trust"],
            epsilon=None if record["epsilon"] is None else Fraction(record["epsilon"]),
            delta=float(record["delta"]),
            unit=record["unit"],
            bounding=record["bounding"],
            neighbours=record["neighbours"],
            assumptions=tuple(record["assumptions"]),
            shares=tuple(Share(part["purpose"], Fraction(part["epsilon"])) for part in record["shares"]),
            measured=tuple(Measured(**part) for part in record.get("measured", ())),
            seeded=bool(record["seeded"]),
        )

    def __repr__(self) -> str:
        lines = [
            (
                "Guarantee: NOT differential privacy"
                if self.epsilon is None
                else f"Guarantee: {_decimal(self.epsilon)}-DP"
            )
            + (f" (delta {self.delta:g})" if self.delta else "")
            + f" per {self.unit}, trust: {self.trust}"
            + (" -- seeded: not for release" if self.seeded else ""),
            f"  bounding    {self.bounding}",
            f"  {'hidden    ' if self.epsilon is None else 'neighbours'}  {self.neighbours}",
        ]
        lines += [f"  measured    {_measured(each)}" for each in self.measured]
        lines += [f"  assumes     {text}" for text in self.assumptions]
        lines += [f"  spent       {_decimal(share.epsilon)} on {share.purpose}" for share in self.shares]
        return "\n".join(lines)


def _measured(each: Measured) -> str:
    # Three digits, and no exponent below a million.
    return f"{each.quantity} {float(f'{each.value:.3g}'):g} {each.unit} against {each.against}"


def _decimal(epsilon: Fraction) -> str:
    return f"{float(epsilon):.6g}"
