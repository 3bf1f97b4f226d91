"""The public documents of a collection, and its terms: all that a client is told before it decides to take part.

The terms are fixed when the collection opens and never change; their digest stands in every round's context, so clients
that were told different terms can never be summed together.
"""

import hashlib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from mapveil_client.cells import Cells
from mapveil_client.encodings import SiteEncoding
from mapveil_client.errors import InputError, ParameterError, check, is_whole
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import LocalMethod, Randomizer
from mapveil_client.method_parameters import OperatorParameters, Parameters, SumParameters, read_parameters
from mapveil_client.morton import interleave
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import read_query
from mapveil_client.randomness.noise_shares import own_epsilon
from mapveil_client.secure_sum.certificate import Authority
from mapveil_client.tiles_and_sites import cells_from_dict

if TYPE_CHECKING:
    from mapveil_client.public_windows import PublicWindows
    from mapveil_client.two_operators.sealed_report import HpkeConfig
    from mapveil_client.two_operators.sharding import Sharding

VERSION: Final = 1
TRUSTS: Final = ("distributed", "local", "random-features", "operators")
MOST_BYTES: Final = 1 << 24
_TILINGS: Final = ("grid", "quadtree", "tiles", "places")
_MOST_DEVICES: Final = 1 << 24
_ROUNDING: Final = (
    1e-6  # thousandths of epsilon: slack for the rounding error of own_epsilon, a quotient of sums
)
_PLAIN: Final = re.compile(r"[0-9]+(\.[0-9]+|/[0-9]+)?")
_HEXADECIMAL: Final = re.compile(r"[0-9a-f]*")
_LONGEST: Final = 200


def is_hexadecimal(text: object, digits: int) -> bool:
    """Whether a value is a text of so many lowercase hexadecimal digits."""
    return isinstance(text, str) and len(text) == digits and _HEXADECIMAL.fullmatch(text) is not None


