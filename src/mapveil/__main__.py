"""``python -m mapveil``: the same as the ``mapveil`` command."""

from mapveil.cli import main

if __name__ == "__main__":
    main()
