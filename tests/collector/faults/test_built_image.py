"""The image of ``deploy/Dockerfile``, built, and a collection by the services of the composition that run from it.

Docker's registries are out of reach, so the base is Debian with its Python, made by debootstrap; buildah builds and
runs in a chroot, without cgroups and namespaces. Part of ``make faults``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..conftest import PostgresqlServer
from .outcome import outcome_of
from .scene import UNLIMITED, Running, Scene, Service, until
from .test_deployed_roles import DEPLOY, OURS, proxied
from .test_postgresql import ADAPTIVE

ROOT = DEPLOY.parent
BASE = "localhost/mapveil-test-base"
IMAGE = "localhost/mapveil-test"
TOOLS = ("buildah", "debootstrap")

pytestmark = [
    pytest.mark.skipif("MAPVEIL_IMAGE" not in os.environ, reason="`make faults` builds the image"),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, TOOLS)), reason="needs root, buildah and debootstrap"
    ),
]


def buildah(*arguments: str | Path) -> str:
    done = subprocess.run(["buildah", *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A container of the image; its storage goes with the test."""
    folder = tmp_path_factory.mktemp("image")
    settings = {
        "BUILDAH_ISOLATION": "chroot",
        "STORAGE_DRIVER": "vfs",
        "STORAGE_OPTS": "",
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    with pytest.MonkeyPatch.context() as environment:
        for name, value in settings.items():
            environment.setenv(name, value)
        system = folder / "debian"
        subprocess.run(
            [*("debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates"),
             "bookworm", system],
            check=True, capture_output=True,
        )  # fmt: skip
        (system / "usr/bin/python").symlink_to("python3")
        # What this machine needs to reach PyPI.
        for path in map(Path, ("/etc/ssl/certs/ca-certificates.crt", "/etc/resolv.conf", "/etc/pip.conf")):
            if path.exists():
                shutil.copy(path, system / path.relative_to("/"))
        scratch = buildah("from", "scratch")
        buildah("add", "-q", scratch, f"{system}/", "/")
        buildah("commit", "-q", "--rm", scratch, BASE)
        shutil.rmtree(ROOT / "build" / "wheel", ignore_errors=True)
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "build/wheel"],
            cwd=ROOT, check=True, capture_output=True,
        )  # fmt: skip
        buildah(
            *("bud", "--format", "docker", "--build-arg", f"PYTHON={BASE}", "-t", IMAGE),
            *("--ignorefile", "deploy/Dockerfile.dockerignore", "-f", "deploy/Dockerfile", "."),
        )
        yield buildah("from", IMAGE)
        shutil.rmtree(system)


class Contained(Service):
    """``mapveil serve`` in the container, as the image's user."""

    def __init__(self, container: str, mounts: list[Path], folder: Path, *arguments: str) -> None:
        super().__init__(None, "", folder, skew=None)  # of no process of the tests
        volumes = [part for path in mounts for part in ("--volume", f"{path}:{path}")]
        entry = [*("--user", "10001"), *volumes, container, "--", "mapveil", "serve"]
        self._command = ["buildah", "run", *entry, "--port", str(self.port), *UNLIMITED, *arguments]

    def start(self) -> Service:
        self.lives += 1
        log = self._folder / f"service-{self.port}.log"
        with log.open("a") as output:
            self._started = subprocess.Popen(
                self._command, stdout=output, stderr=output, start_new_session=True
            )
        self.process = Running(self._started.pid, log)
        until(self.answers, f"the service answers: {self.log[-2000:]}")
        return self

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.number, signal.SIGKILL)
            self._started.wait()
            self.process = None
            until(lambda: not self.answers(), "a killed service has left its port")


def test_the_services_of_the_composition_run_a_collection_from_the_image(
    container: str, postgresql: PostgresqlServer, postgresql_scene: Scene, tmp_path: Path
) -> None:
    scene, exports = postgresql_scene, tmp_path / "exports"
    exports.mkdir()
    postgresql.folder.chmod(0o755)
    for path in (exports, tmp_path / "authority.key"):
        os.chown(path, 10001, 10001)
    mounts = [postgresql.folder, exports, tmp_path / "authority.key"]
    given = (*scene.authority, "--store", scene.store, "--exports", str(exports))
    services = [
        Contained(container, mounts, tmp_path, *one["command"], *given)
        for one in OURS.values()
        for _ in range(one.get("deploy", {}).get("replicas", 1))
    ]
    intake = services[0]
    try:
        for service in services:
            service.start()
        with proxied(intake, tmp_path) as address:
            collection = scene.open(intake, **ADAPTIVE)
            scene.fleet(address, collection, range(16)).wait()
            until(lambda: scene.progress(intake, collection)["state"] == "done", "it has ended")
        for service in services:
            assert httpx.get(f"{service.url}/healthz").status_code == 200
        found = outcome_of(scene, intake, collection)
        assert (found.state, found.included) == ("done", (16, 16))
    finally:
        for service in services:
            service.kill()


def test_the_user_of_the_image_is_not_root_and_owns_nothing_that_runs(container: str) -> None:
    assert buildah("run", container, "--", "id", "-u") == "10001"
    writable = buildah("run", container, "--", "find", "/opt", "/usr", "-writable", "-not", "-type", "l")
    assert writable == ""


def test_the_image_writes_a_map_in_the_formats_that_need_an_extra(container: str) -> None:
    code = (
        "import mapveil as mv; city = mv.synthetic.city(users=200, seed=1); "
        "heat = mv.release(city, mv.Quadtree(city.region, depth=3), epsilon=1); "
        "heat.save('/tmp/map.tif'); heat.save('/tmp/map.png')"
    )
    buildah("run", container, "--", "python", "-c", code)