def canonical_json(record: Mapping[str, Any]) -> bytes:
    """The one encoding of a record: sorted keys, no spaces, UTF-8; what digests are taken of."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def read_json(data: bytes, what: str) -> dict[str, Any]:
    """Read an object that came over the wire.

    Raises
    ------
    InputError
        It is no JSON object, or longer than 16 MiB.
    """
    if len(data) > MOST_BYTES:
        raise InputError(f"{what} of {len(data)} bytes; expected at most {MOST_BYTES}")
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is no JSON ({error})") from None
    if not isinstance(record, dict):
        raise InputError(f"{what} is no JSON object")
    return record


def read_fraction(value: object, name: str) -> Fraction:
    """An exact number above 0 as its text, ``"1/3"`` or ``"0.5"``.

    Raises
    ------
    InputError
        It is no such text.
    """
    # No exponents: ten letters could ask for a number that fills the memory.
    plain = isinstance(value, str) and len(value) <= _LONGEST and _PLAIN.fullmatch(value)
    try:
        exact = Fraction(str(value)) if plain else Fraction(0)
    except ZeroDivisionError:
        exact = Fraction(0)
    check(exact > 0, name, "a number above 0 as text, such as '1/3' or '0.5'", str(value)[:40])
    return exact


@dataclass(frozen=True, kw_only=True)
class Document(ABC):
    """A public document of a collection: one encoding, whose digest is bound into every secure sum."""

    what: ClassVar[str]

    @classmethod
    @abstractmethod
    def _read(cls, record: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a record's values."""

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready record, for the wire."""
        values = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return {"version": VERSION} | values

    def encode(self) -> bytes:
        """The one encoding."""
        return canonical_json(self.to_record())

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of :meth:`encode`, 32 bytes."""
        return hashlib.sha256(self.encode()).digest()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote. Run by: the client, that trusts nothing in it.

        Raises
        ------
        InputError
            It is no such document of this version.
        """
        record = read_json(data, cls.what)
        if record.pop("version", None) != VERSION:
            raise InputError(f"{cls.what} must be of version {VERSION}")
        try:
            made = cls(**cls._read(record))
            _ = made.digest  # half a character or an infinite number has no encoding
        except ParameterError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{cls.what}: a value is missing or of the wrong kind ({error})") from None
        return made


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction | Authority):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, kw_only=True)
class CollectionTerms(Document):
    """The request of a collection to every device, and its promise.

    Parameters
    ----------
    identifier : str
        32 hexadecimal digits, drawn at random.
    title : str
        For people; at most 200 characters.
    trust : str
        ``distributed``, ``local``, ``random-features`` or ``operators``.
    method : str
        A method of that trust, see :mod:`mapveil_client.method_parameters`.
    epsilon : Fraction, optional
        Total cost of taking part, for each client; none for random features.
    options : mapping
        The mechanism's other parameters.
    tiling : mapping
        The cells, as :meth:`mapveil_client.cells.Cells.to_dict` writes them.
    devices : int
        Number wanted: the collection begins (or ends) as soon as they are there.
    minimum : int
        Smallest number that a result is made of, at least 3.
    active : bool
        Whether secure sums are also safe against a malicious server.
    own_epsilon : Fraction, optional
        Cost of one secure sum with the whole budget if every other device is corrupt; further sums add to it.
    query : bytes
        The query of random features (:func:`mapveil_client.random_features.report.write_query`); empty otherwise.
    authority : Authority, optional
        Enrolment authority whose certificates the devices of an active secure sum need; given exactly there.
    authority_apart : bool
        Whether somebody else than the server's operator runs that authority, as the operator says.
    operators : tuple of str
        HPKE configurations of the leader and of the helper, hexadecimal, for sums by two operators; given exactly
        there.
    windows : mapping, optional
        The windows of a series (:class:`mapveil_client.public_windows.PublicWindows`): each device reports about the
        one that it draws under local trust, and divides its locations over all of them in sums.

    Raises
    ------
    InputError
        A term is of the wrong kind, or outside its range.
    """

    what = "the terms of a collection"

    identifier: str
    title: str
    trust: str
    method: str
    epsilon: Fraction | None
    options: Mapping[str, Any]
    tiling: Mapping[str, Any]
    devices: int
    minimum: int
    active: bool = True
    own_epsilon: Fraction | None = None
    query: bytes = b""
    authority: Authority | None = None
    authority_apart: bool = False
    operators: tuple[str, ...] = ()
    windows: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        kind = self.tiling.get("kind") if isinstance(self.tiling, Mapping) else None
        self._check(is_hexadecimal(self.identifier, 32), "identifier", "32 hexadecimal digits")
        self._check(isinstance(self.title, str) and len(self.title) <= 200, "title", "at most 200 characters")
        self._check(self.trust in TRUSTS, "trust", f"one of {', '.join(TRUSTS)}")
        self._check(isinstance(self.method, str), "method", "the name of a method")
        self._check(isinstance(self.options, Mapping), "options", "an object of parameters")
        self._check(is_whole(self.devices, 3, _MOST_DEVICES), "devices", f"3 to {_MOST_DEVICES}")
        self._check(is_whole(self.minimum, 3, self.devices), "minimum", f"3 to {self.devices}")
        self._check(isinstance(self.active, bool), "active", "true or false")
        self._check(kind in _TILINGS, "tiling", f"a record of one of {', '.join(_TILINGS)}")
        projection = self.trust == "random-features"
        self._check(bool(self.query) == projection, "query", "given for random features, and only there")
        sums = self.trust == "distributed" and self.active
        self._check(
            (self.authority is not None) == sums, "authority", "given for active secure sums, and only there"
        )
        self._check(isinstance(self.authority_apart, bool), "authority_apart", "true or false")
        wanted = 2 if self.trust == "operators" else 0
        self._check(
            len(self.operators) == wanted, "operators", "two for sums by two operators, and none elsewhere"
        )
        self._check(not (self.active and wanted), "active", "false for sums by two operators")
        keys = {each.public_key for each in self.configs}
        self._check(len(keys) == wanted, "operators", "of two different keys")
        divided = self.windows is None or self.trust != "random-features"
        self._check(divided, "windows", "those of local reports or of sums only")
        series = self.series
        stated = series is None or series.to_dict() == dict(self.windows or {})
        self._check(stated, "windows", "a record of windows with all its values, and no other")
        self._check(series is None or series.count > 1, "windows", "two or more")

    def _check(self, held: bool, name: str, needed: str) -> None:
        check(held, f"{name} of a collection's terms", needed, getattr(self, name))

    @cached_property
    def parameters(self) -> Parameters:
        """The method's parameters, as :func:`mapveil_client.method_parameters.read_parameters` reads them."""
        return read_parameters(self.trust, self.method, self.epsilon, self.options)

    def to_record(self) -> dict[str, Any]:
        """See :class:`Document`; terms without operators or windows do not mention them."""
        record = super().to_record()
        return {
            name: value for name, value in record.items() if value or name not in ("operators", "windows")
        }

    @cached_property
    def series(self) -> "PublicWindows | None":
        """The windows of a series; None of one map."""
        if self.windows is None:
            return None
        from mapveil_client.public_windows import PublicWindows

        return PublicWindows.from_dict(dict(self.windows))

    @cached_property
    def configs(self) -> "tuple[HpkeConfig, ...]":
        """Keys of the leader and of the helper; none of another trust."""
        if not self.operators:
            return ()
        from mapveil_client.two_operators.sealed_report import HpkeConfig

        return tuple(HpkeConfig.decode(bytes.fromhex(each)) for each in self.operators)

    @cached_property
    def sharding(self) -> "Sharding":
        """The shares of a contribution to sums by two operators.

        Raises
        ------
        InputError
            The trust is another one, or the cells are too many for it.
        """
        parameters = self.parameters
        if not isinstance(parameters, OperatorParameters):
            raise InputError(f"{self.trust} is no trust of two operators")
        from mapveil_client.two_operators.sharding import sharding_of

        shared = self.shared_sites
        return sharding_of(shared.depth + shared.levels, parameters.units, self.digest)

    @cached_property
    def shared_sites(self) -> SiteEncoding:
        """The sites whose shares two operators add up: those of the raster, in a series each by window."""
        return SiteEncoding(self.depth, 1 if self.series is None else self.series.count)

    @property
    def least_own_epsilon(self) -> Fraction | None:
        """The value for ``own_epsilon``, to thousandths: that of the largest shard, of the smallest shares."""
        sums = self.parameters
        if not isinstance(sums, SumParameters) or self.epsilon is None:
            return None
        own = own_epsilon(sums.alpha(min(sums.shard_size, self.devices)), self.epsilon, sums.units)
        return Fraction(math.ceil(1000 * own - _ROUNDING), 1000)

    @cached_property
    def cells(self) -> Cells:
        """The tiling, as :func:`mapveil_client.tiles_and_sites.cells_from_dict` reads it."""
        return cells_from_dict(self.tiling)

    @cached_property
    def randomizer(self) -> Randomizer:
        """The randomizer of a local report.

        Raises
        ------
        InputError
            The method has none, or its parameters do not fit the cells.
        """
        parameters = self.parameters
        if not isinstance(parameters, LocalMethod):
            raise InputError(f"{self.method} is no method of local reports")
        return parameters.on(Domain(self.cells))

    @cached_property
    def depth(self) -> int:
        """Depth of the raster that the cells lie on."""
        return self.cells.lattice().depth

    @cached_property
    def sites(self) -> npt.NDArray[np.int64]:
        """The site of each cell on the tiling's lattice: Morton codes, shape (cells,)."""
        lattice = self.cells.lattice()
        return interleave(lattice.row, lattice.col)

    @cached_property
    def judged(self) -> dict[Any, str | None]:
        """The reason of each policy's refusal, if any: the devices of one process judge once."""
        return {}

    @cached_property
    def features_query(self) -> Query:
        """The query of random Fourier features; an InputError where it is none of this version."""
        return read_query(self.query)

    @classmethod
    def _read(cls, record: dict[str, Any]) -> dict[str, Any]:
        optional = {
            name: None if record[name] is None else read_fraction(record[name], name)
            for name in ("epsilon", "own_epsilon")
        }
        return record | {
            **optional,
            "query": bytes.fromhex(record["query"]),
            "authority": None if record["authority"] is None else Authority.parse(record["authority"]),
            "operators": tuple(record.get("operators", ())),
        }
