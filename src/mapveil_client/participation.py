"""One device in one collection: documents and server messages in, bytes to send out; no input or output of its own.

Everything is decided before a location is looked at. A message is saved, with its charge, before it is returned: a
restart at any moment sends the same bytes again, and never other ones. Whatever the server says that the device does
not follow ends its part in the collection, with the reason in its own log.
"""

import copy
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.contribution import client_report
from mapveil_client.device_locations import Whereabouts
from mapveil_client.epsilon import readable
from mapveil_client.errors import BudgetExceeded, InputError, MapveilError, PromiseError, check
from mapveil_client.local.randomizer import LocalMethod
from mapveil_client.memory import DeviceMemory, Part
from mapveil_client.method_parameters import OperatorParameters, SumParameters
from mapveil_client.policy import DevicePolicy
from mapveil_client.random_features import report as feature_message
from mapveil_client.random_features.feature_policy import FourierParameters
from mapveil_client.random_features.frequencies import KeptFrequencies
from mapveil_client.random_features.report import Device
from mapveil_client.randomness.random import Randomness
from mapveil_client.reports import local_report, sealed_reports
from mapveil_client.secure_sum.certificate import Credentials
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.states import ProtocolError, phase_name, server_phases
from mapveil_client.terms import CollectionTerms

_ORDER: Final = tuple(phase_name(phase) for phase in server_phases(active=True))
_COUNTED: Final = _ORDER[_ORDER.index("inputs") :]
"""Phases after which this device's vector is in the sum."""


class DeviceRefusal(PromiseError):
    """The device refuses; says why, and nothing of where it is."""


