"""``mapveil signal``: coverage maps from measurements that phones privatize before they leave."""

from __future__ import annotations

import importlib

import click

_COMMANDS = {
    "fit": "Fit a privatizer on measurements of people who opted in.",
    "privatize": "Privatize a file of measurements as phones would.",
    "attack": "Measure what adversaries learn from a privatized file.",
    "tradeoff": "Draw privacy against utility for several privatizers.",
    "choose": "Choose parameters under constraints.",
    "map": "Map signal strength from measurements, privatized or not.",
}


class _LazySignal(click.Group):
    """Imports a subcommand's module only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"mapveil.cli.signal_{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group("signal", cls=_LazySignal)
def command() -> None:
    """Map coverage from phones that privatize each measurement before it leaves.

    \b
    Examples:
      mapveil signal fit pilot.parquet --privatizer gap --option rho=0.4 -o gap.mapveil
      mapveil signal privatize gap.mapveil measurements.parquet -o private.parquet
      mapveil signal attack private.parquet --truth measurements.parquet -o attack.html
      mapveil signal tradeoff measurements.parquet -o tradeoff/
      mapveil signal choose tradeoff/ --distortion-at-most 3
      mapveil signal map private.parquet --region 23.99,35.50,24.08,35.54 -o coverage.html
    """
