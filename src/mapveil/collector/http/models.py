"""The JSON of the API: what is accepted, strictly, and what is answered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_MOST_CELLS = 1 << 22
_YEAR_DAYS = 366

Name = Annotated[
    str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$")
]
Longitude = Annotated[float, Field(ge=-180, le=180)]
Latitude = Annotated[float, Field(ge=-90, le=90)]
Corner = Annotated[list[float], Field(min_length=2, max_length=3)]
Ring = Annotated[list[Corner], Field(min_length=5, max_length=5)]
Option = bool | int | float | Annotated[str, Field(max_length=200)] | None
Hexadecimal = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Role = Literal["viewer", "operator", "admin"]
State = Literal["draft", "open", "running", "finishing", "done", "aborted"]
Trust = Literal["distributed", "local", "projection"]


class _Asked(BaseModel):
    """A body that is accepted: nothing is converted, nothing unknown is passed over."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _Told(BaseModel):
    """A body that is answered."""


class ErrorDetail(_Told):
    """What was wrong."""

    code: str = Field(description="A word for programs", examples=["conflict"])
    message: str = Field(description="One line for people")
    accepted: str | None = Field(default=None, description="What would be accepted instead")


class ErrorBody(_Told):
    """The body of every refusal."""

    error: ErrorDetail


BoundsDegrees = Annotated[
    list[float], Field(min_length=4, max_length=4, description="West, south, east, north")
]


class PlacesRecord(_Asked):
    """A public list of sites: each device counts where the nearest one is."""

    kind: Literal["places"]
    lon: Annotated[list[Longitude], Field(min_length=2, max_length=_MOST_CELLS)]
    lat: Annotated[list[Latitude], Field(min_length=2, max_length=_MOST_CELLS)]
    names: Annotated[list[str], Field(max_length=_MOST_CELLS)] | None = None
    max_distance_m: Annotated[float, Field(gt=0)] | None = None


class BoxGeometry(_Asked):
    """A GeoJSON polygon of four sides along meridians and parallels."""

    type: Literal["Polygon"]
    coordinates: Annotated[list[Ring], Field(min_length=1, max_length=1)]


class BoxFeature(_Asked):
    """The same as a GeoJSON feature."""

    type: Literal["Feature"]
    geometry: BoxGeometry
    properties: dict[str, Any] | None = None


class CollectionDraft(_Asked):
    """What an operator asks for; what devices will be told is made from it, and fixed."""

    title: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")] = Field(
        description="For people: operators and the owners of phones read it"
    )
    trust: Trust = Field(description="Who is trusted with what: distributed, local or projection")
    method: Annotated[str, Field(max_length=60)] | None = Field(
        default=None, description="A method of that trust; the usual one by default"
    )
    epsilon: (
        Annotated[
            str, Field(max_length=61, pattern=r"^([0-9]{1,20}(\.[0-9]{1,30})?|[0-9]{1,30}/[0-9]{1,30})$")
        ]
        | Annotated[float, Field(gt=0, le=10_000)]
        | None
    ) = Field(
        default=None, description="What taking part may cost a device in all; exact as text, such as 1/3"
    )
    options: dict[Annotated[str, Field(max_length=60)], Option] | None = Field(
        default=None, description="The mechanism's other parameters"
    )
    region: BoundsDegrees | BoxGeometry | BoxFeature = Field(
        description="West, south, east and north in degrees, or the same box as GeoJSON"
    )
    tiling: (
        Annotated[str, Field(pattern=r"^(grid:[0-9]{1,5}x[0-9]{1,5}|quadtree:[0-9]{1,2}|tiles:[0-9]{1,2})$")]
        | PlacesRecord
    ) = Field(description="quadtree:8, grid:ROWSxCOLUMNS, tiles:15, or a public list of places")
    devices: Annotated[int, Field(ge=3, le=1 << 24)] = Field(
        description="Begin, or end, as soon as so many are there"
    )
    minimum: Annotated[int, Field(ge=3, le=1 << 24)] | None = Field(
        default=None, description="With fewer nothing is made; half of the devices by default"
    )
    active: bool | None = Field(
        default=None, description="Secure sums safe against a server that lies; true by default"
    )
    join_seconds: Annotated[int, Field(ge=1, le=90 * 24 * 3600)] | None = Field(
        default=None, description="How long devices may join, or report; 3600 by default"
    )
    phase_seconds: Annotated[int, Field(ge=1, le=24 * 3600)] | None = Field(
        default=None, description="How long a phase of a round waits for its devices; 60 by default"
    )


