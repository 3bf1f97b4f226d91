"""The messages of the server of a secure sum to its clients."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from mapveil_client.arrays import BoolArray


class Outbox(Mapping[int, bytes]):
    """The messages to send after a phase, by client; each is encoded when it is looked up."""

    def __init__(self, clients: BoolArray, write: Callable[[int], bytes]) -> None:
        self.clients = clients
        self._write = write

    def __getitem__(self, client: int) -> bytes:
        if client not in self:
            raise KeyError(client)
        return self._write(client)

    def __contains__(self, client: object) -> bool:
        return isinstance(client, int) and 0 <= client < self.clients.size and bool(self.clients[client])

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.clients).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self.clients))
