"""The image's Dockerfile: what it copies is there, what it installs is what the tests ran with, what it runs works."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Keyword and arguments of each instruction."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line]


def argument(keyword: str) -> str:
    return next(given for found, given in reversed(instructions()) if found == keyword)


def locked(name: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([\w.+]+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}


def test_it_copies_what_the_wheel_target_makes_and_the_ignore_file_lets_through() -> None:
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().split()
    copied = [
        source
        for keyword, given in instructions()
        if keyword == "COPY" and "--from" not in given
        for source in given.split()[:-1]
    ]
    assert copied == ["requirements/service.lock", "build/wheel/*.whl"]
    assert ignored == ["*", *(f"!{source}" for source in copied)]
    assert (ROOT / copied[0]).is_file()
    assert "WHEEL := build/wheel\n" in (ROOT / "Makefile").read_text()


def test_its_packages_are_those_of_the_tests_and_all_that_serving_and_every_export_need() -> None:
    service, tested = locked("service.lock"), locked("dev.lock")
    assert service.items() <= tested.items()
    wanted, seen = {("mapveil", extra) for extra in ("service", "geo", "viz")}, set()
    while wanted:
        name, extra = wanted.pop()
        seen.add((name, extra))
        assert name == "mapveil" or name in service, f"{name} is not in service.lock"
        try:
            found = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:  # of another platform or Python
            continue
        for each in found:
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                named = canonicalize_name(each.name)
                wanted |= {(named, "")} | {(named, more) for more in each.extras}
        wanted -= seen


def test_its_base_is_pinned_and_its_user_is_not_root() -> None:
    (base,) = {given for keyword, given in instructions() if keyword == "ARG"}
    assert re.fullmatch(r"PYTHON=python:3\.\d+\.\d+-slim-\w+", base)
    assert all(given.startswith("${PYTHON}") for keyword, given in instructions() if keyword == "FROM")
    assert int(argument("USER")) > 0


def test_its_entry_point_is_the_server() -> None:
    command = json.loads(argument("ENTRYPOINT"))
    assert command == ["mapveil", "serve"]
    run = [sys.executable, "-m", *command, "--help"]
    assert "Run the collection server" in subprocess.run(run, capture_output=True, text=True).stdout


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_its_health_check_tells_a_service_that_works(status: int, code: int, live: Any) -> None:
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    from mapveil.collector.http.settings import Settings

    app = Starlette(routes=[Route("/healthz", lambda _: Response(status_code=status))])
    kind, given = argument("HEALTHCHECK").split("CMD ", 1)
    assert shlex.split(kind)
    with live(app, Settings()) as address:
        command = [part.replace("http://127.0.0.1:8321", address) for part in json.loads(given)]
        done = subprocess.run([sys.executable, *command[1:]], capture_output=True)
    assert done.returncode == code
