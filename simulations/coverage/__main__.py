"""Run the study: ``python -m simulations.coverage --help``."""

from mapveil.cli.app import run
from simulations.coverage.command import command

if __name__ == "__main__":
    run(command=command, name="python -m simulations.coverage")
