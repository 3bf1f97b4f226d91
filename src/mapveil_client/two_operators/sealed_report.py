r"""Reports to two operators as they travel: public metadata, a public share, and an input share sealed for each.

.. math:: \text{report} = (r,\; t,\; s,\; \mathrm{Seal}(pk_0, x_0),\; \mathrm{Seal}(pk_1, x_1))

where: r is the report's random id and the nonce of its shares, t the time in whole hours, s the public share,
:math:`x_j` operator j's input share and :math:`pk_j` the key of its :class:`HpkeConfig`. Seals are bound to the task,
r, t and s. The task's id is the digest of the collection's terms.

A message is bytes of draft-ietf-ppm-dap, version 16: ``Report``, ``HpkeConfig``, ``InputShareAad``,
``PlaintextInputShare``; numbers are big-endian. Extensions are refused: none is defined for these collections.

Source: draft-ietf-ppm-dap-16, sections 4.1, 4.5 and 4.4.2.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from mapveil_client.errors import InputError
from mapveil_client.two_operators.hpke import KDF, KEM, KEY_BYTES, Cipher, Sealed, open_sealed, seal

TIME_PRECISION_S: Final = 3600
"""Unit of a report's time, seconds: the hour is all that an operator learns of it from the report."""

ID_BYTES: Final = 16
"""Size of a report's id."""

TASK_BYTES: Final = 32
"""Size of a task's id."""

SEAL_BYTES: Final = 2 + 4 + 16
"""Bytes that a sealed input share has more than the share: its heads, and the cipher's tag."""

VERSION: Final = b"dap-16"
"""Version of the draft: begins the context of the shares, and the purpose of the seals."""

_CLIENT: Final = b"\x01"
_ROLES: Final = (b"\x02", b"\x03")  # of the leader and of the helper
_NO_EXTENSIONS: Final = bytes(2)


def context_of(task: bytes) -> bytes:
    """The application context of the shares of a task's reports."""
    return VERSION + task


class HpkeConfig(NamedTuple):
    """An operator's public key, and the cipher for its seals."""

    number: int  # 0 to 255, the operator's own choice
    cipher: Cipher
    public_key: bytes  # X25519, 32 bytes

    def encode(self) -> bytes:
        """``HpkeConfig`` of the draft."""
        suite = b"".join(each.to_bytes(2, "big") for each in (KEM, KDF, self.cipher))
        return bytes([self.number]) + suite + _opaque(self.public_key, 2)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote.

        Raises
        ------
        InputError
            It is none, or of algorithms that are not implemented.
        """
        reader = _Reader(data, "an operator's HPKE configuration")
        number = reader.number(1)
        suite = reader.number(2), reader.number(2)
        cipher, public = reader.number(2), reader.opaque(2)
        reader.end()
        if suite != (KEM, KDF) or cipher not in (*Cipher,) or len(public) != KEY_BYTES:
            raise InputError(
                "an operator's HPKE configuration must be of X25519 (32), HKDF-SHA256 (1), and AES-128-GCM (1) or "
                "ChaCha20-Poly1305 (3)"
            )
        return cls(number, Cipher(cipher), public)


class Metadata(NamedTuple):
    """The public part of a report."""

    report_id: bytes  # 16 random bytes
    time: int  # hours since 1970

    def encode(self) -> bytes:
        """``ReportMetadata`` of the draft, without extensions."""
        return self.report_id + self.time.to_bytes(8, "big") + _NO_EXTENSIONS


class SealedShare(NamedTuple):
    """An input share sealed for one operator: ``HpkeCiphertext`` of the draft."""

    config: int  # number of the operator's configuration
    sealed: Sealed

    def encode(self) -> bytes:
        """Its bytes."""
        return bytes([self.config]) + _opaque(self.sealed.enc, 2) + _opaque(self.sealed.payload, 4)


class Report(NamedTuple):
    """A report, as a client uploads it."""

    metadata: Metadata
    public: bytes  # the public share
    shares: tuple[SealedShare, SealedShare]  # for the leader, for the helper

    def encode(self) -> bytes:
        """``Report`` of the draft."""
        return b"".join(
            [self.metadata.encode(), _opaque(self.public, 4), *(each.encode() for each in self.shares)]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote. Run by: the leader, that trusts nothing in it.

        Raises
        ------
        InputError
            It is no report, bears an extension, or has something after its end.
        """
        reader = _Reader(data, "the report")
        metadata = reader.metadata()
        public = reader.opaque(4)
        shares = reader.share(), reader.share()
        reader.end()
        return cls(metadata, public, shares)


