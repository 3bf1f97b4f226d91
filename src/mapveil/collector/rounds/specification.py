"""An operator's specification of a collection: its schema, and the terms that every device is told.

Everything that could make a collection fail by its parameters alone is tried here, before any device is asked.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError

from mapveil.collector.operators.operator_keys import Operators
from mapveil.collector.operators.plan_answers import check_answerable
from mapveil.collector.rounds.offer import Offer
from mapveil.collector.rounds.plan_replay import check_feasible
from mapveil.collector.rounds.region_record import Latitude, Longitude, RegionRecord, read_region
from mapveil.collector.rounds.validation import (
    EITHER,
    ONE_LINE,
    StrictModel,
    refuse_many_members,
    validation_text,
    worded,
)
from mapveil.collector.rounds.windows_record import WindowsRecord, check_sites
from mapveil.geo.parse_tiling import parse_tiling, tiling_from_dict
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.local_series import LocalSeries
from mapveil.mechanisms.mechanism import AnyMechanism, check_tiling
from mapveil.mechanisms.methods import SERIES, Method, find_method
from mapveil.privacy.claim import check_large_epsilon
from mapveil.privacy.sampling import sampling_delta
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.local.domain import Domain
from mapveil_client.method_parameters import TABLE_SCALE
from mapveil_client.policy import DevicePolicy
from mapveil_client.random_features.report import write_query
from mapveil_client.secure_sum.certificate import Authority
from mapveil_client.terms import CollectionTerms

MAX_CELLS: Final = 1 << 22
"""Maximum number of cells of a collection's map: chosen so that a phone and a page can hold it."""

_MAX_DEPTH: Final = 12
"""Maximum depth of the raster that the cells lie on: sums are over all of its 4**12 sites, cells or not."""

_MIN_EPSILON: Final = Fraction(1, 1 << 20)
_MAX_EPSILON: Final = Fraction(10_000)
_SIMULATED_ONLY: Final = ("sample", "redraw", "population")

Trust = Literal["distributed", "local", "random-features", "operators"]
Option = (
    Annotated[bool, EITHER]
    | Annotated[int, Field(ge=-(1 << 53), le=1 << 53), EITHER]
    | Annotated[float, EITHER]
    | Annotated[str, Field(max_length=200, pattern=worded(r"^[^\x00-\x1f\x7f]*$", "printable text")), EITHER]
    | None
)
_Options = Annotated[dict[Annotated[str, Field(max_length=60)], Option], BeforeValidator(refuse_many_members)]
_Epsilon = Annotated[
    str,
    Field(
        max_length=61,
        pattern=worded(
            r"^([0-9]{1,20}(\.[0-9]{1,30})?|[0-9]{1,30}/[0-9]{1,30})$", "a number as text, such as 0.5 or 1/3"
        ),
    ),
    EITHER,
]
# A closed list: places:FILE would read the service's own disk.
_TilingText = Annotated[
    str,
    Field(
        pattern=worded(
            r"^(grid:[0-9]{1,5}x[0-9]{1,5}|quadtree:[0-9]{1,2}|tiles:[0-9]{1,2})$",
            "quadtree:DEPTH, grid:ROWSxCOLUMNS or tiles:ZOOM",
        )
    ),
    EITHER,
]
_Names = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=MAX_CELLS, fail_fast=True)]


class PlacesRecord(StrictModel):
    """A public list of sites: each device counts at the nearest one."""

    kind: Literal["places"]
    # The first fault of a list is told alone: an error of each of half a million items takes seconds.
    lon: Annotated[list[Longitude], Field(min_length=2, max_length=MAX_CELLS, fail_fast=True)]
    lat: Annotated[list[Latitude], Field(min_length=2, max_length=MAX_CELLS, fail_fast=True)]
    names: _Names | None = None
    max_distance_m: Annotated[float, Field(gt=0)] | None = None


class CollectionSpec(StrictModel):
    """An operator's specification; the terms that devices are told are made from it, and fixed."""

    title: Annotated[str, Field(min_length=1, max_length=200, pattern=ONE_LINE)] = Field(
        description="For people: operators and the owners of phones read it"
    )
    trust: Trust = Field(description="The trust model: distributed, operators, local or random-features")
    method: Annotated[str, Field(max_length=60)] | None = Field(
        default=None, description="A method of that trust model; the usual one by default"
    )
    epsilon: _Epsilon | Annotated[float, Field(gt=0, le=10_000), EITHER] | None = Field(
        default=None, description="Epsilon that each device is charged in all; exact as text, such as 1/3"
    )
    accept_large_epsilon: bool = Field(
        default=False, description="Whether epsilon may be above 20 or delta above 0.01"
    )
    accept_custom_policy: bool = Field(
        default=False,
        description="Whether the default policy of devices may refuse it: their app has another one",
    )
    options: _Options | None = Field(default=None, description="The mechanism's other parameters")
    region: RegionRecord = Field(
        description="West, south, east and north in degrees, or the same box as GeoJSON"
    )
    tiling: _TilingText | Annotated[PlacesRecord, EITHER] = Field(
        description="quadtree:8, grid:ROWSxCOLUMNS, tiles:15, or a public list of places"
    )
    windows: WindowsRecord | None = Field(
        default=None,
        description="Windows of a series: a device reports about one it draws, or divides itself over all in sums",
    )
    devices: Annotated[int, Field(ge=3, le=1 << 24)] = Field(
        description="Number of devices at which the collection begins (rounds) or ends (reports)"
    )
    minimum: Annotated[int, Field(ge=3, le=1 << 24)] | None = Field(
        default=None, description="Minimum number of devices; half of the devices by default"
    )
    active: bool = Field(default=True, description="Protection against a malicious server in secure sums")
    join_seconds: Annotated[int, Field(ge=1, le=90 * 24 * 3600)] = Field(
        default=3600, description="Time for devices to join, or to report"
    )
    phase_seconds: Annotated[int, Field(ge=1, le=24 * 3600)] = Field(
        default=60, description="Time that a phase of a round waits for its devices"
    )


