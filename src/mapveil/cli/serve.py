"""``mapveil serve``: the collection server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.console import Console, console_options
from mapveil.collector.http.settings import SETTINGS, Setting, Settings
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    from mapveil.collector.store.database import Store

_NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


def _option(row: Setting) -> Callable[[Any], Any]:
    kind: Any = int if row.number else click.Choice(row.choices) if row.choices else str
    metavar = None if row.choices else "TEXT"
    if row.number:
        metavar = {"bytes": "BYTES", "seconds": "SECONDS"}.get(row.unit, "N")
    shown = "none" if row.default is None else str(row.default)
    about = f"{row.help}.  [{row.variable}; {shown}]"
    return click.option(row.option, row.name, type=kind, metavar=metavar, help=about)


def _settings_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for every setting."""
    for row in reversed(SETTINGS):
        function = _option(row)(function)
    return function


@click.command("serve")
@click.option("--check", is_flag=True, help="Check the settings, the store and its charges; exit 0 or 1.")
@click.option(
    "--head",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Print the signed head of the audit log; with --check, verify that the head in FILE leads to it.",
)
@click.option(
    "--new-operator",
    metavar="ROLE[:NAME]",
    help="Make an operator (viewer, operator, admin) and print the token.",
)
@click.option(
    "--new-enrolment", metavar="USES[:NAME]", help="Make a token with which USES devices enrol, and print it."
)
@click.option(
    "--device",
    "device",
    metavar="ACTION:NUMBER",
    help="Put a device in quarantine (quarantine:17), release it (release:17), or revoke it for good (revoke:17).",
)
@click.option(
    "--expires",
    default="30d",
    metavar="TIME",
    show_default=True,
    help="Lifetime of the token: 30d, 12h, 45m.",
)
@_settings_options
@console_options
def command(
    console: Console,
    check: bool,
    head: str | None,
    new_operator: str | None,
    new_enrolment: str | None,
    device: str | None,
    expires: str,
    **given: Any,
) -> int:
    """Run the collection server: an HTTP API, a console for operators, a page for phones.

    Every setting is an option here and a variable of the environment, named beside its default; the option wins.
    SIGTERM stops the server after the requests in progress; a kill loses nothing that was acknowledged.

    \b
    Examples:
      mapveil serve --new-operator admin:me          make the first operator: prints the token
      mapveil serve                                  http://127.0.0.1:8321
      mapveil serve --store postgresql://mapveil@db/mapveil --workers 4 --host 0.0.0.0 \\
                    --tls-cert chain.pem --tls-key key.pem --log-format json
      mapveil serve --head > head.json               publish it
      mapveil serve --check --head head.json
      mapveil serve --device quarantine:17           a device that the audit log names
    """
    for module in _NEEDED:
        require(module, "service")
    settings = Settings.read(os.environ, given)
    acts = (new_operator, new_enrolment, device)
    if sum((check or head is not None, *(act is not None for act in acts))) > 1:
        raise InputError("give only one of --check, --head, --new-operator, --new-enrolment and --device")
    if head is not None and check != bool(head):
        raise InputError("--head FILE goes with --check; --head without FILE prints the head")
    if check:
        return _check(settings, console, head)
    if head is not None:
        return _head(settings, console)
    if new_operator is not None:
        return _issue(settings, console, new_operator, expires, _new_operator)
    if new_enrolment is not None:
        return _issue(settings, console, new_enrolment, expires, _new_enrolment)
    if device is not None:
        return _act_on_device(settings, console, device)
    return _serve(settings, console)


def _act_on_device(settings: Settings, console: Console, text: str) -> int:
    """Bar a device, or release it; a service that runs takes notice within half a minute."""
    from mapveil.collector.refusals import Conflict, NotFound
    from mapveil.collector.store.principals import Accounts

    found = re.fullmatch(r"(quarantine|release|revoke):(\d{1,10})", text, re.ASCII)
    if found is None:
        raise InputError(f"--device must be quarantine:N, release:N or revoke:N, got {text!r}")
    store = _store(settings)
    try:
        getattr(Accounts(store), f"{found[1]}_device")(int(found[2]), "command line")
    except (Conflict, NotFound) as error:
        raise InputError(str(error)) from None
    finally:
        store.close()
    done = {"quarantine": "in quarantine", "release": "released", "revoke": "revoked"}[found[1]]
    console.result(f"device {found[2]} is {done}", {"device": int(found[2]), "state": done})
    return 0


