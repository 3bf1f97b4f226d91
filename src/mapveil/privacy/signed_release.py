r"""Signatures of released files: the ledger's key binds a file's bytes to its charges and to the ledger's chain.

.. math:: s = \operatorname{Ed25519}_k(\text{"mapveil release 1"} \,\|\, 0 \,\|\, d)

where: d is the statement as canonical JSON without its signature s, and k the key that is kept beside the ledger. The
head in the statement counts the charge: whoever holds a later published head can ask the curator for
``mapveil ledger check --head`` with both.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Final, Self

from mapveil.privacy.chain_head import ChainHead, PublishedDocument
from mapveil.privacy.claim import read_exact
from mapveil_client.errors import InputError, check
from mapveil_client.secure_sum.keys import Identity, signed_by
from mapveil_client.terms import canonical_json, is_hexadecimal

SIGNATURE_SUFFIX: Final = ".sig"
"""Suffix of the file beside a release that holds its signature."""

_PURPOSE: Final = b"mapveil release 1\0"
_MOST_ENTRIES: Final = 1000
_ENTRY_DIGITS: Final = 64


@dataclass(frozen=True, kw_only=True)
class SignedRelease(PublishedDocument):
    """A curator's statement about one released file; one that was made is valid.

    Parameters
    ----------
    sha256 : bytes
        Hash of the file, 32 bytes.
    entries : tuple of str
        Entries of the ledger that the release was charged as.
    epsilon : Fraction
        Sum of the entries' epsilons.
    head : ChainHead
        Signed head of the ledger, at or after the charge.
    signature : bytes
        Ed25519 by the key of the head, 64 bytes.

    Raises
    ------
    InputError
        A value is of the wrong kind, or the signature is not that of the head's key.
    """

    what = "the signature of a release"

    sha256: bytes
    entries: tuple[str, ...]
    epsilon: Fraction
    head: ChainHead
    signature: bytes

    def __post_init__(self) -> None:
        fits = 0 < len(self.entries) <= _MOST_ENTRIES and all(
            isinstance(entry, str) and len(entry) <= _ENTRY_DIGITS for entry in self.entries
        )
        check(fits, "entries", f"1 to {_MOST_ENTRIES} entries of a ledger", self.entries)
        check(
            self.head.chain == "ledger" and self.head.count > 0,
            "head",
            "the head of a ledger",
            self.head.chain,
        )
        if not signed_by(self.head.public_key, self.signature, _statement(self.to_record())):
            raise InputError("the signature of the release is not that of the key of its ledger")

    @classmethod
    def sign(
        cls, key: Identity, sha256: bytes, entries: tuple[str, ...], epsilon: Fraction, head: ChainHead
    ) -> Self:
        """Sign a file's hash with the key that signed the head. Run by: the curator."""
        said = {
            "version": 1,
            "sha256": sha256.hex(),
            "entries": list(entries),
            "epsilon": str(epsilon),
            "head": head.to_record(),
        }
        signature = key.sign(_statement(said))
        return cls(sha256=sha256, entries=entries, epsilon=epsilon, head=head, signature=signature)

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready record, the head as its own."""
        return super().to_record() | {"head": self.head.to_record()}

    @classmethod
    def _read(cls, record: dict[str, Any]) -> dict[str, Any]:
        names = [field.name for field in fields(cls)]
        if record.keys() != set(names):
            raise InputError(f"{cls.what} must have {', '.join(names)}, and nothing else")
        for name, size in (("sha256", 32), ("signature", 64)):
            check(
                is_hexadecimal(record[name], 2 * size), name, f"{2 * size} hexadecimal digits", record[name]
            )
        epsilon = read_exact(record["epsilon"])
        check(epsilon > 0, "epsilon", "a number above 0 in quotes", record["epsilon"])
        check(isinstance(record["entries"], list), "entries", "a list", record["entries"])
        return {
            "sha256": bytes.fromhex(record["sha256"]),
            "entries": tuple(record["entries"]),
            "epsilon": epsilon,
            "head": ChainHead.decode(canonical_json(record["head"])),
            "signature": bytes.fromhex(record["signature"]),
        }


def _statement(record: dict[str, Any]) -> bytes:
    return _PURPOSE + canonical_json({name: value for name, value in record.items() if name != "signature"})