class Participation:
    """The part of one device, with its memory, rules and locations, in one collection; ``rng`` is for simulations."""

    def __init__(
        self,
        memory: DeviceMemory,
        policy: DevicePolicy,
        terms: CollectionTerms,
        whereabouts: Whereabouts,
        rng: Randomness | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.memory, self.policy, self.terms = memory, policy, terms
        self._whereabouts, self._now = whereabouts, now
        self._rng = rng or Randomness()
        self._client: Client | None = None

    @property
    def collection(self) -> str:
        """The identifier of the collection."""
        return self.terms.identifier

    @property
    def part(self) -> Part | None:
        """The part of the device; None before it joined."""
        return self.memory.parts.get(self.collection)

    @property
    def running(self) -> bool:
        """Whether the device still takes part."""
        return self.part is not None and self.part.running

    def join(self) -> None:
        """Decide on the terms, set the epsilon aside and remember it: the server may be told after this.

        Raises
        ------
        DeviceRefusal
            The device takes no part.
        """
        part = self.part
        if part is not None:
            if part.terms != self.terms.digest.hex():
                raise self._leave("the terms of the collection were changed")
            self._running()
            return
        if self.collection in self.memory.refused:
            raise DeviceRefusal(self.memory.refused[self.collection])
        reason = self.policy.refusal(self.terms) or self._refusal_of_features()
        if reason is None and self.terms.authority is not None:
            reason = self.memory.fault_of_credentials(self.policy.authority, self._now())
        if reason is None and self.terms.epsilon is not None:
            try:
                self.memory.account.grant(self.collection, self.terms.epsilon, budget=self.policy.budget)
            except BudgetExceeded as error:
                reason = str(error)
        if reason is not None:
            self.memory.refuse(self.collection, reason)
            self.memory.save()
            raise DeviceRefusal(reason)
        self._pin()
        self.memory.parts[self.collection] = Part(self.terms.digest.hex(), window=self._draw_window())
        alone = self.terms.own_epsilon
        exposure = f", epsilon {float(alone):.3g} or more if every other device is corrupt" if alone else ""
        self.memory.log.add("joined", f"{self.terms.trust}, {self.terms.method}{exposure}", self.collection)
        if (window := self.memory.parts[self.collection].window) >= 0 and self.terms.series is not None:
            name = self.terms.series.names[window]
            detail = f"window {name} was drawn: this device reports about no other, and its report names it"
            self.memory.log.add("joined", detail, self.collection)
        self._save(None)

    def _draw_window(self) -> int:
        """The window that a local report will be about, drawn before a location is looked at; -1 without one."""
        series = self.terms.series
        if series is None or self.terms.trust != "local":
            return -1
        from mapveil_client.local.window_choice import draw_windows

        return int(draw_windows(series.count, 1, self._rng)[0, 0])

    def _refusal_of_features(self) -> str | None:
        features, policy, kept = self.terms.parameters, self.policy.random_features, self.memory.frequencies
        if kept is None or policy is None or not isinstance(features, FourierParameters):
            return None
        return kept.refusal(policy, self.terms.features_query, features.jitter_m)

    def _pin(self) -> None:
        """Draw the frequencies for these terms where there are none: before the device looks where it is."""
        features, policy = self.terms.parameters, self.policy.random_features
        if self.memory.frequencies is None and policy and isinstance(features, FourierParameters):
            query, jitter_m = self.terms.features_query, features.jitter_m
            self.memory.frequencies = KeptFrequencies.draw(policy, query, jitter_m, self._rng)

    def report(self, made: bytes | None = None) -> bytes | None:
        """The one report of a collection without sums, the same bytes each time; None with nothing to report.

        ``made`` is the report to two operators where a simulation made those of many devices at once.

        Raises
        ------
        DeviceRefusal
            The device takes no part, or its budget does not allow it.
        """
        part = self._running()
        if part.state == "reported":
            return part.answer
        before, parameters = copy.copy(part), self.terms.parameters
        if isinstance(parameters, SumParameters):
            raise DeviceRefusal("a collection of sums takes no report")
        if isinstance(parameters, LocalMethod):
            body = self._local_report(parameters)
        elif isinstance(parameters, OperatorParameters):
            body = self._sealed_report(parameters, made)
        else:
            body = self._feature_report(parameters)
        if body is None:
            if not self._may_come():
                self._end("left", "it has nothing to report")
            return None
        part.state, part.answer, part.sent = "reported", body, False
        self._save(before)
        return body

    def _local_report(self, method: LocalMethod) -> bytes | None:
        self._check_charge(0, self.terms.epsilon)
        if self._may_come():
            return None
        body = local_report(self.terms, method, self._whereabouts, self._running().window, self._rng)
        if body is not None:
            self._charge(0, self.terms.epsilon)
        return body

    def _may_come(self) -> bool:
        """Whether the window that this device drew is not over: then its report waits."""
        series, part = self.terms.series, self.part
        ends = None if series is None or part is None else series.ends(part.window)
        return ends is not None and self._now() < ends

    def _sealed_report(self, sums: OperatorParameters, made: bytes | None) -> bytes:
        self._check_charge(0, self.terms.epsilon)
        if made is None:
            (made,) = sealed_reports(self.terms, sums, [self._whereabouts], self._now(), self._rng)
        self._charge(0, self.terms.epsilon)
        return made

    def _feature_report(self, features: FourierParameters) -> bytes | None:
        policy, query = self.policy.random_features, self.terms.features_query
        if policy is None:
            raise self._leave("this device's policy has no bounds on random Fourier features")
        if reason := policy.refusal(query) or self._refusal_of_features():
            raise self._leave(reason)
        if self.memory.frequencies is None:
            raise self._leave("this device has no frequencies for a collection that it joined")
        device = Device(policy, self.memory.frequencies)
        lon, lat, weights = self._whereabouts.visits(self.terms.cells, features.places)
        reports = device.answer(query, lon, lat, weights=weights)
        self.memory.frequencies = kept = device.kept
        bands = policy.bands_left(query, kept.multiples)
        detail = f"answer {kept.answers} of {policy.answers}; all together leave at least {bands:.3g} bands"
        self.memory.log.add("charged", detail, self.collection)
        return None if reports is None else feature_message.write_reports(reports, query)[0]

    def begin(self, announcement: RoundAnnouncement, shard: int, client: int) -> bytes:
        """Take part in a round as number ``client`` of a shard: the first message, of phase ``keys``.

        Raises
        ------
        DeviceRefusal
            The round is not the one the terms promised, or not within the policy; nothing is sent.
        """
        part = self._running()
        digest = announcement.digest.hex()
        if announcement.number == part.round:
            if (digest, shard, client) != (part.announcement, part.shard, part.client):
                raise self._leave(f"round {part.round} was announced twice, differently")
            if part.phase != "keys":
                raise DeviceRefusal(f"round {part.round} is under way")
            return part.answer
        if announcement.number != part.round + 1:
            raise self._leave(f"round {announcement.number} was announced after round {part.round}")
        spent = self.memory.account.spent_on(self.collection)
        reason = self.policy.refusal_of_round(self.terms, announcement, spent)
        if reason is not None:
            raise self._leave(f"round {announcement.number}: {reason}")
        self._check_charge(announcement.number, announcement.epsilon)
        try:
            parameters = announcement.parameters(shard)
            check(0 <= client < parameters.clients, "client", f"0 to {parameters.clients - 1}", client)
        except InputError as error:
            raise self._leave(f"round {announcement.number}: {error}") from None
        fault = self.memory.fault_of_credentials(self.policy.authority, self._now())
        if parameters.signed and fault is not None:
            raise self._leave(f"round {announcement.number}: {fault}")
        before = copy.copy(part)
        asked = (announcement.query, announcement.alpha, announcement.scale, announcement.rounding)
        try:
            places = self._whereabouts.devices(self.terms)
        except InputError as error:  # no times or categories, whatever they would be
            raise self._leave(str(error)) from None
        vector = client_report(places, *asked, self._rng).dense(0)
        machine = Client(parameters, client, vector, self._rng, credentials=self._credentials(parameters))
        part.round, part.announcement = announcement.number, digest
        part.shard, part.client = shard, client
        return self._answered(before, machine, "keys", machine.advertise())

    def answer(self, announcement: RoundAnnouncement, phase: str, message: bytes) -> bytes | None:
        """Answer the server's message of a phase of the running round; the message is empty for a device left out.

        Returns
        -------
        bytes or None
            The message to send; None where nothing is due from this device, whose vector is in the sum already.

        Raises
        ------
        DeviceRefusal
            The message breaks the protocol or its promises, the budget does not allow the answer, or the device was
            left out: it takes no further part.
        """
        part = self._running()
        if (announcement.number, announcement.digest.hex()) != (part.round, part.announcement):
            raise self._leave(f"round {part.round} was announced twice, differently")
        if phase == part.phase:
            return part.answer
        if phase in _ORDER[: _ORDER.index(part.phase)]:
            return None  # of a process of the service that is a moment behind another
        order = [phase_name(each) for each in server_phases(self.terms.active)]
        if not message or phase not in order[order.index(part.phase) + 1 :][:1]:
            if part.phase in _COUNTED:
                return None
            raise self._leave(f"the server went on without this device after its {part.phase}")
        if phase == "inputs":
            self._check_charge(part.round, announcement.epsilon)
        before = copy.copy(part)
        machine = self._machine(announcement)
        try:
            body = machine.receive(message)
        except ProtocolError as error:
            raise self._leave(f"round {part.round}, {phase}: {error}") from None
        if phase == "inputs":
            self._charge(part.round, announcement.epsilon)
        return self._answered(before, machine, phase, body)

    def _machine(self, announcement: RoundAnnouncement) -> Client:
        if self._client is not None:
            return self._client
        part = self._running()
        parameters = announcement.parameters(part.shard)
        credentials = self._credentials(parameters)
        return Client.from_state(parameters, part.machine, self._rng, credentials=credentials)

    def _credentials(self, parameters: RoundParameters) -> Credentials | None:
        """Its own key and certificate, and whom it goes by for the others'; None in a round that is not signed."""
        certificate, authority = self.memory.certificate, self.policy.authority
        if not parameters.signed or certificate is None or authority is None:
            return None
        return Credentials(self.memory.identity, certificate, authority, self._now, self.memory.revoked)

    def _answered(self, before: Part, machine: Client, phase: str, body: bytes) -> bytes:
        part = self._running()
        part.phase, part.answer, part.sent = phase, body, False
        part.machine = machine.to_state() if self.memory.lasting else b""
        self._save(before)
        self._client = machine
        return body

    def entered(self) -> None:
        """The server knows that this device takes part. Not saved, as in :meth:`acknowledged`."""
        part = self.part
        if part is not None and part.state == "joined" and part.round == 0:
            part.sent = True

    def acknowledged(self) -> None:
        """The server has the last answer. Not saved: after a restart the same bytes are sent once more."""
        part = self.part
        if part is not None and part.answer and not part.sent:
            part.sent = True
            what = f"round {part.round}, {part.phase}" if part.round else "its report"
            self.memory.log.add("sent", what, self.collection)

    def refused(self, reason: str) -> None:
        """The server did not take an answer: too late, or it holds another one. Ends the part where it must."""
        part = self.part
        if part is None or not part.running:
            return
        if part.round and part.phase in _COUNTED[1:]:
            part.sent = True  # its vector is in the sum: the next round may ask it again
            self.memory.log.add("unsent", reason, self.collection)
        else:
            self._end("left", reason)

    def distrust(self, reason: str) -> None:
        """End the device's part: what the server published cannot be read."""
        if self.running:
            self._end("left", reason, event="refused")

    def end(self, reason: str) -> None:
        """The collection is over, as the server says: whatever it asks after this is refused."""
        if self.running:
            self._end("ended", reason)

    def _running(self) -> Part:
        part = self.part
        if part is None:
            raise DeviceRefusal("this device has not joined the collection")
        if not part.running:
            raise DeviceRefusal(part.reason or "it is over")
        return part

    def _check_charge(self, number: int, epsilon: Fraction | None) -> Fraction:
        """The charge; leaves before a location is looked at where it would be refused."""
        try:
            if epsilon is None:
                raise BudgetExceeded("the collection names no epsilon")
            self.memory.account.check(self.collection, number, epsilon, budget=self.policy.budget)
        except BudgetExceeded as error:
            raise self._leave(str(error)) from None
        return epsilon

    def _charge(self, number: int, epsilon: Fraction | None) -> None:
        charge = self._check_charge(number, epsilon)
        self.memory.account.charge(self.collection, number, charge, budget=self.policy.budget)
        what = f"round {number}" if number else "its report"
        self.memory.log.add("charged", f"epsilon {readable(charge)} for {what}", self.collection)

    def _leave(self, reason: str) -> DeviceRefusal:
        """Take no further part; the error to raise."""
        self._end("left", reason, event="refused")
        return DeviceRefusal(reason)

    def _end(self, state: str, reason: str, event: str | None = None) -> None:
        self._client = None
        self.memory.leave(self.collection, state, reason, event)

    def _save(self, before: Part | None) -> None:
        """Save, or go back: nothing unsaved may leave. A charge stays, it is made once only."""
        try:
            self.memory.save()
        except MapveilError:
            if before is None:
                self.memory.parts.pop(self.collection, None)
            else:
                self.memory.parts[self.collection] = before
            self._client = None
            raise

    def __repr__(self) -> str:
        return f"Participation({self.collection}, {'not joined' if self.part is None else self.part.state})"