class Aborting(_Asked):
    """Why a collection is stopped; everybody may read it."""

    reason: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]


class ProgressRecord(_Told):
    """Where a collection stands."""

    state: State
    round: int | None
    phase: str | None
    open: bool
    closes_in_s: float | None
    wanted: int
    present: int


class RoundRecord(_Told):
    """One round of secure sums."""

    number: int
    purpose: str
    epsilon: str
    length: int
    bits: int
    asked: int
    included: int | None
    phase: str | None
    state: str


class CollectionRecord(_Told):
    """A collection."""

    id: Hexadecimal
    title: str
    state: State
    trust: Trust
    method: str
    epsilon: str | None
    options: dict[str, Any]
    tiling: str
    region: BoundsDegrees
    devices: int
    minimum: int
    active: bool
    join_seconds: int
    phase_seconds: int
    created_at: str
    opened_at: str | None
    ended_at: str | None
    reason: str | None
    terms: Digest
    members: int
    reports: int
    progress: ProgressRecord
    rounds: list[RoundRecord]
    spent: str = Field(description="Epsilon that each device was charged so far, exact")
    result: bool = Field(description="Whether there is a map")


class Charge(_Told):
    """What one round, or the reports of a collection, cost every device in it."""

    model_config = ConfigDict(extra="allow")

    collection: str
    number: int
    purpose: str
    epsilon: str
    devices: int
    at: str


class AuditLine(_Told):
    """One line of the audit log."""

    number: int
    at: str
    actor: str
    action: str
    collection: str | None
    detail: dict[str, Any]


class EnrolmentSpec(_Asked):
    """A token with which devices enrol."""

    name: Name
    uses: Annotated[int, Field(ge=1, le=1 << 24)] = 1
    days: Annotated[int, Field(ge=1, le=_YEAR_DAYS)] = 30


class EnrolmentRecord(_Told):
    """A token for enrolment, without the token."""

    id: int
    name: str
    uses_left: int
    created_by: int | None
    created_at: str
    expires_at: str
    revoked_at: str | None


class EnrolmentMade(EnrolmentRecord):
    """A new token for enrolment."""

    token: str = Field(description="Shown this once; only its SHA-256 is kept")


class OperatorSpec(_Asked):
    """An operator."""

    name: Name
    role: Role
    days: Annotated[int, Field(ge=1, le=_YEAR_DAYS)] = 30


class OperatorRecord(_Told):
    """An operator, without the token."""

    id: int
    name: str
    role: Role
    created_at: str
    expires_at: str
    revoked_at: str | None


class OperatorMade(OperatorRecord):
    """A new operator."""

    token: str = Field(description="Shown this once; only its SHA-256 is kept")


class DeviceCount(_Told):
    """How many devices are enrolled."""

    devices: int


class Enrolling(_Asked):
    """A new device: that it holds its key, and a token that lets it in."""

    token: Annotated[str, Field(pattern="^mve_[A-Za-z0-9_-]{43}$")]
    public_key: Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="Ed25519")]
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$", description="Of the enrolment statement")]


class DeviceNumber(_Told):
    """What the device signs its requests as."""

    device: int


class OpenCollection(_Told):
    """A collection that devices may take part in."""

    id: Hexadecimal
    trust: Trust
    title: str
    terms: Digest


class AssignmentRecord(_Told):
    """The shard of a device in a round, and its number within the shard."""

    shard: int
    client: int


class GuaranteeBody(_Told):
    """What was promised."""

    in_words: str
    guarantee: dict[str, Any]


class Health(_Told):
    """Whether the service works."""

    status: Literal["ok", "failing"]
    store: bool
    conductor: bool
