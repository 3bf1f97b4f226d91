"""Checks of a released file by a stranger: signature, text, parts of epsilon, and noise against its own redundancy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Final, Literal, NamedTuple

from mapveil.formats.compare_file import compare_columns
from mapveil.formats.content_hash import CONTENT_KEY, ChangedContent
from mapveil.formats.read_map import HoldsFlows, NotAMap, read_flows, read_map
from mapveil.inference.noise_residuals import LEAST_RESIDUALS, PairTest, noise_tests
from mapveil.maps.density_map import DensityMap
from mapveil.maps.flow_map import FlowMap
from mapveil.maps.measurement import EstimatedUsers, Measurement
from mapveil.maps.series_map import SeriesMap
from mapveil.pictures.release_sheet import ReleaseSheet, inspect
from mapveil.privacy.chain_head import ChainHead
from mapveil.privacy.claim import Assumes, Norm
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.signed_release import SIGNATURE_SUFFIX, SignedRelease
from mapveil_client import __version__
from mapveil_client.epsilon import plain
from mapveil_client.errors import InputError, MapveilError, MissingExtra
from mapveil_client.terms import is_hexadecimal

State = Literal["ok", "failed", "unknown"]
FALSE_ALARM: Final = 1e-3
"""Probability, about, that the test of the noise fails a map whose noise is as stated."""

_ROUNDED: Final = Fraction(1, 10**9)  # of an epsilon: more than the rounding of its parts in files


class Finding(NamedTuple):
    """One check: its subject, the outcome and the reason."""

    what: str
    state: State
    detail: str


@dataclass(frozen=True)
class Verification:
    """The findings about one file."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed and the signature is by a key that was given."""
        return not self.failed and any(each[:2] == ("signature", "ok") for each in self.findings)

    @property
    def failed(self) -> bool:
        """Whether a check failed."""
        return any(each.state == "failed" for each in self.findings)


def verify_release(
    path: str | PathLike[str],
    *,
    signature: str | PathLike[str] | None = None,
    key: str | None = None,
    ledger_head: str | PathLike[str] | None = None,
) -> Verification:
    """Check a released file against its signature, its own text and its redundancy. Run by: anybody.

    Checks prove arithmetic and noise, not that the data were true or that the file is the only release.

    Parameters
    ----------
    path : path-like
        A file of any format that Mapveil writes.
    signature : path-like, optional
        The file of the signature, by default the path with ``.sig`` at its end.
    key : str, optional
        The curator's public key, 64 hexadecimal digits. Without it, or a head that the curator published, a good
        signature is by an unknown key: anybody can make one.
    ledger_head : path-like, optional
        A head of the ledger that the curator published.

    Raises
    ------
    NotAMap
        The file is none that Mapveil wrote.
    InputError
        The file, the key or the head cannot be read.
    """
    if key is not None and not is_hexadecimal(key, 64):
        raise InputError(f"key must be 64 hexadecimal digits, got {key!r}")
    sheet = inspect(path)
    place = Path(f"{path}{SIGNATURE_SUFFIX}" if signature is None else signature)
    found = [Finding("record", "ok", f"{sheet.guarantee.promise.title}"), _text(sheet), _parts(sheet)]
    found += _signature(sheet, place, key, None if ledger_head is None else ChainHead.read(Path(ledger_head)))
    return Verification((*found, *_content(path, sheet)))


def _text(sheet: ReleaseSheet) -> Finding:
    if sheet.edited:
        return Finding("text", "failed", "the text of the promise does not follow from its fields")
    return Finding("text", "ok", "the text of the promise follows from its fields")


def _parts(sheet: ReleaseSheet) -> Finding:
    guarantee = sheet.guarantee
    if guarantee.epsilon is None:
        return Finding("epsilon", "unknown", "the file promises no epsilon")
    spent = sum((share.epsilon for share in guarantee.shares), Fraction(0))
    if spent > guarantee.epsilon:
        said = f"its parts add up to {plain(spent)}, more than the stated {plain(guarantee.epsilon)}"
        return Finding("epsilon", "failed", said)
    return Finding("epsilon", "ok", f"its parts add up to at most the stated {plain(guarantee.epsilon)}")