class PendingCollection(NamedTuple):
    """A collection as it will be offered to devices."""

    terms: CollectionTerms
    join_seconds: int
    phase_seconds: int


def read_specification(
    spec: CollectionSpec | Mapping[str, Any],
    identifier: str,
    authority: Authority | EnrolmentAuthority | None = None,
    operators: Callable[[], Operators] | None = None,
) -> PendingCollection:
    """Make the terms of a specified collection.

    Parameters
    ----------
    spec : CollectionSpec or mapping
        The specification; a mapping is validated first.
    identifier : str
        32 random hexadecimal digits.
    authority : Authority or EnrolmentAuthority, optional
        The enrolment authority of active sums: apart from the collector, or its own.
    operators : callable, optional
        Gives the leader and the helper; none where this service leads nobody.

    Raises
    ------
    InputError
        A field is missing, unknown or out of range, or does not fit the others.
    """
    if not isinstance(spec, CollectionSpec):
        try:
            spec = CollectionSpec.model_validate(dict(spec))
        except ValidationError as error:
            raise InputError(validation_text(error.errors(include_url=False))) from None
    if not spec.title.strip() or not spec.title.isprintable():
        raise InputError("title must have 1 to 200 printable characters, not all of them spaces")
    minimum = max(3, -(-spec.devices // 2)) if spec.minimum is None else spec.minimum
    if minimum > spec.devices:
        raise InputError(f"minimum must be at most devices ({spec.devices}), got {minimum}")
    method = find_method(spec.method, spec.trust)
    epsilon, options = _epsilon(spec.epsilon, method), _options(spec.options or {}, method)
    if epsilon is not None:
        delta = sampling_delta(epsilon) if spec.trust in ("distributed", "operators") else Fraction(0)
        check_large_epsilon(epsilon, delta, accepted=spec.accept_large_epsilon)
    tiling = _tiling(spec.tiling, read_region(spec.region))
    by_operators = spec.trust == "operators"
    if by_operators:
        if operators is None:
            raise InputError(
                "trust: sums by two operators need a helper; start the collector with --operator leader, --peer URL "
                "and --peer-key FILE"
            )
        if spec.active and "active" in spec.model_fields_set:
            raise InputError(
                "active: sums by two operators have no secure sum to protect; each operator verifies every report "
                "(trust: operators); leave active out, or use trust: distributed"
            )
        # One unit would be in one window of a device alone, and of equal ones in the first.
        options = {"scale": TABLE_SCALE if spec.windows else 1, "minimum_batch": minimum} | options
        if isinstance(batch := options["minimum_batch"], int) and batch > spec.devices:
            raise InputError(
                f"options: minimum_batch must be at most {spec.devices}, the devices wanted, got {batch}: nothing "
                "would be answered, and every device would have paid"
            )
    windows = None if spec.windows is None else spec.windows.for_method(method)
    mechanism = (SERIES[method.trust].make if windows else method.make)(
        epsilon, options | ({"windows": windows} if windows else {})
    )
    if isinstance(mechanism, LocalMechanism):
        designing = mechanism.of_report if isinstance(mechanism, LocalSeries) else mechanism
        options |= designing.designed_options(Domain(tiling), spec.devices)
    own = isinstance(authority, EnrolmentAuthority)
    named = authority.named if isinstance(authority, EnrolmentAuthority) else authority
    certified = spec.trust == "distributed" and spec.active
    if certified and named is None:
        raise InputError(
            "active: protection against a malicious server needs an enrolment authority; start the collector with "
            "--authority POPULATION:KEY or --authority-key FILE"
        )
    pair = operators() if by_operators and operators else None
    terms = CollectionTerms(
        identifier=identifier if pair is None else pair.identifier(identifier),
        title=spec.title,
        trust=spec.trust,
        method=method.name,
        epsilon=epsilon,
        options=options,
        tiling=tiling.to_dict(),
        devices=spec.devices,
        minimum=minimum,
        active=spec.active and not by_operators,
        query=_query(mechanism, tiling, spec.devices),
        authority=named if certified else None,
        authority_apart=certified and not own,
        operators=() if pair is None else pair.encoded,
        windows=None if windows is None else windows.to_dict(),
    )
    if terms.series is not None:
        check_sites(terms.series.count, terms.cells.lattice().depth)
    if terms.trust == "distributed":
        terms = replace(terms, own_epsilon=terms.least_own_epsilon)
        check_feasible(terms)
    elif by_operators:
        check_answerable(terms)
    # Devices read the encoded terms: these must mean the same.
    terms = CollectionTerms.decode(terms.encode())
    # Both halves of a randomizer are made, as the service and every device will make them.
    if terms.trust == "local" and Offer(terms).randomizer.identity() != terms.randomizer.identity():
        raise PromiseError("the service and the devices make other randomizers of the same terms")
    if not spec.accept_custom_policy:
        _check_default_policy(terms)
    return PendingCollection(terms, spec.join_seconds, spec.phase_seconds)


def _check_default_policy(terms: CollectionTerms) -> None:
    """Refuse terms that a device with the published default policy, and this collector's authority, would refuse.

    Not of random features: no device answers them without bounds of its own app.
    """
    helper = terms.configs[1].public_key.hex() if terms.configs else None
    policy = DevicePolicy(authority=terms.authority, helper=helper)
    reason = None if terms.trust == "random-features" else policy.refusal(terms)
    if reason is not None:
        raise InputError(
            f"the default policy of devices refuses this collection: {reason}; where their app's policy allows it: "
            "accept_custom_policy"
        )


def _query(mechanism: AnyMechanism, tiling: Tiling, devices: int) -> bytes:
    """The query of a random-features collection; empty for another trust model."""
    if not isinstance(mechanism, FourierKde):
        return b""
    try:
        signal, meaning = mechanism.predicted_signal(tiling, devices)
        query = mechanism.public_query(tiling, devices)
    except PromiseError as error:
        raise InputError(f"devices would not answer: {error}") from None
    if signal < mechanism.least_signal:
        raise InputError(
            f"devices would answer in vain: {meaning} (option least_signal=0 asks them nevertheless)"
        )
    return write_query(query)


def _tiling(value: str | PlacesRecord, region: Region) -> Tiling:
    made = parse_tiling(value, region) if isinstance(value, str) else _places(value, region)
    if made.size > MAX_CELLS:
        raise InputError(f"tiling must have at most {MAX_CELLS} cells, got {made.size} ({made.spec})")
    check_tiling(made)
    if made.lattice().depth > _MAX_DEPTH:
        raise InputError(f"tiling {made.spec} is too narrow: at most {1 << _MAX_DEPTH} rows and columns")
    return made


def _places(record: PlacesRecord, region: Region) -> Tiling:
    """A list of sites within the region."""
    names = record.names
    if len(record.lon) != len(record.lat) or (names is not None and len(names) != len(record.lon)):
        raise InputError("tiling: lon, lat and names of places must be of one length")
    if not all(name.isprintable() for name in names or ()):
        raise InputError("tiling: names of places must be printable")
    return tiling_from_dict({**record.model_dump(exclude_none=True), "region": region.to_dict()})


def _epsilon(value: str | float | None, method: Method) -> Fraction | None:
    if not method.has_budget:
        if value is not None:
            raise InputError(f"epsilon: {method.name} takes none: it is not differentially private")
        return None
    text = f"{Decimal(repr(value)):f}" if isinstance(value, float | int) else value
    if text is None or int(text.partition("/")[2] or 1) == 0:
        raise InputError("epsilon must be a number above 0 such as 1, '0.5' or '1/3'")
    exact = Fraction(text)
    if not _MIN_EPSILON <= exact <= _MAX_EPSILON:
        raise InputError(f"epsilon must be 2**-20 to {_MAX_EPSILON}, got {float(exact):g}")
    return exact


def _options(options: dict[str, Any], method: Method) -> dict[str, Any]:
    """The mechanism's parameters: those that a collection from devices can keep."""
    if method.labels:
        raise InputError(f"method {method.name} needs a label of every row, which devices do not report")
    if method.trust == "random-features" and method.name != "fourier-kde":
        raise InputError(
            f"method must be fourier-kde, got {method.name}, which sends locations or whole kernels"
        )
    if "prior" in options:
        raise InputError("options: a collection's map is estimated without a prior; leave prior out")
    for name, value in options.items():
        if isinstance(value, str) and not value.isprintable():
            raise InputError("options: texts must be printable")
        if name in _SIMULATED_ONLY or (name == "overflow" and value != "refuse"):
            raise InputError(
                f"options: {name} is for simulations; a collection asks every device that joined"
            )
        if name == "bandwidth_rule" and value != "public":
            raise InputError("options: bandwidth_rule must be public; any other reads raw locations")
    return dict(options)
