"""The runtime of a phone: a fitted privatizer from one small file, on NumPy and, for networks, onnxruntime.

Two kinds of file (:mod:`mapveil.obfuscation.export.phone_export` writes them): JSON of parameters for privatizers that
add noise, which run by the very code that fits them, and ONNX for those that learnt more than a few numbers.

Of JSON, the cost and the guarantee of a report are computed here from the parameters that run; a file that claims less
is refused. Of ONNX, the cost must cover the file's own guarantee, and no more is checked: the graph, the guarantee and
the cost are the word of whoever wrote the file. An account that also bounds the number of reports limits the loss.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.text_categories import OTHER, TextNumbers
from mapveil.obfuscation.export.privatizer_file import read_categories, read_date
from mapveil.obfuscation.privatizers.dense_network import network_normals
from mapveil.obfuscation.privatizers.normalisation import Normalisation, whole_runs
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer, check_date, find_privatizer
from mapveil.privacy.claim import Quantity
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray
from mapveil_client.epsilon import readable
from mapveil_client.errors import InputError, require
from mapveil_client.randomness.random import Randomness, uniform_below, uniforms
from mapveil_client.report_account import ReportAccount, ReportCost

PHONE_FORMAT: Final = "mapveil phone 3"
"""Format name in the record of both kinds of file."""

_ROUNDING: Final = Fraction(1, 1 << 40)  # far more than that of the sum of a worst case
_UNREADABLE: Final = (KeyError, TypeError, ValueError, ArithmeticError, AttributeError)

# One more entry of the model's metadata (field 14: key, field 1; value, field 2), so that it stays plain ONNX.
_SEAL: Final = b"\x72\x4a\x0a\x06sha256\x12\x40"


class SystemBits(Randomness):
    """The operating system's random bits, without a cipher in between: what a phone draws from."""

    def __init__(self) -> None:
        self.seeded = False

    def words(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[np.unsignedinteger]:
        """See :class:`mapveil.Randomness`."""
        kind = np.dtype(dtype)
        return np.frombuffer(os.urandom(count * kind.itemsize), kind)

    def child(self, label: str) -> Randomness:
        """See :class:`mapveil.Randomness`: the system's bits are independent as they are."""
        return self


class _Claims(NamedTuple):
    """The guarantee of one report, and its cost."""

    guarantee: Guarantee
    cost: ReportCost


class PhonePrivatizer:
    """A privatizer as a phone holds it. Made by :func:`read_phone_privatizer`.

    Attributes
    ----------
    names : tuple of str
        The features it privatizes, in order.
    sequence : int
        Rows of one user that are privatized together.
    guarantee : Guarantee
        The guarantee of one report: computed from the parameters of a JSON file, stated by an ONNX file.
    expires : date or None
        The last day (UTC) on which it privatizes.
    report_cost : ReportCost
        The cost of one report, which accounts add up; computed or stated likewise.
    fingerprint : str
        SHA-256 of the privatizer's own file, by which certificates name it.
    texts : mapping of str to mapping
        By the name of a column of text, the number of each text; any other text is -1.
    """

    def __init__(
        self, record: Mapping[str, Any], claims: _Claims, fitted: FittedPrivatizer | None, session: Any
    ) -> None:
        self.names = tuple(str(name) for name in record["features"])
        self.sequence = int(record["parameters"]["sequence"])
        self.guarantee, self.report_cost = claims
        self.expires = read_date(record["expires"])
        self.fingerprint = str(record["fingerprint"])
        self.texts: TextNumbers = {
            self.names[int(each["column"])]: {str(text): int(at) for text, at in each["texts"].items()}
            for each in record["categories"]
            if "texts" in each
        }
        self._inputs = [(str(each["input"]), int(each["width"])) for each in record.get("randomness", ())]
        self._fitted = fitted
        self._session = session

    def privatize(
        self,
        rows: FloatArray,
        *,
        rng: Randomness | None = None,
        account: ReportAccount | None = None,
        today: date | None = None,
    ) -> FloatArray:
        """Privatize one row, one run of ``sequence`` rows, or many; NaN in a whole run is its null code.

        Run by: the client.

        Parameters
        ----------
        rows : ndarray of float64, shape (features,) or (rows, features)
            In the features' own units.
        rng : Randomness, optional
            The source of bits, for tests; the operating system's where none is given.
        account : ReportAccount, optional
            The account of all of the device's reports, charged before one is drawn.
        today : date, optional
            The day (UTC); the clock's where none is given.

        Raises
        ------
        InputError
            Another number of features, an incomplete run, or a value that is not finite.
        PromiseError
            The privatizer has expired, or the account's total would be passed: nothing may be sent.
        """
        check_date(self.expires, datetime.now(UTC).date() if today is None else today)
        table = whole_runs(rows, self.sequence, self.names)
        runs = len(table) // self.sequence
        if not runs:
            return table.reshape(np.shape(rows)).copy()
        if account is not None:
            account.charge(self.report_cost, runs)
        stream = SystemBits() if rng is None else rng
        if self._fitted is not None:
            return self._fitted.privatize(rows, rng=stream)
        feeds: dict[str, npt.NDArray[Any]] = {"rows": table}
        for name, width in self._inputs:
            if name == "normals":
                feeds[name] = network_normals(runs, width, stream)
            elif name.startswith("category"):
                feeds[name] = uniform_below(len(table), width, stream)
            else:
                feeds[name] = uniforms(runs, stream)
        return np.asarray(self._session.run(None, feeds)[0], dtype=np.float64).reshape(np.shape(rows))

    def numbers(self, rows: Sequence[Sequence[float | str]]) -> FloatArray:
        """Rows of numbers and texts, shape (rows, features), as :meth:`privatize` takes them. Run by: the client."""
        known = [self.texts.get(name) for name in self.names]
        return np.array(
            [
                [
                    value if texts is None else texts.get(str(value), OTHER)
                    for value, texts in zip(row, known, strict=True)
                ]
                for row in rows
            ],
            dtype=np.float64,
        ).reshape(-1, len(self.names))

    def values(self, reports: FloatArray) -> list[list[float | str | None]]:
        """Reports with their texts, None where a value is empty. Run by: the client."""
        known = [{at: text for text, at in self.texts.get(name, {}).items()} for name in self.names]
        return [
            [
                None if np.isnan(value) else (texts[int(value)] if texts else float(value))
                for value, texts in zip(row, known, strict=True)
            ]
            for row in np.atleast_2d(reports)
        ]

    def __repr__(self) -> str:
        return f"PhonePrivatizer(features {', '.join(self.names)})"


def read_phone_privatizer(path: str | Path) -> PhonePrivatizer:
    """Read what :func:`mapveil.obfuscation.export.phone_export.export_privatizer` wrote. Run by: the client.

    Raises
    ------
    InputError
        No such file, another kind of file, another version, or a file that is truncated or changed.
    MissingExtra
        The file is a network and the extra ``phone`` is not installed.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); expected an exported privatizer"
        ) from error
    return (_of_json if data.lstrip()[:1] == b"{" else _of_onnx)(data, str(path))


def seal(model: bytes) -> bytes:
    """A model with its checksum as one more entry of its metadata. Run by: the curator of the pilot."""
    return model + _SEAL + hashlib.sha256(model).hexdigest().encode()


def _of_json(data: bytes, name: str) -> PhonePrivatizer:
    record = _record(data, name)
    try:
        learnt = {key: np.array(values, dtype=np.float64) for key, values in record["normalisation"].items()}
        names = tuple(str(one) for one in record["features"])
        state = {key: np.array(value, dtype=np.float64) for key, value in record["state"].items()}
        fitted = FittedPrivatizer(
            find_privatizer(record["method"]).make(record["parameters"]),
            Normalisation(names, **learnt),
            state,
            None,
            read_categories(record, {int(at): values for at, values in record["values"].items()}),
            read_date(record["expires"]),
        )
        if not all((np.isfinite(values) & (values > 0)).all() for values in state.values()):
            raise ValueError("a radius, deviation or scale that is not above 0")
        stated = _stated(record)
        true = _Claims(fitted.guarantee(), fitted.report_cost.checked())
        made = PhonePrivatizer(record, true, fitted, None)
    except _UNREADABLE as error:
        raise InputError(f"{name}: its record cannot be read ({type(error).__name__})") from error
    _check_covers(name, stated.cost, true.cost)
    _check_covers(name, _of_guarantee(stated.guarantee), _of_guarantee(true.guarantee))
    return made


def _of_onnx(data: bytes, name: str) -> PhonePrivatizer:
    body = data[: -len(_SEAL) - 64]
    if seal(body) != data:
        raise InputError(
            f"{name}: not an exported privatizer, or truncated or changed since it was written; "
            "expected a whole file that `export` wrote"
        )
    runtime = require("onnxruntime", "phone")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # a row is too little work for two
    options.log_severity_level = 3
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    found = session.get_modelmeta().custom_metadata_map.get("mapveil", "")
    record = _record(found.encode(), name)
    try:
        stated = _stated(record)
        made = PhonePrivatizer(record, stated, None, session)
    except _UNREADABLE as error:
        raise InputError(f"{name}: its record cannot be read ({type(error).__name__})") from error
    _check_covers(name, stated.cost, _least_cost(stated.guarantee))
    return made


def _stated(record: Mapping[str, Any]) -> _Claims:
    """The claims of a file."""
    return _Claims(Guarantee.from_dict(record["guarantee"]), ReportCost.from_list(record["report_cost"]))


def _of_guarantee(guarantee: Guarantee) -> ReportCost:
    return ReportCost(epsilon=guarantee.epsilon, delta=guarantee.delta)


def _least_cost(guarantee: Guarantee) -> ReportCost:
    """The least cost of a report that is not of Gaussian noise; of its worst case where no epsilon is promised."""
    if guarantee.epsilon is not None:
        return _of_guarantee(guarantee)
    worst = [each.value for each in guarantee.measured if each.quantity is Quantity.WORST_EPSILON]
    if not worst or not math.isfinite(max(worst)):
        return ReportCost(epsilon=None)
    return ReportCost(epsilon=Fraction(max(worst)) * (1 - _ROUNDING))


def _check_covers(name: str, stated: ReportCost, least: ReportCost) -> None:
    """Refuse a file that claims less of one report than holds."""
    if stated.covers(least):
        return
    epsilons = ["none" if each.epsilon is None else readable(each.epsilon) for each in (stated, least)]
    raise InputError(
        f"{name}: claims ratio {stated.ratio:.4g}, epsilon {epsilons[0]}, delta {float(stated.delta):.3g} of one "
        f"report; expected at least ratio {least.ratio:.4g}, epsilon {epsilons[1]}, delta {float(least.delta):.3g}: "
        "nothing is charged and nothing sent; fetch it again from whom you trust"
    )


def _record(data: bytes, name: str) -> dict[str, Any]:
    try:
        record = json.loads(data)
    except ValueError as error:
        raise InputError(
            f"{name}: truncated, or not an exported privatizer ({type(error).__name__})"
        ) from error
    found = record.get("format") if isinstance(record, dict) else None
    if found != PHONE_FORMAT:
        raise InputError(f"{name}: of format {found!r}; expected {PHONE_FORMAT!r}, so export it again")
    return dict(record)
