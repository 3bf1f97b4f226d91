"""Make the pictures of reference/gallery.md by the commands that the page shows, into _static/gallery."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "reference" / "gallery.md"
PICTURES = DOCS / "_static" / "gallery"


def commands(page: Path) -> list[list[str]]:
    """The arguments of each command of Mapveil in a page's console blocks."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line for block in blocks for line in re.split(r"^\$ ", block, flags=re.MULTILINE)]
    return [shlex.split(line.replace("\\\n", " "))[1:] for line in lines if line.startswith("mapveil ")]


def main() -> None:
    """Run the commands in an empty folder, each with a ledger of its own, and keep the pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "examples").symlink_to(DOCS.parent / "examples")
        for number, arguments in enumerate(commands(PAGE)):
            environment = {**os.environ, "MAPVEIL_LEDGER": f"{folder}/{number}.sqlite"}
            subprocess.run(
                [sys.executable, "-m", "mapveil", *arguments], cwd=folder, env=environment, check=True
            )
        for picture in sorted(Path(folder).glob("*.png")):
            shutil.copy(picture, PICTURES)
            sys.stderr.write(f"wrote {PICTURES / picture.name}\n")


if __name__ == "__main__":
    main()
