"""The rules of a device: decisions from public documents, before its locations are looked at.

The device recomputes what it was promised: that a noise share is large enough for its shard, and that a round is the
one that the terms announced. A device that finds otherwise sends nothing.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.contribution import sensitivity
from mapveil_client.device_account import Budget
from mapveil_client.encodings import LabelEncoding
from mapveil_client.epsilon import keeps, readable
from mapveil_client.errors import Checked, InputError, MapveilError, one_line
from mapveil_client.method_parameters import LABELLED, OperatorParameters, SumParameters, shard_boundaries
from mapveil_client.plane import closed_projection
from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.randomness.noise_shares import check_round, own_epsilon, share_shape
from mapveil_client.secure_sum.certificate import Authority
from mapveil_client.terms import TRUSTS, CollectionTerms

_MOST_UNITS: Final = 1 << 40
_LIFETIME: Final = Budget(Fraction(4))
_SAME: Final = 1e-6
_THOUSANDTH: Final = Fraction(1, 1000)
_CHUNK: Final = 1 << 18
_FROM_THE_WIRE: Final = (MapveilError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError)
"""Exceptions raised by malformed input, wherever it is first used."""


@dataclass(frozen=True, kw_only=True)
class DevicePolicy(Checked):
    """The rules of one device; nobody but its owner can change them.

    Parameters
    ----------
    budget : Budget
        Total cost of all answers of this device, ever or per period.
    most_per_collection : Fraction
        Largest cost of one collection.
    least_shard : int
        Minimum number of devices per secure sum and per collection.
    least_corrupt : Fraction
        Smallest fraction of corrupt devices that noise and graph must be provisioned for.
    most_dropout : Fraction
        Largest fraction of a shard that may drop out.
    most_own_epsilon : float
        Largest worst-case epsilon of a collection if every other device is corrupt: the least that this device's own
        noise must keep.
    active_only : bool
        Refuse secure sums without protection against a malicious server.
    authority : Authority, optional
        Enrolment authority that must have certified every device of such a sum; none is answered without.
    helper : str, optional
        Public key of the helper, 64 hexadecimal digits, that the owner trusts not to share with a leader; no
        collection of sums by two operators is answered without: a leader could name itself as both.
    trusts : tuple of str
        Kinds of collections: ``distributed``, ``local``, ``random-features``, ``operators``.
    smallest_cell_m : float
        Smallest side of a cell (the root of the cells' mean area), metres.
    most_cells, most_length : int
        Largest number of cells of a map and of coordinates of a vector.
    most_report : int
        Largest report to two operators, bytes: both shares.
    random_features : Policy, optional
        Bounds on random Fourier features; none are answered without.

    Raises
    ------
    ParameterError
        A rule outside its range.
    """

    # Choices for an owner to change, not measurements. The odds of a guess about presence change by e^4 = 55 at most
    # over all collections, and by e^2 = 7.4 in one. A shard of 20 with a twentieth corrupt is the smallest in which the
    # noise is provisioned for one corrupt device; a quarter dropping out makes the variance 1 / (1 - 1/4 - 1/20) = 1.43
    # times as large where none does.
    budget: Budget = _LIFETIME
    most_per_collection: Fraction = Fraction(2)
    least_shard: int = 20
    least_corrupt: Fraction = Fraction(1, 20)
    most_dropout: Fraction = Fraction(1, 4)
    most_own_epsilon: float = math.inf  # the default relies on others' noise
    active_only: bool = True
    authority: Authority | None = None
    helper: str | None = None
    trusts: tuple[str, ...] = TRUSTS
    smallest_cell_m: float = 0.0
    most_cells: int = 1 << 22  # 2,048 x 2,048
    most_length: int = 1 << 22  # 32 MiB of 64-bit coordinates
    most_report: int = 1 << 22  # 16,384 sites, the most that operators answer for, at scale 16 take 1.3 MB
    random_features: Policy | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.most_per_collection > 0, "most_per_collection", "above 0")
        for name in ("least_corrupt", "most_dropout"):
            self._check(0 <= getattr(self, name) < 1, name, "a fraction from 0 to below 1")
        for name, least in (("least_shard", 3), ("most_cells", 1), ("most_length", 1), ("most_report", 1)):
            self._check(getattr(self, name) >= least, name, f"{least} or more")
        named = self.helper is None or re.fullmatch("[0-9a-f]{64}", self.helper) is not None
        self._check(named, "helper", "the 64 hexadecimal digits that the helper's operator tells")
        self._check(self.most_own_epsilon > 0, "most_own_epsilon", "above 0")
        self._check(0 <= self.smallest_cell_m < math.inf, "smallest_cell_m", "a number of metres from 0")
        self._check(set(self.trusts) <= set(TRUSTS), "trusts", f"a choice of {', '.join(TRUSTS)}")

    def refusal(self, terms: CollectionTerms) -> str | None:
        """Why this device takes no part in a collection; None where it does. Run by: the device.

        Neither its budget is looked at here (see :class:`mapveil_client.device_account.Account`), nor its locations.
        """
        if self not in terms.judged:
            try:
                sentence = self._refusal_of_terms(terms)
            except _FROM_THE_WIRE as error:
                sentence = f"the terms cannot be used: {_said(error)}"
            terms.judged[self] = sentence and one_line(sentence)
        return terms.judged[self]

    def _refusal_of_terms(self, terms: CollectionTerms) -> str | None:
        if terms.trust not in self.trusts:
            return f"trust must be {' or '.join(self.trusts)}, got {terms.trust}"
        parameters = terms.parameters
        if terms.trust in ("distributed", "operators") and terms.method in LABELLED:
            return f"{terms.method} asks for a label of every location, and this device has none"
        refusal = _outside(
            ("minimum", terms.minimum, self.least_shard, math.inf),
            ("epsilon", terms.epsilon or 0, 0, self.most_per_collection),
        )
        refusal = refusal or self._refusal_of_cells(terms)
        if refusal is not None:
            return refusal
        if isinstance(parameters, SumParameters):
            return self._refusal_of_sums(terms, parameters)
        if isinstance(parameters, OperatorParameters):
            return self._refusal_of_operators(terms, parameters)
        if terms.trust != "local":
            return self._refusal_of_features(terms)
        if terms.epsilon is None or not keeps(terms.randomizer.worst_ratio(), terms.epsilon):
            return f"reports of {terms.method} do not keep the epsilon that is promised"
        return None

    def _refusal_of_cells(self, terms: CollectionTerms) -> str | None:
        record = terms.tiling["region"]
        if "polygon" in record:
            return "region must be a box, got a polygon"
        if closed_projection(str(record["crs"])) is None:
            return f"region must be in a plane that this device projects, got {record['crs']!s:.40}"
        cells = terms.cells
        side = math.sqrt(cells.region.area_m2 / cells.size)
        smallest = self.smallest_cell_m if cells.region.georeferenced else 0.0
        return _outside(
            ("number of cells", cells.size, 1, self.most_cells),
            ("cell side in metres", side, smallest, math.inf),
        )

    def _refusal_of_sums(self, terms: CollectionTerms, sums: SumParameters) -> str | None:
        if self.active_only and not terms.active:
            return "secure sums must be protected against a malicious server"
        if terms.active and self.authority is None:
            return (
                "this device's policy names no enrolment authority (a fleet's: --authority): "
                "the server could invent the other devices"
            )
        if terms.active and terms.authority != self.authority:
            return f"the enrolment authority must be {self.authority}, got {terms.authority}"
        if sums.overflow != "refuse":
            return f"overflow must be refuse, got {sums.overflow}"
        refusal = _outside(
            ("corrupt", Fraction(str(sums.corrupt)), self.least_corrupt, 1),
            ("tolerated_dropout", Fraction(str(sums.tolerated_dropout)), 0, self.most_dropout),
            ("shard_size", sums.shard_size, self.least_shard, math.inf),
        )
        if refusal is not None:
            return refusal
        stated, least = terms.own_epsilon or 0, terms.least_own_epsilon or 0
        if stated < least - _THOUSANDTH:  # another machine's logarithm may round otherwise
            return f"own_epsilon must be {float(least):.6g} or more, got {float(stated):.6g}"
        if least > self.most_own_epsilon:
            return _exposed(float(least), self.most_own_epsilon)
        return None

    def _refusal_of_operators(self, terms: CollectionTerms, parameters: OperatorParameters) -> str | None:
        if self.helper is None:
            return "this device's policy names no helper (a fleet's: --helper): the leader could be both operators"
        named = terms.configs[1].public_key.hex()
        if named != self.helper:
            return f"the helper's key must be {self.helper}, and the terms name another"
        sharding = terms.sharding
        # An operator answers for the larger of minimum, which is in bounds, and minimum_batch.
        return _outside(
            ("minimum_batch", parameters.minimum_batch, 1, terms.devices),
            ("number of sites", sharding.sites, 1, self.most_length),
            ("bytes of a report", sum(sharding.sizes(each)[1] for each in (0, 1)), 1, self.most_report),
        )

    def _refusal_of_features(self, terms: CollectionTerms) -> str | None:
        if self.random_features is None:
            return "this device's policy has no bounds on random Fourier features"
        query, region = terms.features_query, terms.cells.region
        plane = region.metric_projection
        west, south, east, north = region.bbox
        x, y = plane.project(np.array([west, east]), np.array([south, north]))
        # To abstain tells that a device is not in the map's region: features of a larger one would be too wide for it.
        wanted, given = (x[0], y[0], x[1], y[1]), (*query.low, *query.high)
        away = np.abs(np.subtract(wanted, given)) / np.tile(query.sides, 2)
        if query.crs != str(getattr(plane, "crs", "")) or not bool((away <= _SAME).all()):
            return "the random features are of another region than the map"
        return self.random_features.refusal(query)

    def refusal_of_round(
        self, terms: CollectionTerms, announcement: RoundAnnouncement, spent: Fraction = Fraction(0)
    ) -> str | None:
        """Why this device, with ``spent`` on the collection so far, does not answer a round; None where it does.

        Run by: the device.
        """
        try:
            sentence = self._refusal_of_announcement(terms, announcement, spent)
        except _FROM_THE_WIRE as error:
            sentence = f"the announcement cannot be used: {_said(error)}"
        return sentence and one_line(sentence)

    def _refusal_of_announcement(
        self, terms: CollectionTerms, asked: RoundAnnouncement, spent: Fraction
    ) -> str | None:
        sums = terms.parameters
        if not isinstance(sums, SumParameters) or terms.epsilon is None:
            return f"a {terms.trust} collection has no rounds"
        if asked.terms != terms.digest.hex():
            return "it is a round of a collection with other terms"
        if spent + asked.epsilon > terms.epsilon:
            return (
                f"epsilon must be at most {readable(terms.epsilon)}, as the terms promised, of which "
                f"{readable(spent)} is spent, got {readable(asked.epsilon)}"
            )
        for name, told, agreed in (
            ("tolerated_dropout", asked.dropout, Fraction(str(sums.tolerated_dropout))),
            ("corrupt", asked.corrupt, Fraction(str(sums.corrupt))),
            ("rounding", asked.rounding, sums.rounding),
            ("scale", asked.scale, sums.units),
            ("active", asked.active, terms.active),
        ):
            if told != agreed:
                return f"{name} must be {agreed}, as the terms promised, got {told}"
        refusal = _outside(
            ("shard", min(asked.sizes), self.least_shard, math.inf),
            ("number of devices", count := sum(asked.sizes), terms.minimum, terms.devices),
            ("number of coordinates", asked.length, 1, self.most_length),
        )
        if refusal is not None:
            return refusal
        # Smaller shards would hold fewer honest devices, and more devices a smaller share of noise than own_epsilon's.
        if asked.sizes != (even := tuple(np.diff(shard_boundaries(count, sums.shard_size)).tolist())):
            return f"shards of {count} devices must have {even!s:.60}, got {asked.sizes!s:.60}"
        for size in {*asked.sizes}:
            needed = Fraction(1) if sums.whole_noise else share_shape(size, asked.dropout, asked.corrupt)
            if not needed <= asked.alpha <= 1:
                shares = f"{float(needed):.6g} to 1 in a shard of {size}"
                return f"noise share must be {shares}, got {float(asked.alpha):.6g}"
        return self._refusal_of_encoding(terms, asked)

    def _refusal_of_encoding(self, terms: CollectionTerms, asked: RoundAnnouncement) -> str | None:
        places, series = asked.encoding, terms.series
        if places["kind"] == "labels":
            if series is None:
                return "the announcement asks for labels, and this device has none"
            if places["labels"] != series.count:
                return f"labels must be the {series.count} windows of the terms, got {places['labels']}"
            places = places["places"]
        # Locations on another raster could be an error for some and not for others, which would tell them apart.
        if (depth := places["depth"]) != terms.depth:
            return f"depth of the raster must be {terms.depth}, as the terms promised, got {depth}"
        if asked.query.encoding.copies * asked.scale > _MOST_UNITS:
            return "scale is too large: a coordinate would overflow"
        asked.parameters(0)
        moves = sensitivity(asked.query.encoding, asked.scale, asked.rounding)
        check_round(asked.number, asked.length, asked.alpha, asked.epsilon, moves)
        # In proportion to the round's budget: so the rounds of a collection stay within the bound together.
        most = self.most_own_epsilon * float(asked.epsilon / (terms.epsilon or asked.epsilon))
        if (own := own_epsilon(asked.alpha, asked.epsilon, moves)) > most * (1 + _SAME):
            return _exposed(own, most)
        if asked.terms not in asked.judged:
            asked.judged[asked.terms] = _fault_of_encoding(terms, asked)
        return asked.judged[asked.terms]


def _fault_of_encoding(terms: CollectionTerms, asked: RoundAnnouncement) -> str | None:
    """The fault of an encoding anywhere on the map: found now, and not at the one location that matters."""
    encoding = asked.query.encoding
    if isinstance(encoding, LabelEncoding):
        encoding = encoding.places
    for start in range(0, terms.sites.size, _CHUNK):
        position = encoding.positions(np.append(terms.sites[start : start + _CHUNK], -1))
        if not -1 <= int(position.min()) <= int(position.max()) < encoding.length:
            return "a location would count at a coordinate that the vector does not have"
    return None


def _exposed(own: float, most: float) -> str:
    return f"epsilon with every other device corrupt must be at most {most:.3g}, got {own:.3g}"


_Number = float | Fraction


def _outside(*bounds: tuple[str, _Number, _Number, _Number]) -> str | None:
    """A refusal of the first quantity (name, value, least, most) out of its bounds."""
    for name, value, least, most in bounds:
        if not least <= value <= most:
            bound = f"at most {float(most):.6g}" if value > most else f"at least {float(least):.6g}"
            return f"{name} must be {bound}, got {float(value):.6g}"
    return None


def _said(error: BaseException) -> str:
    """The text of an error of ours; others may hold anything."""
    return str(error) if isinstance(error, InputError) else type(error).__name__
