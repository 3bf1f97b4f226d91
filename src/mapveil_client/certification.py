"""A device and its enrolment authority: the certificate of its key, and the list of those that are revoked.

Both come from the collector where that hosts the authority; the list always does, or may. Where the authority is a
service of its own, :func:`certify` fetches both from there. What the policy's authority did not sign is not kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mapveil_client.connection import Connection, FinalRefusal
from mapveil_client.errors import PromiseError

if TYPE_CHECKING:
    from mapveil_client.memory import DeviceMemory
    from mapveil_client.secure_sum.certificate import Authority

_THIRD: Final = 3  # of its lifetime is left when a certificate or list is fetched again


async def renew_certificate(
    connection: Connection, memory: DeviceMemory, authority: Authority, number: int, now: float
) -> bool:
    """Fetch a certificate where less than a third of the last one's time is left; whether the memory changed.

    Parameters
    ----------
    connection : Connection
        To the collector that hosts the authority, or to the authority.
    memory : DeviceMemory
        Of the device; not saved here.
    authority : Authority
        Of the device's policy.
    number : int
        Number of the device there.
    now : float
        Seconds since 1970.
    """
    key, held = memory.identity.public, memory.certificate
    if held is not None and held.fault(authority, key, now) is None:
        advertised = any(part.running and part.phase == "keys" for part in memory.parts.values())
        if advertised or _lasts(held.not_before, held.expires, now):
            return False
    try:
        made = await connection.certificate(signer=(memory.identity, number))
    except FinalRefusal as error:
        memory.log.add("waiting", str(error))
        return False
    if fault := made.fault(authority, key, now):
        memory.log.add("waiting", f"the server gave no certificate for this device: {fault}")
        return False
    memory.certificate = made
    memory.log.add("enrolled", f"with certificate {made.serial} of {authority.population}")
    return True


async def renew_list(connection: Connection, memory: DeviceMemory, authority: Authority, now: float) -> bool:
    """Fetch the revocation list where less than a third of the last one's time is left; whether the memory changed.

    An older list than the one that the device has is not kept.
    """
    held = memory.revoked
    if held is not None and held.fault(authority, now) is None and _lasts(held.issued, held.expires, now):
        return False
    try:
        made = await connection.revocation_list()
    except FinalRefusal as error:
        memory.log.add("waiting", str(error))
        return False
    if fault := made.fault(authority, now, held):
        memory.log.add("waiting", f"the server gave no revocation list: {fault}")
        return False
    memory.revoked = made
    memory.log.add("enrolled", f"with revocation list {made.number} of {authority.population}")
    return True


async def certify(
    connection: Connection,
    token: str,
    memory: DeviceMemory,
    authority: Authority,
    now: Callable[[], float] = time.time,
) -> None:
    """Get certificate and list from an authority that is a service of its own. Run by: the device.

    Call it before the device's client runs, and again from time to time: nothing is fetched while more than a third of
    the time is left. The token is used up once only, whenever it is shown again.

    Raises
    ------
    PromiseError
        The authority refuses the token or the key, or is another than the policy's.
    Unreachable
        It does not answer.
    """
    number = await connection.enrol(token, memory.identity)
    changed = await renew_certificate(connection, memory, authority, number, now())
    changed |= await renew_list(connection, memory, authority, now())
    if changed:
        memory.save()
    held = memory.certificate
    if held is None or (fault := held.fault(authority, memory.identity.public, now())):
        reason = "it gave none" if held is None else fault
        raise PromiseError(f"no certificate of {authority.population} for this device: {reason}")


def _lasts(since: float, until: float, now: float) -> bool:
    return now < until - (until - since) / _THIRD
