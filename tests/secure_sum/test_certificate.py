"""Certificates: one encoding, valid for one key of one population by one authority, and for a time."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil_client.canonical_cbor import encode
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.secure_sum.certificate import CLOCKS_S, Authority, Certificate
from mapveil_client.secure_sum.keys import Identity, signed_by, small_order
from mapveil_client.secure_sum.messages import CERTIFICATE_BYTES
from tests.authority import AUTHORITY, NAMED, certificate_of

OWN, NOW = Identity(bytes([5] * 32)), 1_790_000_000
POPULATIONS = st.from_regex(r"\A[a-z0-9][a-z0-9._-]{0,62}\Z")
NUMBERS = st.integers(0, (1 << 63) - 1)
PRIME = (1 << 255) - 19
D = -121665 * pow(121666, -1, PRIME) % PRIME


@given(
    POPULATIONS,
    st.binary(min_size=32, max_size=32),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.binary(min_size=64, max_size=64),
)
def test_every_certificate_comes_back_from_its_one_encoding(
    population, key, serial, start, end, signature
) -> None:
    made = Certificate(population, key, serial, start, end, signature)
    assert Certificate.decode(made.encode()) == made
    assert Certificate.decode(made.encode()).encode() == made.encode()
    assert len(made.entry) == CERTIFICATE_BYTES


@given(st.binary(max_size=300))
def test_other_bytes_are_no_certificate(data: bytes) -> None:
    with pytest.raises(InputError):
        Certificate.decode(data)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_an_altered_certificate_does_not_vouch(at: int, flip: int) -> None:
    data = bytearray(certificate_of(OWN).encode())
    data[at % len(data)] ^= flip
    try:
        altered = Certificate.decode(bytes(data))
    except InputError:
        return
    assert altered.fault(NAMED, OWN.public, NOW) is not None


def test_a_certificate_vouches_for_its_key_its_population_and_its_time() -> None:
    made = AUTHORITY.certify(OWN.public, NOW, days=7, serial=3)
    assert made.fault(NAMED, OWN.public, NOW) is None
    assert NAMED.fault(OWN.public, made.entry, NOW) is None
    assert made == AUTHORITY.certify(OWN.public, NOW, days=7, serial=3)
    other = Identity(bytes([6] * 32))
    assert "another key" in str(made.fault(NAMED, other.public, NOW))
    assert "population others" in str(made.fault(Authority("others", NAMED.key), OWN.public, NOW))
    assert "not by the enrolment" in str(made.fault(Authority("tests", other.public), OWN.public, NOW))
    last = NOW + 7 * 86_400 - 1
    for now in (NOW - CLOCKS_S, last):
        assert made.fault(NAMED, OWN.public, now) is None
    for now in (NOW - CLOCKS_S - 1, last + 1):
        assert "must be valid at" in str(made.fault(NAMED, OWN.public, now))
    for now in (last + 1, last + CLOCKS_S):  # of another device
        assert NAMED.fault(OWN.public, made.entry, now, after=CLOCKS_S) is None
    assert "must be valid at" in str(made.fault(NAMED, OWN.public, last + 1 + CLOCKS_S, after=CLOCKS_S))
    assert len({AUTHORITY.certify(OWN.public, NOW).serial for _ in range(20)}) == 20


def test_a_certificate_signs_nothing_else() -> None:
    """The statement has a prefix of its own: no request, enrolment or key signature is one."""
    made = certificate_of(OWN)
    assert made.statement.startswith(b"mapveil certificate 1\0")
    bare = made.statement.removeprefix(b"mapveil certificate 1\0")
    assert not signed_by(NAMED.key, made.signature, bare)
    unprefixed = dataclasses.replace(made, signature=Identity(bytes(range(32))).sign(bare))
    assert unprefixed.fault(NAMED, OWN.public, NOW) is not None


def add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    (x, y), (u, v) = one, other
    k = D * x * u * y * v % PRIME
    return (
        (x * v + u * y) * pow(1 + k, -1, PRIME) % PRIME,
        (y * v + x * u) * pow(1 - k, -1, PRIME) % PRIME,
    )


def points(y: int) -> list[tuple[int, int]]:
    """The points of the curve with this y."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME
    root = pow(square, (PRIME + 3) // 8, PRIME)
    if root * root % PRIME != square:
        root = root * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    return [(root, y), (-root % PRIME, y)] if root * root % PRIME == square else []


def test_the_keys_of_small_order_are_those_of_the_curve() -> None:
    """In every encoding; and nobody's signature counts under one."""
    order = (1 << 252) + 27742317777372353535851937790883648493
    reached = (multiple(order, point) for y in range(2, 100) for point in points(y))
    eighth = next(point for point in reached if point[1] not in (0, 1, PRIME - 1))
    torsion = [multiple(number, eighth) for number in range(8)]
    assert len(set(torsion)) == 8
    encodings = {
        ((y + more) | sign << 255).to_bytes(32, "little")
        for _, y in torsion
        for more in (0, PRIME)
        if y + more < 1 << 255
        for sign in (0, 1)
    }
    assert len(encodings) == 14
    assert all(small_order(each) for each in encodings)
    assert not any(small_order(Identity(bytes([n] * 32)).public) for n in range(50))
    forged = bytes([1, *bytes(63)])
    assert not signed_by(bytes([1, *bytes(31)]), forged, b"whatever")
    for key in encodings:
        with pytest.raises(ParameterError, match="device's key"):
            AUTHORITY.certify(key, NOW)
        with pytest.raises(ParameterError, match=f"authority's key must be an Ed25519 key, got {key.hex()}$"):
            Authority("tests", key)


def multiple(number: int, point: tuple[int, int]) -> tuple[int, int]:
    made = (0, 1)
    while number:
        if number & 1:
            made = add(made, point)
        point, number = add(point, point), number >> 1
    return made


def test_an_authority_is_named_by_one_text() -> None:
    assert Authority.parse(str(NAMED)) == NAMED
    assert len(NAMED.fingerprint.split()) == 8
    for text in (
        "",
        "tests",
        f"Tests:{NAMED.key.hex()}",
        f"tests:{NAMED.key.hex()[:-1]}",
        f"tests:{'F' * 64}",
        None,
    ):
        with pytest.raises(InputError):
            Authority.parse(text)
    for values in ([2], [1, b"t", OWN.public, 1, 2, 3], [1, b"t", OWN.public, 1, 2, 3, bytes(63)]):
        with pytest.raises(InputError):
            Certificate.decode(encode(values))


def test_the_key_of_an_authority_stays_in_its_file(tmp_path) -> None:
    path = tmp_path / "key"
    with pytest.raises(InputError, match="create one with make=True"):
        EnrolmentAuthority.open(path, "tests")
    made = EnrolmentAuthority.open(path, "tests", make=True)
    assert EnrolmentAuthority.open(path, "tests").named == made.named
    assert path.read_text().strip() not in repr(made)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(InputError, match="owner only"):
        EnrolmentAuthority.open(path, "tests")
