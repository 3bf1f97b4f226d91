"""The command group: loads a command when it is called for, and turns errors into one line."""

import contextvars
import importlib
import os
import signal
import sys
import warnings
from contextlib import suppress
from typing import Any, NoReturn, TextIO

import click

from mapveil import __version__
from mapveil.cli.interrupts import interruptible
from mapveil_client.errors import CuratorWarning, MapveilError, one_line, printable

_LONGEST = 2000  # characters of a message

_COMMANDS = {
    "release": "Release a private map of a table of points or a raster of counts.",
    "series": "Release a map of each window as its table arrives.",
    "run": "Repeat a release whose options stand in a file.",
    "describe": "Describe a table for its curator (not private).",
    "compare": "Compare methods on your own data (the report is not private).",
    "plan": "Predict each method's error before anything is spent.",
    "ask": "Estimate the users in zones of a released map, with intervals of the noise.",
    "change": "Call the zones where two released maps differ.",
    "neighbours": "List the nearest users of places, from a private map.",
    "flows": "Release private flows between places from a table of trips.",
    "routes": "Find the fastest route under a private map of the traffic.",
    "inspect": "Show what a released file promises, on a sheet to sign.",
    "verify": "Check a released file: its signature, parts and noise.",
    "methods": "List the methods, their parameters and sources.",
    "ledger": "Show what was spent on each dataset, and set budgets.",
    "signal": "Map coverage from measurements that phones privatize.",
    "attack": "Measure what could still be learnt about people.",
    "audit": "Test a method's epsilon empirically.",
    "serve": "Run the collection server.",
    "enrol-authority": "Certify the devices of active secure sums.",
    "device": "Answer a collector with a fleet of devices.",
    "doctor": "Check this installation.",
}


class _LazyGroup(click.Group):
    """A group that imports a command's module only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"mapveil.cli.{cmd_name.replace('-', '_')}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from mapveil.cli.arguments import did_you_mean

            near = did_you_mean(args[0], _COMMANDS).replace(" did", " Did")
            raise click.UsageError(f"{error.message}{near} Commands: {', '.join(_COMMANDS)}.", ctx) from None


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="mapveil")
def app() -> None:
    """Private maps of where people are.

    \b
    Start here:
      mapveil release checkins.parquet --region -74.03,40.69,-73.90,40.83 --epsilon 1 -o map.html
      mapveil plan --users 5000 --region -74.03,40.69,-73.90,40.83 --epsilon 0.5,1,2
      mapveil methods
    """


def run(arguments: list[str] | None = None, command: click.Command = app, name: str = "mapveil") -> NoReturn:
    """Run the command line (or another command, by its name) and exit.

    Bad input, broken promises and interrupts end in one line on stderr; an error of Mapveil's own is said to
    be one, with its traceback where ``MAPVEIL_TRACEBACK`` is set.
    """
    sys.exit(contextvars.copy_context().run(_status, arguments, command, name))


def _status(arguments: list[str] | None, command: click.Command, name: str) -> int:
    with interruptible() as came:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", CuratorWarning)
                warnings.showwarning = _show_warning
                result: Any = command.main(args=arguments, prog_name=name, standalone_mode=False)
            sys.stdout.flush()
        except (KeyboardInterrupt, click.exceptions.Abort) as error:
            return _interrupted(came[0] if came else signal.SIGINT, error)
        except Exception as error:
            return _interrupted(came[0], error) if came else _failed(error)
    return result if isinstance(result, int) else 0


def _interrupted(number: signal.Signals, ending: BaseException) -> int:
    """The line about a command that a signal ended; notes of the command say what was charged, where it knows more."""
    cause = ending.__cause__ or ending  # click's own exception hides it
    told = "; ".join(getattr(cause, "__notes__", ())) or _charged() or "nothing was charged"
    return _fail(f"interrupted; nothing more was written; {told}", 128 + number)


def _charged() -> str:
    """The note on what the command charged and did not write."""
    charges = sys.modules.get("mapveil.privacy.charges")  # without it nothing can have been charged
    return str(charges.charged_here()) if charges else ""


def _failed(failure: Exception) -> int:
    try:
        raise failure
    except MapveilError as error:
        return _fail(f"error: {_one_line(error)}", error.exit_code)
    except click.UsageError as error:
        if error.ctx is not None and error.message == error.ctx.get_help():  # no command was named
            click.echo(error.message, err=True)
            return error.exit_code
        hint = f" (see '{error.ctx.command_path} --help')" if error.ctx else ""
        return _fail(f"error: {error.format_message()}{_several(error)}{hint}", error.exit_code)
    except click.ClickException as error:
        return _fail(f"error: {error.format_message()}", error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has left; keep the interpreter from complaining at exit.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _fail(f"error: whoever read the output has left; {_charged()}", 141) if _charged() else 141
    except Exception as error:  # the outermost frame: a person must not meet a traceback
        if os.environ.get("MAPVEIL_TRACEBACK"):
            raise
        return _fail(
            f"internal error: {type(error).__name__}: {_one_line(error)} "
            "(a bug in mapveil; set MAPVEIL_TRACEBACK=1 to see where)",
            1,
        )


def _several(error: click.UsageError) -> str:
    """A hint on the way to give several files, where a command of one INPUT got more arguments."""
    inputs = [each for each in error.ctx.command.params if each.metavar == "INPUT"] if error.ctx else []
    if not inputs or "unexpected extra argument" not in error.message:
        return ""
    return (
        "; INPUT is one argument: give several files of one table as a pattern in quotes, such as 'visits-*.parquet', "
        "each once, for a file that is given twice is refused"
    )


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning on stderr, one of Mapveil's as the commands write theirs."""
    ours = issubclass(category, CuratorWarning)
    text = (
        f"mapveil: warning: {one_line(str(message), _LONGEST)}"
        if ours
        else warnings.formatwarning(message, category, filename, lineno)
    )
    click.echo(text, err=True)


def _one_line(error: BaseException) -> str:
    text = error.in_flags() if isinstance(error, MapveilError) else str(error)
    return one_line(text, _LONGEST) + _notes(error)


def _notes(error: BaseException | None) -> str:
    """The notes on an error: that epsilon was charged before it."""
    return "".join(f"; {note}" for note in getattr(error, "__notes__", ()))


def _fail(message: str, status: int) -> int:
    click.echo(f"mapveil: {printable(message)}", err=True)
    return status
