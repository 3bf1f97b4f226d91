"""``mapveil serve``: the collection server."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.backup_actions import BackupAction, backup_options
from mapveil.cli.console import Console, console_options
from mapveil.cli.store_actions import (
    StoreAction,
    is_missing,
    open_store,
    read_settings,
    settings_options,
    store_options,
)
from mapveil.collector.http.settings import SETTINGS, Settings
from mapveil.collector.roles import Role
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.collector.store.database import Store


@click.command("serve")
@click.option("--check", is_flag=True, help="Check the settings, the store and its charges; exit 0 or 1.")
@click.option(
    "--head",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Print the signed head of the audit log; with --check, verify that the head in FILE leads to it.",
)
@backup_options
@store_options
@settings_options()
@console_options
def command(
    console: Console,
    check: bool,
    head: str | None,
    care: BackupAction,
    action: StoreAction,
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
      mapveil serve --operator helper --peer-key peer.key --store helper.sqlite --port 8322
      mapveil serve --operator leader --peer-key peer.key --peer https://helper.example
      mapveil serve --device quarantine:17           a device that the audit log names
      mapveil serve --backup backup-2026-03-01       while it runs; on PostgreSQL, pg_dump
      mapveil serve --restored continue              after a backup was put in the store's place
    """
    settings = read_settings(given, console)
    if (check or head is not None) + action.count + care.count > 1:
        raise InputError(
            "give only one of --check, --head, --backup, --restored, --upgrade, --new-operator, --new-enrolment and "
            "--device"
        )
    if head is not None and check != bool(head):
        raise InputError("--head FILE goes with --check; --head without FILE prints the head")
    if check:
        return _check(settings, console, head)
    if head is not None:
        return _head(settings, console)
    if care.count:
        return care.take(settings, console)
    if action.count:
        return action.take(settings, console)
    return run_service(settings, console)


def run_service(settings: Settings, console: Console, *, authority_only: bool = False) -> int:
    """Serve until a signal ends it: a collector, or an enrolment authority alone."""
    from mapveil.collector.http.logs import configure_logs
    from mapveil.collector.http.serving import bind, check_places, exports_of, serve
    from mapveil.collector.http.tls_files import check_tls

    check_tls(settings)
    check_places(settings, exports=not authority_only and settings.role != Role.CONDUCTOR)
    if settings.in_clear and settings.role in (Role.ALL, Role.INTAKE):
        console.warn(
            f"tokens and what devices send reach {settings.host} in the clear; give --tls-cert and --tls-key, or "
            "--trusted-proxies with the address of a proxy that ends TLS, or --host 127.0.0.1"
        )
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(bind(settings))
        configure_logs(settings.log_format, settings.log_level)
        fresh = is_missing(settings)
        store = open_store(settings)
        if fresh:
            console.note(f"New store made at {store.path}")
        alone = stack.enter_context(store.only_worker("serve"))
        if not alone:
            raise InputError(
                f"{store.shown}: another 'mapveil serve' serves from this store; stop that one, or give another store "
                "(--store); several processes share one on PostgreSQL"
            )
        if not authority_only and settings.role != Role.CONDUCTOR:
            exports_of(settings, store.path).check()
        _announce(settings, store, console, authority_only=authority_only)
        where = store.shown
        store.close()
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        address = f"{settings.scheme}://{shown}:{port}"
        told = f"Serving on {address} from {where}; stop with Ctrl-C."
        serve(settings, listener, lambda: console.note(told), authority_only=authority_only)
    return 0


def _announce(settings: Settings, store: Store, console: Console, *, authority_only: bool) -> None:
    """Print the authority, the operator's key, and whether there is nobody to operate."""
    from mapveil.collector.http.serving import authority_of, operator_part
    from mapveil.collector.store.principals import Accounts
    from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority

    authority = authority_of(settings, store)
    config = operator_part(settings, store).config  # refuses settings before anything is printed
    if authority is None:
        console.note("No enrolment authority: give --authority or --authority-key for active secure sums.")
    else:
        apart = not isinstance(authority, EnrolmentAuthority)
        named = authority.named if isinstance(authority, EnrolmentAuthority) else authority
        console.note(f"Enrolment authority, {'apart from' if apart else 'of'} this collector: {named}")
        if apart and settings.revocation_list is None:
            console.note(
                "No revocation list of that authority: devices take part in no active sum without one."
            )
    if config is not None:
        console.note(f"The {settings.operator} of two operators; its key: {config.public_key.hex()}")
    if not authority_only and settings.operator != "helper" and not Accounts(store).operators():
        console.note(
            "There is no operator yet. Make one with: mapveil serve --new-operator admin:NAME"
            + _same(settings)
        )


def _same(settings: Settings) -> str:
    return "" if settings.store == SETTINGS[0].default else ", with the same --store"


def _head(settings: Settings, console: Console) -> int:
    from mapveil.collector.http.examination import sign_head

    made = sign_head(settings)
    console.result(made.encode().decode(), made.to_record())
    return 0


def _check(settings: Settings, console: Console, head: str | None) -> int:
    from mapveil.collector.http.examination import examine
    from mapveil.privacy.chain_head import ChainHead

    findings = examine(settings, None if head is None else ChainHead.read(Path(head)))
    console.findings(findings)
    return int(any(finding.state != "ok" for finding in findings))
