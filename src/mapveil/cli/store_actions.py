"""The options that 'mapveil serve' and 'mapveil enrol-authority' share: settings, tokens, and devices to bar."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from mapveil.cli.console import Console
from mapveil.collector.http.settings import SETTINGS, Setting, Settings, unknown_variables
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    from mapveil.collector.store.database import Store
    from mapveil.collector.store.principals import NewEnrolment, NewOperator, Operator

    Issue = Callable[[Store], NewOperator | NewEnrolment]

_NEEDED: Final = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client", "nacl")
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes"}


@dataclass(frozen=True)
class StoreAction:
    """An action on the store that ends the command: at most one is not None."""

    new_operator: str | None
    new_enrolment: str | None
    device: str | None
    expires: str

    @property
    def count(self) -> int:
        """Number of actions that were given."""
        return sum(each is not None for each in (self.new_operator, self.new_enrolment, self.device))

    def take(self, settings: Settings, console: Console) -> int:
        """Take the action; the exit code."""
        if self.new_operator is not None:
            return _issue(settings, console, self.new_operator, self.expires, _new_operator)
        if self.new_enrolment is not None:
            return _issue(settings, console, self.new_enrolment, self.expires, _new_enrolment)
        return _act_on_device(settings, console, self.device or "")


def read_settings(given: dict[str, Any], console: Console) -> Settings:
    """Settings from the options and the environment, of which unknown variables are told.

    Raises
    ------
    MissingExtra
        Something is not installed that serving needs.
    """
    for module in _NEEDED:
        require(module, "service")
    for name, nearest in unknown_variables(os.environ).items():
        hint = f"did you mean {nearest}?" if nearest else "'mapveil serve --help' lists the settings"
        console.warn(f"the variable {name} is no setting, and has no effect; {hint}")
    return Settings.read(os.environ, given)


def settings_options(names: Collection[str] | None = None) -> Callable[[Any], Any]:
    """Add an option for every setting, or for those of some names."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for row in reversed(SETTINGS):
            if names is None or row.name in names:
                function = _option(row)(function)
        return function

    return add


