"""Write the test vectors of the secure sum's messages: python -m tests.secure_sum.make_vectors.

A vector file is a whole round, byte for byte, for another implementation to follow; the negative
file lists messages that must be refused, each at one point of such a round.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from mapveil.secure_sum.enrolment_authority import DAYS, EnrolmentAuthority
from mapveil_client.canonical_cbor import decode, encode
from mapveil_client.secure_sum.certificate import CLOCKS_S
from mapveil_client.secure_sum.keys import Identity, key_statement
from mapveil_client.secure_sum.masks import PROTOCOL, VERSION
from mapveil_client.secure_sum.messages import (
    BOX_BYTES,
    CERTIFICATE,
    CERTIFICATE_BYTES,
    COMPLAINT_BYTES,
    DELIVERED_BYTES,
    IDENTITY,
    MASK_KEY,
    SEAL_KEY,
    SHARE_BYTES,
    SIGNATURE,
    largest,
)
from mapveil_client.secure_sum.states import Message
from tests.secure_sum.altered_messages import Change, claim, complains, flip, keep, put, turn
from tests.secure_sum.vector_rounds import AUTHORITY, NOW, ROUNDS, make_round, parameters_of

FOLDER = Path(__file__).resolve().parents[1] / "vectors" / "secure_sum"

SMALL_ORDERS = [  # 0, 1, -1 and points of order 8
    *(number.to_bytes(32, "little") for number in (0, 1, 2**255 - 20)),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


def complaints(vector: dict) -> Iterator[tuple[str, bytes, str]]:
    """False complaints of the first client about the box in its first slot, which is right."""
    pair = {
        name: bytes.fromhex(text) for name, text in vector["derived"]["pairs"][0].items() if name != "other"
    }
    back = hashlib.sha256(pair["tag_key_out"]).digest()
    yield "a complaint with the tag's key", pair["tag_key_in"] + back, "which is right"
    yield "a complaint with the sealing key", pair["sealing_key_in"] + back, "which is right"
    yield "a complaint with the other key", pair["tag_key_out"] + back, "not their pair's"
    yield "a complaint with another key", bytes(COMPLAINT_BYTES), "not their pair's"


def refused(vectors: dict[str, dict]) -> list[dict]:
    """Messages to refuse, each instead of the one at its point of a round."""

    def where(base: str, key: str, client: int, message: Message) -> int:
        for number, event in enumerate(vectors[base]["events"]):
            if event.get(key) == client and decode(bytes.fromhex(event["message"]))[1] == message:
                return number
        raise LookupError(f"no {message.name} {key} client {client}")

    def sent(base: str, key: str, client: int, message: Message) -> bytes:
        return bytes.fromhex(vectors[base]["events"][where(base, key, client, message)]["message"])

    def case(
        name: str,
        base: str,
        key: str,
        client: int,
        message: Message,
        change: Change | bytes,
        says: str,
        **more: str,
    ) -> dict:
        right = sent(base, key, client, message)
        wrong = change if isinstance(change, bytes) else encode(change(decode(right)))
        point = {"name": name, "round": base, "after": where(base, key, client, message), key: client}
        return {**point, "message": wrong.hex(), "fault": "PeerFault", "says": says, **more}

    def any_message(key: str, message: Message) -> list[dict]:
        right, at = sent("semi_honest", key, 1, message), ("semi_honest", key, 1, message)
        most = largest(parameters_of(vectors["semi_honest"]), message)
        return [
            case("cut short", *at, right[:-1], "ends early"),
            case("a byte more", *at, right + b"\x00", "after its end|at most"),
            case("empty", *at, b"", "ends early"),
            case("a longer head", *at, b"\x98" + bytes([right[0] & 31]) + right[1:], "canonical|at most"),
            case("no definite length", *at, b"\x9f" + right[1:-1] + b"\xff", "canonical"),
            case("a tag around it", *at, b"\xc1" + right[:-1], "canonical"),
            case("too large", *at, bytes(most + 1), "at most"),
            case("another version", *at, put(0, VERSION + 1), "another version"),
            case("an unknown kind", *at, put(1, 10), "kind unknown"),
            case("another kind", *at, put(1, 9), "kind ANSWER"),
            case("another round", *at, put(2, bytes(32)), "another round"),
            case("another client", *at, put(3, 2), "another client"),
            case("a field missing", *at, lambda values: values[:-1], "fields"),
            case("a field too many", *at, lambda values: [*values, b""], "fields|at most"),
            case("a number for a string", *at, put(4, 0), "is a number"),
        ]

    M, plain, lost, active = Message, "semi_honest", "dropouts", "active"
    first = sent(plain, "from", 1, M.ADVERTISE)
    foreign_receipt = decode(sent(active, "from", 1, M.MASKED_INPUT))[7]
    foreign_keys, foreign_consent = (decode(sent(active, "from", 1, m))[4] for m in (M.ADVERTISE, M.CONSENT))
    near_3 = next(i for i in vectors[lost]["included"] if 3 in vectors[lost]["neighbours"][i])
    share, abort = SHARE_BYTES, {"fault": "Abort"}
    # fmt: off
    return [
        *any_message("from", M.SHARES),
        *any_message("to", M.INBOX),
        case("the phase before", plain, "from", 1, M.SHARES, first, "kind ADVERTISE"),
        case("the same again", plain, "from", 2, M.ADVERTISE, first, "once more", **{"as": 1}),
        case("a replay for another", plain, "from", 2, M.ADVERTISE, first, "another client"),
        *(case(f"a {name} of small order", plain, "from", 0, M.ADVERTISE, turn(4, lambda x, at=at, low=low:
               x[:at] + low + x[at + 32 :]), "no shared secret")
          for name, at in (("mask key", 0), ("seal key", 32)) for low in SMALL_ORDERS),
        *(case(f"a neighbour's {name} of small order", plain, "to", 0, M.ROSTER, turn(6, lambda x, at=at, low=low:
               x[:at] + low + x[at + 32 :]), "that is no key")
          for name, at in (("mask key", 0), ("seal key", 32)) for low in SMALL_ORDERS),
        case("another's keys", active, "from", 0, M.ADVERTISE, put(4, foreign_keys), "not signed"),
        case("a wrong key signature", active, "from", 0, M.ADVERTISE, turn(4, lambda x: flip(x, 159)), "not signed"),
        case("a wrong certificate", active, "from", 0, M.ADVERTISE, turn(4, lambda x: flip(x, -1)), "not by the enrol"),
        case("a box missing", plain, "from", 0, M.SHARES, turn(5, lambda x: x[BOX_BYTES:]), "boxes of"),
        case("half a box", plain, "from", 0, M.SHARES, turn(5, lambda x: x[1:]), "a multiple of 148"),
        case("bits past the end", plain, "from", 0, M.MASKED_INPUT, turn(4, lambda x: x[:-1] + b"\xff"), "not zero"),
        case("a short vector", plain, "from", 0, M.MASKED_INPUT, turn(4, lambda x: x[:-1]), "exactly 4"),
        case("a set with padding", plain, "from", 0, M.ANSWER, turn(4, lambda x: bytes([x[0] | 128])), "members past"),
        case("a share missing", plain, "from", 0, M.ANSWER, turn(5, lambda x: x[share:]), "shares of"),
        case("no digit", plain, "from", 0, M.ANSWER, turn(5, lambda x: b"\xf1\xff" + x[2:]), "65521 or above"),
        case("a share of nobody", lost, "from", near_3, M.ANSWER, claim(4, b"\x0f", share), "sent none"),
        case("another's consent", active, "from", 0, M.CONSENT, put(4, foreign_consent), "does not sign"),
        case("a wrong share", plain, "from", 0, M.ANSWER, turn(5, lambda x: flip(x, -share)), "another share of"),
        case("a share kept back", plain, "from", 0, M.ANSWER, keep(4, 3, share), "without a share that this"),
        *(case(name, plain, "from", 0, M.MASKED_INPUT, complains(1, shown), says)
          for name, shown, says in complaints(vectors[plain])),
        case("a complaint about nobody", lost, "from", near_3, M.MASKED_INPUT, complains(15, bytes(64)), "not deliv"),
        case("a complaint missing", plain, "from", 0, M.MASKED_INPUT, complains(1, b""), "complaints of 0 bytes"),
        case("a receipt for a box unopened", active, "to", 0, M.SURVIVORS, turn(5, lambda x: flip(x, 0)), "did not"),
        case("a key missing", plain, "to", 0, M.ROSTER, turn(6, lambda x: x[64:]), "keys of 192 bytes"),
        case("a roster with padding", plain, "to", 0, M.ROSTER, turn(5, lambda x: bytes([x[0] | 16])), "members past"),
        case("too few keys", plain, "to", 0, M.ROSTER, keep(5, 2, 64), "advertised keys; 3 are", **abort),
        case("a forged key", lost, "to", 0, M.ROSTER, turn(6, lambda x: flip(x, 63)), "not signed by its identity"),
        case("another seed", active, "to", 0, M.ROSTER, turn(4, lambda x: flip(x, 0)), "other keys of client"),
        case("another key listed", active, "to", 0, M.ROSTER, turn(4, lambda x: flip(x, -1)), "other keys of client"),
        case("one listed twice", active, "to", 0, M.ROSTER, turn(4, lambda x: x[:-24] + x[-48:-40] + x[-16:]), "twice"),
        case("a list cut short", active, "to", 0, M.ROSTER, turn(4, lambda x: x[:-24]), "graph of 128 bytes"),
        *(case(name, lost, "to", 0, M.ROSTER, turn(6, made), says) for name, made, says in uncertified(vectors[lost])),
        case("another key of the committee", active, "to", 0, M.ROSTER, turn(8, lambda x: flip(x, -1)), "other keys"),
        case("a committee key missing", active, "to", 0, M.ROSTER, turn(8, lambda x: x[248:]), "committee keys of"),
        case("a committee of nobody", active, "to", 0, M.ROSTER, claim(7, b"\0", 0), "committee keys of"),
        case("a committee with padding", active, "to", 0, M.ROSTER, turn(7, lambda x: bytes([x[0] | 16])), "past 3"),
        case("a committee unasked", plain, "to", 0, M.ROSTER, put(7, b"\x01"), "at most"),
        case("too few boxes", plain, "to", 0, M.INBOX, keep(4, 2, DELIVERED_BYTES), "sent shares; 3 are", **abort),
        case("a box of nobody", lost, "to", near_3, M.INBOX, claim(4, b"\x0f", DELIVERED_BYTES), "advertised no keys"),
        case("without this one", plain, "to", 0, M.SURVIVORS, put(4, b"\x1e"), "not in"),
        case("below the minimum", plain, "to", 0, M.SURVIVORS, put(4, b"\x03"), "3 are promised", **abort),
        case("another's receipt", active, "from", 0, M.MASKED_INPUT, put(7, foreign_receipt), "does not sign the"),
        case("a forged receipt", active, "to", 0, M.SURVIVORS, turn(5, lambda x: flip(x, 64)), "did not sign"),
        case("a silent survivor", lost, "to", near_3, M.SURVIVORS, put(4, b"\x7f"), "sent no shares"),
        case("too few consents", active, "to", 0, M.CONFIRMATIONS, keep(4, 1, 64), "not in the sum|agreed", **abort),
        case("others' signatures", active, "to", 0, M.CONFIRMATIONS,
             turn(5, lambda x: x[64:128] + x[:64] + x[128:]), "has not signed"),
    ]
    # fmt: on


def uncertified(vector: dict) -> Iterator[tuple[str, Callable[[bytes], bytes], str]]:
    """Rosters whose first device the authority of the policy has not certified, or that stands in it twice."""
    parameters, key = parameters_of(vector), Identity(bytes([7] * 32))
    sent = {event["from"] for event in vector["events"] if "from" in event}
    peer = next(each for each in vector["neighbours"][0] if each in sent)
    size = CERTIFICATE.stop
    stranger = EnrolmentAuthority("vectors", Identity(bytes([8] * 32)))
    elsewhere = EnrolmentAuthority("elsewhere", Identity(bytes(range(32))))

    def first(identity: bytes, signature: bytes, certificate: bytes) -> Callable[[bytes], bytes]:
        return lambda keys: keys[: SEAL_KEY.stop] + identity + signature + certificate + keys[size:]

    def signed(
        authority: EnrolmentAuthority, now: float = NOW, of: Identity = key
    ) -> Callable[[bytes], bytes]:
        entry = authority.certify(of.public, now, serial=1).entry

        def change(keys: bytes) -> bytes:
            signature = key.sign(key_statement(parameters, peer, keys[: SEAL_KEY.stop]))
            return first(key.public, signature, entry)(keys)

        return change

    month = DAYS * 86_400
    yield "another authority", signed(stranger), "not by the enrolment authority"
    yield "another population", signed(elsewhere), "not by the enrolment authority"
    yield (
        "another device's certificate",
        signed(AUTHORITY, of=Identity(bytes([9] * 32))),
        "not by the enrolment",
    )
    yield "an expired certificate", signed(AUTHORITY, NOW - month - CLOCKS_S), "must be valid at"
    yield "a certificate of the future", signed(AUTHORITY, NOW + CLOCKS_S + 1), "must be valid at"
    # Of the point of order 1, R = S B with S = 0 is a signature of whatever is signed.
    small, forged = bytes([1, *bytes(31)]), bytes([1, *bytes(63)])
    yield (
        "an identity of small order",
        first(small, forged, bytes(CERTIFICATE_BYTES)),
        "not signed by its identity",
    )

    def twice(keys: bytes) -> bytes:
        other = keys[size : 2 * size]
        return keys[: SEAL_KEY.stop] + other[IDENTITY] + other[SIGNATURE] + other[CERTIFICATE] + keys[size:]

    def same_keys(keys: bytes) -> bytes:
        return keys[size : size + MASK_KEY.stop] + keys[MASK_KEY.stop :]

    yield "a certificate twice", twice, "two clients one identity"
    yield "a mask key twice", same_keys, "two clients one mask key"


def files() -> dict[str, str]:
    """Every file's name and text."""
    vectors = {name: make_round(name) for name in ROUNDS}
    made = {f"{name}.json": vector for name, vector in vectors.items()}
    made["refused.json"] = {"protocol": PROTOCOL.decode(), "version": VERSION, "cases": refused(vectors)}
    return {name: json.dumps(content, indent=1) + "\n" for name, content in made.items()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stderr.write(f"wrote {FOLDER / name}\n")
