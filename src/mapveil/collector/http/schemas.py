"""The JSON of the API: what is accepted, strictly, and what is answered."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.rounds.progress import Progress
from mapveil.collector.rounds.region_record import BoundsDegrees
from mapveil.collector.rounds.specification import Trust
from mapveil.collector.rounds.validation import ONE_LINE, StrictModel, worded
from mapveil.collector.store.principals import Role
from mapveil.collector.store.watched_devices import BarredDevice, DeviceFault

_YEAR_DAYS = 366

Name = Annotated[
    str,
    Field(
        min_length=1,
        max_length=100,
        pattern=worded(
            r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
            "one line of printable text, not all of it spaces",
        ),
    ),
]
IDENTIFIER = worded("^[0-9a-f]{32}$", "32 hexadecimal digits, 0 to 9 and a to f")
DIGEST = worded("^[0-9a-f]{64}$", "64 hexadecimal digits, 0 to 9 and a to f")
_SIGNATURE = worded("^[0-9a-f]{128}$", "128 hexadecimal digits, 0 to 9 and a to f")
Hexadecimal = Annotated[str, Field(pattern=IDENTIFIER)]
Digest = Annotated[str, Field(pattern=DIGEST)]


class ErrorDetail(BaseModel):
    """The error."""

    code: str = Field(description="A word for programs", examples=["conflict"])
    message: str = Field(description="One line for people")
    expected: str | None = Field(default=None, description="An input that would be accepted")


class ErrorBody(BaseModel):
    """The body of every refusal."""

    error: ErrorDetail


class Aborting(StrictModel):
    """Why a collection is stopped; everybody may read it."""

    reason: Annotated[str, Field(min_length=1, max_length=500, pattern=ONE_LINE)]


class RoundRecord(BaseModel):
    """One round of secure sums."""

    number: int
    purpose: str
    epsilon: str
    length: int
    bits: int
    asked: int
    included: int | None
    shards: int
    left_out: int
    phase: str | None
    state: str


class AbortCharge(BaseModel):
    """The charge of an abort by an operator, in some phases."""

    phases: list[str]
    ledger: str
    device: str
    now: bool = Field(description="Whether the collection is in one of the phases")


class CollectionRecord(BaseModel):
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
    authority: str | None = Field(description="Enrolment authority that devices' policies must name")
    guarantee: dict[str, Any]
    join_seconds: int
    phase_seconds: int
    created_at: str
    opened_at: str | None
    ended_at: str | None
    reason: str | None
    terms: Digest
    members: int
    reports: int
    progress: Progress
    rounds: list[RoundRecord]
    spent: str = Field(description="Epsilon that each device was charged so far, exact")
    abort_charges: list[AbortCharge] = Field(description="Charges that stay if an operator aborts, by phase")
    result: bool = Field(description="Whether there is a map")


class ForecastBody(BaseModel):
    """The expected error and traffic of a collection; null where nothing is predicted."""

    error: float | None = Field(description="Of a cell, users, root mean square")
    mean: float | None = Field(description="Users per cell")
    finest_m: float | None = Field(description="Side of the finest useful cell, metres")
    bytes_up: int | None = Field(description="The most that one device sends")
    bytes_down: int | None = Field(description="The most that one device receives, without the terms")
    messages: int | None = Field(description="Reports, or rounds of secure sums, of one device")
    note: str = Field(description="Where the numbers come from, or why they are missing")
    refused: bool = Field(description="Whether such a collection cannot be created; the note says why")


class TrustModels(BaseModel):
    """Trust models of new collections."""

    trusts: list[Trust] = Field(description="Those that this service runs, the recommended one first")


class Charge(BaseModel):
    """Epsilon that one round, or the reports of a collection, charged every device in it."""

    collection: str
    title: str
    trust: Trust
    number: int
    purpose: str
    epsilon: str
    devices: int
    at: str


class EnrolmentSpec(StrictModel):
    """A token with which devices enrol."""

    name: Name
    uses: Annotated[int, Field(ge=1, le=1 << 24)] = 1
    days: Annotated[int, Field(ge=1, le=_YEAR_DAYS)] = 30


class OperatorSpec(StrictModel):
    """An operator."""

    name: Name
    role: Role
    days: Annotated[int, Field(ge=1, le=_YEAR_DAYS)] = 30


class NamedAuthority(BaseModel):
    """An enrolment authority: believe the one that your own policy names, not the one that a server does."""

    authority: str = Field(description="POPULATION:KEY")
    fingerprint: str = Field(description="For people to compare")


class Devices(BaseModel):
    """Enrolled devices."""

    devices: int = Field(description="Number of those that may take part")
    faults: list[DeviceFault] = Field(description="The newest that the audit log names, at most 100 lines")
    barred: list[BarredDevice] = Field(
        description="The newest that are revoked or in quarantine, at most 1000"
    )


class Enrolling(StrictModel):
    """A new device: that it holds its key, and a token that lets it in."""

    # Of any form: the accounts say which other kind of token it is.
    token: Annotated[str, Field(max_length=200, description="Enrolment token: mve_ and 43 characters")]
    public_key: Annotated[str, Field(pattern=DIGEST, description="Ed25519")]
    signature: Annotated[str, Field(pattern=_SIGNATURE, description="Of the enrolment statement")]
    simulated: bool = Field(
        default=False, description="One of a fleet: its maps say that they are simulations"
    )


class DeviceNumber(BaseModel):
    """Number with which the device signs its requests."""

    device: int


class GuaranteeBody(BaseModel):
    """The guarantee."""

    in_words: str
    guarantee: dict[str, Any]


class Health(BaseModel):
    """Whether the service works."""

    status: Literal["ok", "degraded", "failing"] = Field(
        description="degraded: this process does its part, and no other does that of the conductor or of a worker"
    )
    store: bool = Field(description="Whether the store can be read")
    conductor: bool | None = Field(
        description="false: this process is to conduct and does not, or no process of this store does. "
        "null: not known while the store cannot be read; always at an enrolment authority, which has no collections"
    )
    stuck: list[str] = Field(description="Loops of this process that come to no end")
    workers: bool | None = Field(
        description="false: work waits, and no process has any. null: not known while the store cannot be read"
    )


class OperatorAnswer(BaseModel):
    """One answer of an operator."""

    purpose: str
    epsilon: str = Field(description="Charged to every device in the sums, exact")
    sums: int = Field(description="Number of noisy sums")


class OperatorAccount(BaseModel):
    """One of two operators' own account of a collection; the other publishes its own."""

    collection: str
    terms: Digest
    operator: Literal["leader", "helper"]
    accepted: int = Field(description="Reports in the sums")
    refused: dict[str, int] = Field(description="Reports that are in no sum, by reason")
    answers: list[OperatorAnswer]
    epsilon: str = Field(description="Of all answers together")
