"""The one failure that a caller must tell from the others: the map was updated in the meantime."""

from __future__ import annotations

from mapveil_client.errors import InputError


class OutdatedHint(InputError):
    """The hint belongs to another version of the database: fetch the new offer and hint, then ask again.

    Parameters
    ----------
    text : str
        One line.
    reply : bytes
        At the server, the message that tells the client so; empty at the client.
    """

    def __init__(self, text: str, reply: bytes = b"") -> None:
        super().__init__(text)
        self.reply = reply

    def __reduce__(self) -> tuple[type[OutdatedHint], tuple[str, bytes]]:
        return type(self), (str(self), self.reply)
