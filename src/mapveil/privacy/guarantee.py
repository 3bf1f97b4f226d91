"""What was promised: a record that travels with every answer and prints itself."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

__all__ = ["Guarantee", "Share"]


class Share(NamedTuple):
    """One part of a budget: what it bought, and its exact epsilon."""

    purpose: str
    epsilon: Fraction


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The promise behind an answer.

    Parameters
    ----------
    trust : str
        Who sees raw locations: one of the five wings (``"central"``, ``"distributed"``, ...).
    epsilon : Fraction
        The exact privacy parameter of everything that was released.
    delta : float
        Probability that the epsilon does not hold; 0 for pure DP.
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
    seeded : bool
        Whether the noise can be repeated by whoever knows the seed.
    """

    trust: str
    epsilon: Fraction
    delta: float = 0.0
    unit: str = "user"
    bounding: str
    neighbours: str
    assumptions: tuple[str, ...] = ()
    shares: tuple[Share, ...] = ()
    seeded: bool = False

    @property
    def for_release(self) -> bool:
        """Whether the answer may be published under this promise."""
        return not self.seeded

    def in_words(self) -> str:
        """The promise in sentences for a person who does not know the theory."""
        epsilon = _decimal(self.epsilon)
        delta = f" except with probability {self.delta:g}" if self.delta else ""
        text = (
            f"Whether or not one {self.unit}'s data are in it, anything this map shows is at most e^{epsilon} times "
            f"likelier either way{delta} ({self.neighbours}). {self.bounding}"
        )
        if self.assumptions:
            text += " This rests on: " + "; ".join(self.assumptions) + "."
        if self.seeded:
            text += " SEEDED: NOT FOR RELEASE, the noise can be removed by whoever knows the seed."
        return text

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record; exact fractions as strings."""
        return {
            "trust": self.trust,
            "epsilon": str(self.epsilon),
            "epsilon_decimal": float(self.epsilon),
            "delta": self.delta,
            "unit": self.unit,
            "bounding": self.bounding,
            "neighbours": self.neighbours,
            "assumptions": list(self.assumptions),
            "shares": [{"purpose": share.purpose, "epsilon": str(share.epsilon)} for share in self.shares],
            "seeded": "seeded: not for release" if self.seeded else False,
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Guarantee:
        """Read back what :meth:`to_dict` wrote."""
        return cls(
            trust=record["trust"],
            epsilon=Fraction(record["epsilon"]),
            delta=float(record["delta"]),
            unit=record["unit"],
            bounding=record["bounding"],
            neighbours=record["neighbours"],
            assumptions=tuple(record["assumptions"]),
            shares=tuple(Share(part["purpose"], Fraction(part["epsilon"])) for part in record["shares"]),
            seeded=bool(record["seeded"]),
        )

    def __repr__(self) -> str:
        lines = [
            f"Guarantee: {_decimal(self.epsilon)}-DP"
            + (f" (delta {self.delta:g})" if self.delta else "")
            + f" per {self.unit}, trust: {self.trust}"
            + (" -- seeded: not for release" if self.seeded else ""),
            f"  bounding    {self.bounding}",
            f"  neighbours  {self.neighbours}",
        ]
        lines += [f"  assumes     {text}" for text in self.assumptions]
        lines += [f"  spent       {_decimal(share.epsilon)} on {share.purpose}" for share in self.shares]
        return "\n".join(lines)


def _decimal(epsilon: Fraction) -> str:
    return f"{float(epsilon):.6g}"