def _signature(
    sheet: ReleaseSheet, place: Path, key: str | None, later: ChainHead | None
) -> Iterator[Finding]:
    if not place.exists():
        yield Finding("signature", "unknown", f"{place.name} is not there: 'mapveil ledger sign' writes it")
        return
    try:
        signed = SignedRelease.read(place)
    except MapveilError as error:
        yield Finding("signature", "failed", str(error))
        return
    owner, account = signed.head.public_key.hex(), sheet.guarantee.account
    entries = () if account is None else account.entries
    faults = {
        "the file was changed after it was signed, or another was signed": signed.sha256.hex()
        != sheet.sha256,
        f"it was signed with another key ({owner[:16]}...)": key is not None and owner != key.lower(),
        "its ledger entries are not those of the file": set(signed.entries) != set(entries),
        "the epsilon that was charged is not the file's": not _charged_whole(signed.epsilon, sheet.guarantee),
    }
    wrong = [text for text, is_so in faults.items() if is_so]
    published = later is not None and later.public_key == signed.head.public_key
    if wrong:
        yield Finding("signature", "failed", "; ".join(wrong))
        return
    if key is None and not published:
        said = f"good, but SIGNED BY AN UNKNOWN KEY ({owner}), as anybody can; give the key that the curator published"
        yield Finding("signature", "unknown", said)
    else:
        yield Finding("signature", "ok", f"by the key {owner}{'' if key else ', that of the published head'}")
    charged = f"{plain(signed.epsilon)} charged as {', '.join(signed.entries)}"
    if later is None:
        yield Finding("ledger", "unknown", f"{charged}; give a published head to compare with")
    elif later.public_key != signed.head.public_key or later.chain != signed.head.chain:
        yield Finding("ledger", "failed", "the published head is of another ledger")
    elif later.count < signed.head.count:
        yield Finding(
            "ledger",
            "failed",
            f"the published head counts {later.count} lines, {signed.head.count} were signed",
        )
    elif later.count == signed.head.count and later.head != signed.head.head:
        yield Finding("ledger", "failed", "the ledger was rewritten: two heads of one number of lines differ")
    else:
        yield Finding("ledger", "ok", f"{charged}, by line {signed.head.count} of a ledger of {later.count}")


def _charged_whole(charged: Fraction, guarantee: Guarantee) -> bool:
    """Whether a charge is exactly that of a promise, for all units that a user has by it; one without a number."""
    units = (
        dict(each.parameters)["units"] for each in guarantee.assumptions if each.kind is Assumes.UNITS_OF_USER
    )
    return guarantee.epsilon is not None and charged == int(next(units, 1)) * guarantee.epsilon


def _content(path: str | PathLike[str], sheet: ReleaseSheet) -> Iterator[Finding]:
    """The content against its hash in the record, and the noise against its redundancy."""
    try:
        released = _read(path)
    except ChangedContent as error:
        yield Finding("content", "failed", str(error))
        return
    except (NotAMap, MissingExtra) as error:
        yield Finding("content", "unknown", f"not tested ({error})")
        return
    except InputError as error:
        # Maps of other kinds are not read back.
        state: State = "failed" if sheet.record.get("kind") in (None, "flows") else "unknown"
        yield Finding("content", state, str(error))
        return
    if released.guarantee != sheet.guarantee:
        yield Finding("content", "failed", "the map and its record state other promises")
        return
    if sheet.record.get(CONTENT_KEY) is None:
        yield Finding("content", "unknown", "its record has no hash of it: an earlier version wrote the file")
    else:
        yield _columns(released, Path(path))
    yield _measurements(released)
    if isinstance(released, DensityMap):
        yield _noise(released.measurements)
    else:
        yield Finding("noise", "unknown", "not tested: a test of flows is not known")