def store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a :class:`StoreAction`, given to the function as ``action``."""

    @functools.wraps(function)
    def command(
        *arguments: Any,
        new_operator: str | None,
        new_enrolment: str | None,
        device: str | None,
        expires: str,
        **given: Any,
    ) -> Any:
        return function(*arguments, action=StoreAction(new_operator, new_enrolment, device, expires), **given)

    for add in reversed(_ACTIONS):
        command = add(command)
    return command


_ACTIONS: Final = (
    click.option(
        "--new-operator",
        metavar="ROLE[:NAME]",
        help="Make an operator (viewer, operator, admin) and print the token.",
    ),
    click.option(
        "--new-enrolment",
        metavar="USES[:NAME]",
        help="Make a token with which USES devices enrol, and print it.",
    ),
    click.option(
        "--device",
        "device",
        metavar="ACTION:NUMBER",
        help="Put a device in quarantine (quarantine:17), release it (release:17), or revoke it for good (revoke:17).",
    ),
    click.option(
        "--expires",
        default="30d",
        metavar="TIME",
        show_default=True,
        help="Lifetime of the token: 30d, 12h, 45m.",
    ),
)


def _option(row: Setting) -> Callable[[Any], Any]:
    kind: Any = int if row.number else click.Choice(row.choices) if row.choices else str
    metavar = None if row.choices else "TEXT"
    if row.number:
        metavar = {"bytes": "BYTES", "seconds": "SECONDS"}.get(row.unit, "N")
    shown = "none" if row.default is None else str(row.default)
    about = f"{row.help}.  [{row.variable}; {shown}]"
    return click.option(row.option, row.name, type=kind, metavar=metavar, help=about)


def _act_on_device(settings: Settings, console: Console, text: str) -> int:
    """Bar a device, or release it; a service that runs takes notice within half a minute."""
    from mapveil.collector.refusals import Conflict, NotFound
    from mapveil.collector.store.principals import Accounts

    found = re.fullmatch(r"(quarantine|release|revoke):(\d{1,10})", text, re.ASCII)
    if found is None:
        raise InputError(f"--device must be quarantine:N, release:N or revoke:N, got {text!r}")
    if is_missing(settings):
        raise InputError(f"there is no store at {settings.store}; give the one that the service serves from")
    store = open_store(settings)
    try:
        getattr(Accounts(store), f"{found[1]}_device")(int(found[2]), "command line")
    except (Conflict, NotFound) as error:
        raise InputError(str(error)) from None
    finally:
        store.close()
    done = {"quarantine": "in quarantine", "release": "released", "revoke": "revoked"}[found[1]]
    if found[1] == "revoke":
        console.note(
            "The token that it enrolled with lets nobody else in; make another for those who still wait."
        )
    console.result(f"device {found[2]} is {done}", {"device": int(found[2]), "state": done})
    return 0


def open_store(settings: Settings) -> Store:
    """The store of a service, with its tables."""
    from mapveil.collector.clock import SystemClock
    from mapveil.collector.refusals import StoreUnavailable
    from mapveil.collector.store.database import Store
    from mapveil.collector.store.store_report import cause_text

    store = Store(settings.store, clock=SystemClock())
    try:
        store.create_tables()
        fault = store.clock_fault()
    except StoreUnavailable as error:
        store.close()
        raise StoreUnavailable(f"{store.shown}: {cause_text(error)}") from None
    if fault is not None:
        store.close()
        raise InputError(f"{store.shown}: {fault}")
    return store


def _issue(
    settings: Settings,
    console: Console,
    text: str,
    expires: str,
    make: Callable[[str, timedelta], Issue],
) -> int:
    """Make a token; it is the only thing on stdout. What cannot be is refused before a store is made."""
    from mapveil.collector.refusals import Invalid

    try:
        issue = make(text, _lifetime(expires))
    except Invalid as error:
        raise InputError(str(error)) from None
    fresh = is_missing(settings)
    store = open_store(settings)
    try:
        alike = _alike(store, text) if make is _new_operator else None
        issued = issue(store)
    finally:
        store.close()
    if fresh:
        # Also where quiet: the token of a store whose path was mistyped is of no use.
        (console.warn if console.verbosity < 0 else console.note)(f"New store made at {store.path}")
    if alike is not None:
        console.note(f"Operator {alike.id} has the same role and name, and its token is still good")
    console.note(f"Number {issued.id}, good for {expires}. This is the only time the token is shown:")
    console.result(issued.token, {"id": issued.id, "token": issued.token})
    return 0


def is_missing(settings: Settings) -> bool:
    """Whether the file of the store is yet to be made."""
    from mapveil.collector.store.backends import read_store_url

    url = read_store_url(settings.store)
    return url.drivername == "sqlite" and not os.path.exists(str(url.database))


def _alike(store: Store, text: str) -> Operator | None:
    """The newest operator with the role and name of a ROLE[:NAME], whose token is still good."""
    from mapveil.collector.clock import time_text
    from mapveil.collector.store.principals import Accounts

    role, _, name = text.partition(":")
    now = time_text(store.clock.now())
    for each in reversed(Accounts(store).operators()):
        alike = (each.role, each.name) == (role, name or role)
        if alike and each.revoked_at is None and each.expires_at > now:
            return each
    return None


def _new_operator(text: str, lifetime: timedelta) -> Issue:
    from mapveil.collector.store.principals import Accounts, check_operator

    role, _, name = text.partition(":")
    given = (name or role, role, lifetime)
    check_operator(*given)
    return lambda store: Accounts(store).create_operator(*given, "command line")


def _new_enrolment(text: str, lifetime: timedelta) -> Issue:
    from mapveil.collector.store.principals import Accounts, check_enrolment

    uses, _, name = text.partition(":")
    if not (uses.isascii() and uses.isdecimal() and len(uses) <= 9):
        raise InputError(f"--new-enrolment must be USES or USES:NAME such as 2000:pilot, got {text!r}")
    given = (name or "devices", int(uses), lifetime)
    check_enrolment(*given)
    return lambda store: Accounts(store).create_enrolment(*given, None, "command line")


def _lifetime(text: str) -> timedelta:
    found = re.fullmatch(r"([1-9]\d{0,5})([dhm])", text, re.ASCII)
    if found is None:
        raise InputError(f"--expires must be a time such as 30d, 12h or 45m, got {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
