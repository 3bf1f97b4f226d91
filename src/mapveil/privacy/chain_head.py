r"""Signed heads of hash chains: a published head shows later that lines were taken off the chain's end, or rewritten.

.. math:: s = \operatorname{Ed25519}_k(\text{"mapveil head 1"} \,\|\, 0 \,\|\, h)

where: h is the head as canonical JSON without its signature s, and k the key that is kept beside the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

from mapveil_client.errors import InputError, check, is_whole
from mapveil_client.secure_sum.keys import Identity, signed_by
from mapveil_client.terms import Document, canonical_json, is_hexadecimal

Chain = Literal["audit log", "ledger"]
START: Final = bytes(32)
"""Chain value before the first line."""

_PURPOSE: Final = b"mapveil head 1\0"
_MOST_LINES: Final = (1 << 53) - 1
_BYTES: Final = {"head": 32, "public_key": 32, "signature": 64}


class PublishedDocument(Document):
    """A document that its owner publishes as a file of its own."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a published document from a file.

        Raises
        ------
        InputError
            The file cannot be read, or holds no valid document of this kind.
        """
        try:
            return cls.decode(path.read_bytes())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class ChainHead(PublishedDocument):
    """The last value of a hash chain, signed; one that was made is valid.

    Parameters
    ----------
    chain : str
        ``audit log`` or ``ledger``.
    count : int
        Number of lines.
    head : bytes
        Chain value of the last line, 32 bytes; zeros without lines.
    time : str
        Time of signing: UTC, ISO 8601.
    public_key, signature : bytes
        Ed25519, 32 and 64 bytes.

    Raises
    ------
    InputError
        A value is of the wrong kind, or the signature is not that of the public key.
    """

    what = "the head of a chain"

    chain: Chain
    count: int
    head: bytes
    time: str
    public_key: bytes
    signature: bytes

    def __post_init__(self) -> None:
        check(self.chain in get_args(Chain), "chain", f"one of {', '.join(get_args(Chain))}", self.chain)
        check(is_whole(self.count, 0, _MOST_LINES), "count", f"0 to {_MOST_LINES}", self.count)
        check(self.count > 0 or self.head == START, "head", "32 zero bytes without lines", self.head)
        check(isinstance(self.time, str) and len(self.time) <= 32, "time", "at most 32 characters", self.time)
        unsigned = {name: value for name, value in self.to_record().items() if name != "signature"}
        if not signed_by(self.public_key, self.signature, _statement(unsigned)):
            raise InputError("the signature of the head is not that of its public key")

    @classmethod
    def sign(cls, key: Identity, chain: Chain, count: int, head: bytes, time: str) -> Self:
        """Sign the head of a chain. Run by: the curator, the server."""
        said = {"chain": chain, "count": count, "head": head.hex(), "time": time}
        signature = key.sign(_statement({"version": 1, **said, "public_key": key.public.hex()}))
        return cls(chain=chain, count=count, head=head, time=time, public_key=key.public, signature=signature)

    def fault(
        self, chain: Chain, count: int, value_at: Callable[[int], bytes], key: Identity | None
    ) -> str | None:
        """The reason why this head is no prefix of a verified chain of so many lines; None where it is.

        Without the chain's own key, the head's key is not compared.
        """
        if self.chain != chain:
            return f"the published head is of another chain ({self.chain})"
        if key is not None and key.public != self.public_key:
            return f"the published head was signed with another key ({self.public_key.hex()[:16]}...)"
        if count < self.count:
            return (
                f"lines were taken off the end: the published head counts {self.count}, the {chain} {count}"
            )
        if (value_at(self.count) if self.count else START) != self.head:
            return f"the {chain} was rewritten: line {self.count} or one before is not that of the published head"
        return None

    @classmethod
    def _read(cls, record: dict[str, Any]) -> dict[str, Any]:
        if record.keys() != {field.name for field in fields(cls)}:
            raise InputError(
                f"{cls.what} must have {', '.join(field.name for field in fields(cls))}, and nothing else"
            )
        for name, size in _BYTES.items():
            check(
                is_hexadecimal(record[name], 2 * size), name, f"{2 * size} hexadecimal digits", record[name]
            )
        return record | {name: bytes.fromhex(record[name]) for name in _BYTES}


def _statement(unsigned: dict[str, Any]) -> bytes:
    return _PURPOSE + canonical_json(unsigned)
