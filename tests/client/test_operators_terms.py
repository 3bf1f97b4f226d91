"""Terms of sums by two operators that three devices answer or refuse alike: Python's, the page's, a third party's."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from typing import Any

import pytest

import mapveil as mv
from mapveil_client.errors import MapveilError, ParameterError
from mapveil_client.policy import DevicePolicy
from mapveil_client.terms import CollectionTerms
from tests.node import run_in_node
from tests.two_operators.opened_reports import CONFIGS

from .live import BOX
from .test_third_party import operators_device

HELPER = CONFIGS[1].public_key.hex()
TERMS = CollectionTerms(
    identifier="5" * 32,
    title="Where people cross the \u00e9cluse",
    trust="operators",
    method="laplace",
    epsilon=Fraction(1),
    options={"scale": 1},
    tiling=mv.Quadtree(mv.Region.from_bbox(*BOX), depth=3).to_dict(),
    devices=24,
    minimum=20,
    active=False,
    operators=tuple(each.encode().hex() for each in CONFIGS),
)
SCRIPT = """
const { readTerms } = await load("terms");
const { planOf } = await load("policy");
const refused = [];
for (const text of given.texts) {
  try {
    await planOf(await readTerms(new TextEncoder().encode(text)), { answers: [], pin: null, helper: given.helper });
    refused.push(false);
  } catch (error) {
    if (error.name !== "Refusal" && error.constructor.name !== "Refusal") throw error;
    refused.push(true);
  }
}
console.log(JSON.stringify(refused));
"""


def refused_by(device: Any, texts: list[str]) -> dict[str, list[bool]]:
    """Whether each device refuses each of some terms, which are announced as they are."""

    def by_policy(text: str) -> bool:
        try:
            terms = CollectionTerms.decode(text.encode())
        except MapveilError:
            return True
        announced = hashlib.sha256(text.encode()).digest()  # whoever sends no exact encoding has another
        return terms.digest != announced or DevicePolicy(helper=HELPER).refusal(terms) is not None

    def by_third_party(text: str) -> bool:
        announced = {"id": TERMS.identifier, "terms": hashlib.sha256(text.encode()).hexdigest()}
        return bool(device.refused(text.encode(), announced, HELPER))

    return {
        "policy": [by_policy(each) for each in texts],
        "third party": [by_third_party(each) for each in texts],
        "page": run_in_node(SCRIPT, {"texts": texts, "helper": HELPER}),
    }


def written(**changes: Any) -> str:
    record = json.loads(TERMS.encode()) | changes
    kept = {name: value for name, value in record.items() if value is not ...}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def windows(**given: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("every", "start", "until", "zone", "by"))
    return empty | {"values": []} | given


CONFIG, OTHER = TERMS.operators
ALTERED: dict[str, str] = {
    "another version": written(version=2),
    "a version that is no number": written(version=True),
    "a minimum that is not whole": written(minimum=20.5),
    "an unknown key": written(colour="blue"),
    "a missing key": written(own_epsilon=...),
    "a space": written().replace(":", ": ", 1),
    "keys in another order": json.dumps(dict(reversed(json.loads(written()).items())), separators=(",", ":")),
    "an escaped character": written().replace("\u00e9", "\\u00e9"),
    "a key twice": written().replace('"version":1', '"version":1,"version":1'),
    "no JSON": written()[:-1],
    "two equal keys": written(operators=[CONFIG[:2] + OTHER[2:], OTHER]),
    "another helper": written(operators=[OTHER, CONFIG]),
    "one operator": written(operators=[OTHER]),
    "an unknown cipher": written(operators=[CONFIG[:10] + "0002" + CONFIG[14:], OTHER]),
    "active sums": written(active=True),
    "an identifier that is none": written(identifier="5" * 31),
    "a method of labels": written(method="proportions"),
    "too much epsilon": written(epsilon="5/2"),
    "no epsilon": written(epsilon=None),
    "an epsilon below 0": written(epsilon="-1"),
    "a minimum above the devices": written(minimum=25),
    "a small minimum": written(minimum=19),
    "a small minimum, a larger batch": written(minimum=19, options={"scale": 1, "minimum_batch": 18}),
    "windows of one": written(windows=windows(every="1d", start="2026-01-05", until="2026-01-06")),
    "windows with another value": written(windows=windows(by="hour", also="this")),
    "windows that lack a value": written(windows={"by": "hour"}),
    "windows that are null": written(windows=None),
    "a series with too many sites": written(
        windows=windows(by="hour-of-week"), tiling=TERMS.to_record()["tiling"] | {"depth": 7}
    ),
    "a batch above the devices": written(options={"scale": 1, "minimum_batch": 25}),
}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    return operators_device(monkeypatch)


def test_every_device_refuses_altered_terms(device: Any) -> None:
    assert written() == TERMS.encode().decode()
    expected = [False] + [True] * len(ALTERED)
    for name, found in refused_by(device, [written(), *ALTERED.values()]).items():
        wrong = [
            what
            for what, got, want in zip(["as made", *ALTERED], found, expected, strict=True)
            if got != want
        ]
        assert wrong == [], name


def test_terms_need_no_minimum_batch(device: Any) -> None:
    """Operators answer for no fewer reports than ``minimum``, whatever else the terms say."""
    options: list[dict[str, Any]] = [{}, {"minimum_batch": 1}, {"minimum_batch": 24}]
    texts = [written(options=each) for each in options]
    for name, found in refused_by(device, texts).items():
        assert found == [False] * len(texts), name


@pytest.mark.parametrize("scale", [1 << 16, 1 << 28])
def test_a_device_builds_no_report_of_gigabytes(scale: int) -> None:
    """The attack: terms whose one report would fill a phone's memory."""
    tiling = json.loads(TERMS.encode())["tiling"] | {"depth": 7}
    made = CollectionTerms.decode(written(tiling=tiling, options={"scale": scale}).encode())
    assert "bytes of a report" in str(DevicePolicy(helper=HELPER).refusal(made))


@pytest.mark.parametrize("helper", ["abc", "KEY", "5" * 63, "G" * 64, "5" * 64 + "\n"])
def test_a_helper_is_named_by_its_whole_key(helper: str) -> None:
    with pytest.raises(ParameterError, match="64 hexadecimal digits"):
        DevicePolicy(helper=helper)


def test_a_series_is_answered_by_whoever_divides_a_record_over_windows(device: Any) -> None:
    """The third party's device has one place and knows no windows: it refuses a key that it does not know."""
    given = windows(by="weekday", zone="Europe/Paris")
    found = refused_by(device, [written(windows=given), written(windows=given, options={"scale": 16})])
    assert found == {"policy": [False] * 2, "third party": [True] * 2, "page": [False] * 2}
