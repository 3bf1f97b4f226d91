"""Time the tasks of the first hour: every command of the README and of the first tutorial, run in a fresh clone.

The clone has no environment, and its shell has the folders of the system and of Python on its path. Packages come from
the index of pip's configuration, so the time of installation is also that of a network.

    python -m benchmarks.first_hour --page docs/tutorial/first-map.md
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = "docs/tutorial/first-map.md"
_OWN_MAP = "Release a map of your own table"


def blocks(page: Path) -> list[tuple[str, str]]:
    """The heading and the commands of each console block of a page."""
    found, heading = [], ""
    text = page.read_text(encoding="utf-8")
    for title, commands in re.findall(r"^## (.*)|^```console\n([\s\S]*?)```", text, flags=re.MULTILINE):
        heading = title or heading
        if commands:
            found.append((heading, re.sub(r"^\$ ", "", commands, flags=re.MULTILINE)))
    return found


def timed(clone: Path, tasks: list[tuple[str, str]], home: Path) -> list[tuple[str, float]]:
    """Seconds of each task, run by one shell in the clone."""
    python = Path(shutil.which("python3") or sys.executable).parent
    passed = {
        key: value for key, value in os.environ.items() if key.startswith("PIP_") or "proxy" in key.lower()
    }
    environment = {"HOME": str(home), "PATH": f"{python}:/usr/bin:/bin", "DEMO_EXIT": "1", **passed}
    shell = subprocess.Popen(
        ["bash", "-e"], cwd=clone, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert shell.stdin is not None
    assert shell.stdout is not None
    seconds = []
    with shell:
        for heading, commands in tasks:
            start = time.perf_counter()
            shell.stdin.write(f"{{\n{commands}\n}} >&2\necho done\n")
            shell.stdin.flush()
            if shell.stdout.readline() != "done\n":
                raise SystemExit(f"first hour: a command failed under {heading!r}:\n{commands}")
            seconds.append((heading, time.perf_counter() - start))
        shell.stdin.close()
    return seconds


def in_words(seconds: list[tuple[str, float]]) -> str:
    """The measurement as a sentence and a table."""
    names = [name.partition(". ")[2] for name, _ in seconds]
    own = sum(each for _, each in seconds[: names.index(_OWN_MAP) + 1])
    total = sum(each for _, each in seconds)
    rows = "\n".join(f"| {name} | {each:.1f} |" for name, (_, each) in zip(names, seconds, strict=True))
    return (
        f"Measured once by `python -m benchmarks.first_hour --page {TUTORIAL}` in a fresh clone on {os.cpu_count()} "
        f"cores (Python {platform.python_version()}): the map of your own table is there after {own / 60:.1f} minutes, "
        f"installation included; all twelve tasks take {total / 60:.1f}.\n\n"
        f"| task | seconds |\n|---|---|\n{rows}\n"
    )


def main() -> None:
    """Clone, run, and write the figures into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", type=Path, help="the page that holds the figures between its marks")
    parser.add_argument(
        "--readme", action="store_true", help="run the README's commands instead (many minutes)"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone, home = Path(folder, "mapveil"), Path(folder, "home")
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        tasks = blocks(clone / ("README.md" if given.readme else TUTORIAL))
        seconds = timed(clone, tasks, home)
    for heading, each in seconds:
        print(f"{each:8.1f} s  {heading}")
    if given.page is not None:
        text = given.page.read_text(encoding="utf-8")
        made = re.sub(
            r"(?<=<!-- measured -->\n).*?(?=<!-- end -->)", lambda _: in_words(seconds), text, flags=re.DOTALL
        )
        given.page.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