def _serve(settings: Settings, console: Console) -> int:
    from mapveil.collector.http.logs import configure_logs
    from mapveil.collector.http.serving import authority_of, bind, serve
    from mapveil.collector.store.principals import Accounts
    from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority

    listener = bind(settings)
    configure_logs(settings.log_format, settings.log_level)
    store = _store(settings)
    authority = authority_of(settings, store)
    if authority is None:
        console.note("No enrolment authority: give --authority or --authority-key for active secure sums.")
    else:
        apart = not isinstance(authority, EnrolmentAuthority)
        named = authority.named if isinstance(authority, EnrolmentAuthority) else authority
        console.note(f"Enrolment authority, {'apart from' if apart else 'of'} this collector: {named}")
    if not Accounts(store).operators():
        console.note(
            "There is no operator yet. Make one with: mapveil serve --new-operator admin:NAME"
            + _same(settings)
        )
    where = store.shown
    store.close()
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"{settings.scheme}://{shown}:{port}"
    serve(settings, listener, lambda: console.note(f"Serving on {address} from {where}; stop with Ctrl-C."))
    return 0


def _same(settings: Settings) -> str:
    return "" if settings.store == SETTINGS[0].default else ", with the same --store"


def _store(settings: Settings) -> Store:
    from mapveil.collector.clock import SystemClock
    from mapveil.collector.store.database import Store

    store = Store(settings.store, clock=SystemClock())
    store.create_tables()
    return store


def _head(settings: Settings, console: Console) -> int:
    from mapveil.collector.http.serving import sign_head

    made = sign_head(settings)
    console.result(made.encode().decode(), made.to_record())
    return 0


def _check(settings: Settings, console: Console, head: str | None) -> int:
    from mapveil.collector.http.serving import examine
    from mapveil.privacy.chain_head import ChainHead

    findings = examine(settings, None if head is None else ChainHead.read(Path(head)))
    console.findings(findings)
    return int(any(finding.state != "ok" for finding in findings))


def _issue(
    settings: Settings,
    console: Console,
    text: str,
    expires: str,
    make: Callable[[Store, str, timedelta], tuple[int, str]],
) -> int:
    """Make a token; it is the only thing on stdout."""
    from mapveil.collector.refusals import Invalid

    lifetime = _lifetime(expires)
    store = _store(settings)
    try:
        number, token = make(store, text, lifetime)
    except Invalid as error:
        raise InputError(str(error)) from None
    finally:
        store.close()
    console.note(f"Number {number}, good for {expires}. This is the only time the token is shown:")
    console.result(token, {"id": number, "token": token})
    return 0


def _new_operator(store: Store, text: str, lifetime: timedelta) -> tuple[int, str]:
    from mapveil.collector.store.principals import Accounts

    role, _, name = text.partition(":")
    issued = Accounts(store).create_operator(name or role, role, lifetime, "command line")
    return issued.id, issued.token


def _new_enrolment(store: Store, text: str, lifetime: timedelta) -> tuple[int, str]:
    from mapveil.collector.store.principals import Accounts

    uses, _, name = text.partition(":")
    if not (uses.isascii() and uses.isdecimal() and len(uses) <= 9):
        raise InputError(f"--new-enrolment must be USES or USES:NAME such as 2000:pilot, got {text!r}")
    issued = Accounts(store).create_enrolment(name or "devices", int(uses), lifetime, None, "command line")
    return issued.id, issued.token


def _lifetime(text: str) -> timedelta:
    found = re.fullmatch(r"([1-9]\d{0,5})([dhm])", text, re.ASCII)
    if found is None:
        raise InputError(f"--expires must be a time such as 30d, 12h or 45m, got {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
