"""The failures of a round, sorted by whose fault they are.

::

    PromiseError
    └── ProtocolError
        ├── PeerFault   the other side broke the protocol; its message was refused, nothing changed
        ├── OwnFault    this side was driven wrongly: a call that its state does not allow
        └── Abort       nobody need be at fault, but the round cannot be finished safely

After a :class:`PeerFault` a party is exactly where it was before the message. After an
:class:`Abort` it is at its end and reveals nothing more.
"""

from __future__ import annotations

from typing import ClassVar

from mapveil_client.errors import PromiseError


class ProtocolError(PromiseError):
    """A secure sum cannot go on as asked.

    Parameters
    ----------
    text : str
        One line: what was wrong, and what is accepted. Never a secret.
    client : int, optional
        The client concerned; none where it is the server, or nobody in particular.

    Attributes
    ----------
    fault : str
        ``"peer"``, ``"own"`` or ``"nobody"``.
    """

    fault: ClassVar[str] = "nobody"

    def __init__(self, text: str, client: int | None = None) -> None:
        super().__init__(text)
        self.client = client

    def __reduce__(self) -> tuple[type[ProtocolError], tuple[str, int | None]]:
        return type(self), (str(self), self.client)


class PeerFault(ProtocolError):
    """The other side broke the protocol: at the server ``client`` did, at a client the server did."""

    fault: ClassVar[str] = "peer"


class OwnFault(ProtocolError):
    """The caller asked for a step that this party's state does not allow."""

    fault: ClassVar[str] = "own"


class Abort(ProtocolError):
    """Too few are left, or what is left cannot be unmasked: the round ends and nothing is revealed."""

    fault: ClassVar[str] = "nobody"
