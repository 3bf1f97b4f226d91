"""Run the study: ``python -m simulations.traffic --help``."""

from mapveil.cli.app import run
from simulations.traffic.command import command

if __name__ == "__main__":
    run(command=command, name="python -m simulations.traffic")
