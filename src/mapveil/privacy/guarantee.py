"""The guarantee of an answer: a typed claim that travels with every answer, and its rendered text."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from mapveil.privacy.claim import Adversary, Assumes, Assumption, Claim
from mapveil.privacy.promise import Promise, render


@dataclass(frozen=True, kw_only=True, repr=False)
class Guarantee(Claim):
    """A privacy claim, rendered by :func:`mapveil.privacy.promise.render`; the fields are those of :class:`Claim`."""

    @property
    def promise(self) -> Promise:
        """The guarantee in a layperson's sentences, an expert's line and rows of a table."""
        return render(self)

    def in_words(self) -> str:
        """The guarantee in sentences for a person who does not know the theory."""
        return " ".join((*self.promise.warnings, *self.promise.sentences))

    def to_dict(self) -> dict[str, Any]:
        """The fields as a JSON-ready record, with their rendered text beside them."""
        promise = json.loads(json.dumps(self.promise._asdict()))  # lists, as a reader of JSON finds them
        return {**super().to_dict(), "promise": promise}

    def as_simulation(self) -> Guarantee:
        """The same, of a run in which one process read the raw data in place of clients."""
        return replace(self, simulated=True)

    def with_active_sums(self, authority: Assumption) -> Guarantee:
        """The same, of secure sums with the checks against a malicious server; unchanged where no sum is trusted.

        ``authority`` says what is assumed of the enrolment authority, in place of the trust in the server's roster.
        Where the server's operator runs it, the server can invent clients, and must follow the protocol still.
        """
        if self.adversary is not Adversary.HONEST_SERVER:
            return self
        assumptions = tuple(
            authority if each.kind is Assumes.ROSTER_TRUSTED else each for each in self.assumptions
        )
        if authority.kind is Assumes.AUTHORITY_OF_OPERATOR:
            return replace(self, assumptions=assumptions)
        return replace(self, adversary=Adversary.MALICIOUS_SERVER, assumptions=assumptions)

    def __repr__(self) -> str:
        return self.promise.listing
