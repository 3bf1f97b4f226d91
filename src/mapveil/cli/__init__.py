"""The commands."""

__all__ = ["main"]


def main() -> None:
    """Run the command line; the process exits with 0, 1 (a failure) or 2 (bad input)."""
    from mapveil.cli.app import run

    run()
