"""Pack the npm package ``mapveil-client``: the browser device's modules that it needs, its own files, the version.

Run as ``python packaging/npm/pack.py FOLDER``: writes ``mapveil-client-VERSION.tgz`` there, as ``npm pack`` would, and
prints its path. The same sources give the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OWN = Path(__file__).resolve().parent
MODULES = ROOT / "src" / "mapveil" / "collector" / "device_page"


def version() -> str:
    """The version of both packages, from its one place, in npm's writing."""
    source = (ROOT / "src" / "mapveil_client" / "__init__.py").read_text("utf-8")
    found = re.search(r'__version__ = "(\d+\.\d+\.\d+)([a-z.]+\d+)?"', source)
    if found is None:
        raise SystemExit("no version in mapveil_client/__init__.py")
    return found[1] + (f"-{found[2].lstrip('.')}" if found[2] else "")


def modules() -> list[str]:
    """The names of the modules that the package's own import, directly or not."""
    wanted = [
        name
        for path in OWN.glob("*.mjs")
        for name in re.findall(r'"\./lib/([^"]+)"', path.read_text("utf-8"))
    ]
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += re.findall(r'from "\./([^"]+)"', (MODULES / name).read_text("utf-8"))
    return sorted(found)


def contents() -> dict[str, bytes]:
    """Every file of the package, by its path."""
    made = {
        path.name: path.read_bytes()
        for path in sorted(OWN.iterdir())
        if path.suffix in (".mjs", ".ts", ".md")
    }
    record = json.loads((OWN / "package.json").read_text("utf-8"))
    made["package.json"] = json.dumps(
        {"name": record.pop("name"), "version": version()} | record, indent=2
    ).encode()
    made["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    return made | {f"lib/{name}": (MODULES / name).read_bytes() for name in modules()}


def pack(folder: Path) -> Path:
    """Write the package."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"mapveil-client-{version()}.tgz"
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, data in sorted(contents().items()):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python packaging/npm/pack.py FOLDER")
    sys.stdout.write(f"{pack(Path(sys.argv[1]))}\n")