def _read(path: str | PathLike[str]) -> DensityMap | FlowMap:
    try:
        return read_map(path)
    except HoldsFlows:
        return read_flows(path)


def _measurements(released: DensityMap | FlowMap) -> Finding:
    """The epsilon that the measurements' noise gives the largest contribution, against the stated one."""
    guarantee = released.guarantee
    if isinstance(released, FlowMap):
        sums: Sequence[Measurement] = (
            () if released.sums is None else released.sums.blocks + released.sums.margins
        )
    else:
        sums = released.measurements + (released.measured if isinstance(released, SeriesMap) else ())
    bound = guarantee.bound
    of_reports = any(isinstance(each, EstimatedUsers) for each in sums)
    if bound is None or bound.norm is not Norm.L1 or guarantee.epsilon is None or not sums or of_reports:
        said = "not compared with the promise: it holds no noisy sums of bounded contributions"
        return Finding("measurements", "unknown", said)
    of_one_user = (each.epsilon * Fraction(each.unit, each.sensitivity or each.unit) for each in sums)
    spent = bound.value * sum(of_one_user, Fraction(0))
    if spent > guarantee.epsilon * (1 + _ROUNDED):
        said = f"their noise is that of epsilon {float(spent):g}, more than the stated {plain(guarantee.epsilon)}"
        return Finding("measurements", "failed", said)
    return Finding(
        "measurements", "ok", f"their noise is that of at most the stated {plain(guarantee.epsilon)}"
    )


def _columns(released: DensityMap | FlowMap, file: Path) -> Finding:
    """The columns that a map is not read from, against those that follow from what it is read from."""
    said = "users, measurements and record are those of its hash"
    try:
        changed, unknown = compare_columns(released, file)
    except MissingExtra as error:
        return Finding("content", "unknown", f"{said}; its other columns are not checked ({error})")
    except InputError as error:
        return Finding("content", "failed", str(error))
    if changed and released.version != __version__:
        said += f"; {', '.join(changed)} not checked: Mapveil {released.version} wrote them, this is {__version__}"
        return Finding("content", "unknown", said)
    if changed:
        thing, verb = ("column", "is") if len(changed) == 1 else ("columns", "are")
        what = f"its {thing} {', '.join(changed)} {verb} not what follows from its measurements"
        return Finding("content", "failed", what)
    more = f"; not checked: {', '.join(unknown)}" if unknown else ""
    return Finding("content", "ok", f"{said}, and its other columns follow from them{more}")


def _noise(measurements: Sequence[Measurement]) -> Finding:
    found = noise_tests(measurements, FALSE_ALARM)
    if not found.pairs:
        said = f"not tested: no {LEAST_RESIDUALS} of its sums were measured twice"
        return Finding("noise", "unknown", said)
    wrong = [each for each in found.pairs if each.failed]
    said = "; ".join(_pair_words(each, measurements) for each in wrong or found.pairs[:1])
    if not wrong and len(found.pairs) > 1:
        said += f", and as stated in {len(found.pairs) - 1} other pairs of measurements"
    if found.untested:
        names = ", ".join(_sums_of(place, measurements) for place in found.untested)
        said += f"; not tested: {names}"
    return Finding("noise", "failed" if wrong else "ok", said)


def _pair_words(test: PairTest, measurements: Sequence[Measurement]) -> str:
    one, other = (_sums_of(place, measurements) for place in test.pair)
    return f"{test.ratio:.3f} times the stated variance over {test.residuals} sums measured twice ({one}; {other})"


def _sums_of(place: int, measurements: Sequence[Measurement]) -> str:
    """A measurement by its number of sums and its place in the file, from 1."""
    count = measurements[place].noisy.size
    return f"{count} {'sum' if count == 1 else 'sums'} of measurement {place + 1}"