class HelperShare(NamedTuple):
    """The helper's part of a report, as the leader forwards it: ``ReportShare`` of the draft."""

    metadata: Metadata
    public: bytes
    share: SealedShare

    @classmethod
    def of(cls, report: Report) -> Self:
        """The part of a report that is for the helper."""
        return cls(report.metadata, report.public, report.shares[1])

    def encode(self) -> bytes:
        """Its bytes."""
        return self.metadata.encode() + _opaque(self.public, 4) + self.share.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote; raises InputError where it is none."""
        reader = _Reader(data, "a report's share")
        made = cls(reader.metadata(), reader.opaque(4), reader.share())
        reader.end()
        return made


def seal_report(
    task: bytes,
    configs: tuple[HpkeConfig, HpkeConfig],
    metadata: Metadata,
    public: bytes,
    inputs: tuple[bytes, bytes],
    ephemerals: tuple[bytes, bytes],
) -> Report:
    """Seal the shares of a contribution. Run by: the client.

    Parameters
    ----------
    task : bytes
        Id of the task, 32 bytes.
    configs : tuple of HpkeConfig
        Of the leader and of the helper.
    metadata : Metadata
        Its report id is the nonce that the shares were made with.
    public, inputs : bytes and tuple of bytes
        The public share; the leader's and the helper's input share.
    ephemerals : tuple of bytes
        32 random bytes for each seal, secret.

    Raises
    ------
    InputError
        A public key is none.
    """
    aad = _aad(task, metadata, public)
    sealed = [
        SealedShare(
            config.number,
            seal(config.public_key, _purpose(operator), aad, _plaintext(share), ephemeral, config.cipher),
        )
        for operator, (config, share, ephemeral) in enumerate(zip(configs, inputs, ephemerals, strict=True))
    ]
    return Report(metadata, public, (sealed[0], sealed[1]))


def open_share(
    task: bytes,
    operator: int,
    config: HpkeConfig,
    private_key: bytes,
    metadata: Metadata,
    public: bytes,
    share: SealedShare,
) -> bytes:
    """An operator's input share: 0 is the leader. Run by: that operator; see :func:`seal_report`.

    Raises
    ------
    InputError
        It was sealed for another key, task or report, bears an extension, or is malformed.
    """
    if share.config != config.number:
        raise InputError(
            f"the share is sealed for HPKE configuration {share.config}, not for {config.number}"
        )
    aad = _aad(task, metadata, public)
    plain = open_sealed(private_key, _purpose(operator), aad, share.sealed, config.cipher)
    reader = _Reader(plain, "the input share")
    reader.no_extensions()
    payload = reader.opaque(4)
    reader.end()
    return payload


def _purpose(operator: int) -> bytes:
    return VERSION + b" input share" + _CLIENT + _ROLES[operator]


def _aad(task: bytes, metadata: Metadata, public: bytes) -> bytes:
    """``InputShareAad`` of the draft."""
    return task + metadata.encode() + _opaque(public, 4)


def _plaintext(share: bytes) -> bytes:
    """``PlaintextInputShare`` of the draft, without extensions."""
    return _NO_EXTENSIONS + _opaque(share, 4)


def _opaque(data: bytes, width: int) -> bytes:
    """Bytes after their number."""
    return len(data).to_bytes(width, "big") + data


class _Reader:
    """Reads a message from its beginning."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data, self._at, self._what = data, 0, what

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise InputError(
                f"{self._what} ends after {len(self._data)} bytes; expected {self._at + size} or more"
            )
        self._at += size
        return part

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def opaque(self, width: int) -> bytes:
        return self.take(self.number(width))

    def no_extensions(self) -> None:
        if self.number(2):
            raise InputError(f"{self._what} bears an extension; none is defined here")

    def metadata(self) -> Metadata:
        made = Metadata(self.take(ID_BYTES), self.number(8))
        self.no_extensions()
        return made

    def share(self) -> SealedShare:
        return SealedShare(self.number(1), Sealed(self.opaque(2), self.opaque(4)))

    def end(self) -> None:
        if self._at != len(self._data):
            raise InputError(f"{self._what} has {len(self._data) - self._at} bytes after its end")
