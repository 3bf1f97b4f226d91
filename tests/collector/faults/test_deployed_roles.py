"""Everything that ``deploy/`` starts: its commands and settings, accepted by the program and run as processes.

There is no Docker daemon and no systemd here: commands and environments are taken from their files, and run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
import yaml

from mapveil.cli.serve import command as serve
from mapveil.collector.http.settings import SETTINGS, Settings
from mapveil_client.errors import InputError
from tests.authority import NAMED

from .outcome import outcome_of
from .scene import UNLIMITED, Running, Scene, Service, free_port, until
from .test_postgresql import ADAPTIVE

DEPLOY = Path(__file__).parents[3] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = {name: one for name, one in COMPOSE["services"].items() if one["image"].startswith("mapveil:")}
UNIT = (DEPLOY / "systemd" / "mapveil@.service").read_text()
ROLES = ("all", "intake", "worker", "conductor")


def settings_of(arguments: list[str], environment: dict[str, str]) -> Settings:
    """Settings as the program reads them; unknown options and variables are refused."""
    context = click.Context(serve)
    given, left, _ = serve.make_parser(context).parse_args(args=list(arguments))
    assert not left
    known = {row.variable for row in SETTINGS}
    assert {name for name in environment if name.startswith("MAPVEIL_")} <= known
    names = {row.name: row for row in SETTINGS}
    assert given.keys() <= names.keys()
    values = {name: row.read(text) if (row := names[name]).number else text for name, text in given.items()}
    return Settings.read(environment, values)


def variables(file: str) -> dict[str, str]:
    lines = (DEPLOY / "systemd" / file).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("action", ["--upgrade", "--restored"])
def test_what_is_done_to_a_store_that_intake_refuses_starts_no_intake(action: str) -> None:
    page = (DEPLOY.parent / "docs" / "how-to" / "million-phones.md").read_text(encoding="utf-8")
    lines = [line for line in re.findall(r"docker compose run [^`\n]+", page) if action in line]
    assert lines
    assert all(" --no-deps " in line for line in lines)


def test_the_composition_is_the_one_that_is_promised() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"postgres", "intake", "worker", "conductor", "proxy"}
    assert [name for name, one in services.items() if "ports" in one] == ["proxy"]
    assert OURS["worker"]["deploy"]["replicas"] == 2
    assert all(re.search(r":[\d.]*\d", one["image"]) for one in services.values())  # none is "latest"
    for name, one in OURS.items():
        assert settings_of(one["command"], one["environment"]).role == name
        assert one["read_only"]
        assert one["cap_drop"] == ["ALL"]
        assert "user" not in one  # the image's own, which is not root
        assert one["environment"]["MAPVEIL_EXPORTS"].startswith(one["volumes"][0].partition(":")[2])
    assert "front" not in {net for name in ("worker", "conductor") for net in OURS[name]["networks"]}
    assert COMPOSE["networks"]["inner"]["internal"]
    for name, one in services.items():
        assert set(one.get("secrets", [])) <= set(COMPOSE["secrets"]), name
        assert set(one["networks"]) <= set(COMPOSE["networks"]), name
        for other in one.get("depends_on", {}):
            assert other in services
            # Waited for until it is healthy: its own check, or the image's.
            assert other == "intake" or "healthcheck" in services[other]
    assert "MAPVEIL_TRUSTED_PROXIES" not in OURS["intake"]["environment"]
    subnet = COMPOSE["networks"]["front"]["ipam"]["config"][0]["subnet"]
    assert settings_of(OURS["intake"]["command"], OURS["intake"]["environment"]).trusted_proxies == subnet


@pytest.mark.parametrize("file", ["compose.yaml", "systemd/collector.env"])
def test_an_authority_of_another_party_has_its_place_instead_of_the_key(file: str) -> None:
    text = (DEPLOY / file).read_text()
    named = re.sub(r"^(\s*)# (MAPVEIL_)", r"\1\2", text, flags=re.M).replace("POPULATION:KEY", str(NAMED))
    if file == "compose.yaml":
        environment = yaml.safe_load(named)["services"]["intake"]["environment"]
    else:
        environment = dict(line.split("=", 1) for line in named.splitlines() if re.match(r"\w+=", line))
    with pytest.raises(InputError, match="exclude each other"):
        settings_of([], environment)
    del environment["MAPVEIL_AUTHORITY_KEY"]
    found = settings_of([], environment)
    assert (found.authority, found.revocation_list) == (str(NAMED), "/var/lib/mapveil/list.cbor")


def test_no_secret_is_in_a_file_or_in_an_environment() -> None:
    assert all(each["file"].startswith("./secrets/") for each in COMPOSE["secrets"].values())
    assert not (DEPLOY / "secrets").exists()
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            assert not re.search(r"(?i)password\s*[:=]\s*(?![/{])\S|://\w+:\w+@", path.read_text()), path


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
@pytest.mark.parametrize("domain", ["maps.example.org", None])
def test_compose_reads_it_with_a_domain_and_refuses_it_without(domain: str | None, tmp_path: Path) -> None:
    # The first version, which Debian has, knows no name of the whole.
    (tmp_path / "compose.yaml").write_text(
        re.sub(r"^name: .*\n", "", (DEPLOY / "compose.yaml").read_text(), flags=re.M)
    )
    lines = ["MAPVEIL_POPULATION=bikes.example", *([f"MAPVEIL_DOMAIN={domain}"] if domain else [])]
    (tmp_path / ".env").write_text("\n".join(lines) + "\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAPVEIL_")}
    command = ["docker-compose", "-f", "compose.yaml", "config"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    if domain is None:
        assert done.returncode != 0
        assert "the name that phones reach this machine by" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert services["proxy"]["environment"] == {"MAPVEIL_DOMAIN": domain}
    assert {services[name]["environment"]["MAPVEIL_POPULATION"] for name in OURS} == {"bikes.example"}


@pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")
@pytest.mark.parametrize("intakes", ["intake:8321", "10.0.0.2:8321 10.0.0.3:8321"])
def test_caddy_serves_the_domain_by_tls_and_reaches_every_intake(intakes: str) -> None:
    environment = os.environ | {"MAPVEIL_DOMAIN": "maps.example.org"}
    if " " in intakes:
        environment["MAPVEIL_INTAKE"] = intakes
    command = ["caddy", "adapt", "--config", DEPLOY / "Caddyfile", "--adapter", "caddyfile", "--validate"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (server,) = json.loads(done.stdout)["apps"]["http"]["servers"].values()
    assert server["listen"] == [":443"]
    (site,) = server["routes"]
    assert site["match"] == [{"host": ["maps.example.org"]}]
    dialled = re.findall(r'"dial": ?"([^"]+)"', done.stdout)
    assert dialled == intakes.split()


@pytest.mark.parametrize("role", ROLES)
def test_every_unit_starts_with_settings_that_are_accepted(role: str) -> None:
    command = shlex.split(re.search(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)[1].replace("%i", role))
    assert command[1:3] == ["serve", "--role"]
    environment = variables("collector.env")
    if role == "all":
        environment = {"MAPVEIL_STORE": "/var/lib/mapveil/store.sqlite"}
    if (DEPLOY / "systemd" / f"{role}.env").exists():
        environment |= variables(f"{role}.env")
    assert settings_of(command[2:], environment).role == role


def test_units_of_one_machine_have_ports_of_their_own() -> None:
    ports = [
        settings_of(["--role", role], variables("collector.env") | variables(f"{role}.env")).port
        for role in ROLES[1:]
    ]
    assert len(set(ports)) == 3


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit_and_finds_it_well_confined(tmp_path: Path) -> None:
    path = tmp_path / "mapveil@.service"
    path.write_text(UNIT.replace("/opt/mapveil/bin/mapveil", sys.executable))
    verified = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
    assert "mapveil" not in verified.stderr, verified.stderr
    # 0 is a unit that may do nothing, 10 one that may do everything.
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", path]
    assert subprocess.run(command, capture_output=True).returncode == 0


@contextlib.contextmanager
def proxied(intake: Service, folder: Path) -> Iterator[str]:
    """The address of Caddy before an intake, with the file of ``deploy/``; without Caddy the intake's own."""
    program = shutil.which("caddy")
    if program is None:
        yield intake.url
        return
    port = free_port()
    environment = os.environ | {
        "MAPVEIL_DOMAIN": f"http://127.0.0.1:{port}",  # without TLS: no authority signs for a machine of tests
        "MAPVEIL_INTAKE": f"127.0.0.1:{intake.port}",
        "XDG_DATA_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    config = folder / "Caddyfile"
    config.write_text("{\n\tadmin off\n}\n" + (DEPLOY / "Caddyfile").read_text())
    command = [program, "run", "--config", str(config), "--adapter", "caddyfile"]
    with (folder / "caddy.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            proxy = Running(process.pid, folder / "caddy.log")

            def answers() -> bool:
                with contextlib.suppress(httpx.TransportError):
                    return httpx.get(f"http://127.0.0.1:{port}/metrics").status_code == 404
                return False

            until(answers, f"the proxy answers: {proxy.log.read_text()}", 60)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


@pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")
@pytest.mark.parametrize("file", ["all.env", "intake.env"])
def test_a_unit_behind_the_proxy_limits_each_phone_apart(scene: Scene, tmp_path: Path, file: str) -> None:
    """By the address that the proxy forwards; else all phones would share one allowance. They keep to TLS."""
    trusted = settings_of([], variables(file)).trusted_proxies
    limits = ("--address-rate", "1", "--address-burst", "3")
    service = scene.service("--trusted-proxies", trusted, *limits)

    def phone(address: str) -> httpx.Client:
        return httpx.Client(base_url=proxy, transport=httpx.HTTPTransport(local_address=address))

    with proxied(service, tmp_path) as proxy, phone("127.0.0.2") as first, phone("127.0.0.3") as second:
        until(lambda: first.get("/v1/open").status_code == 429, "one phone has used up its allowance")
        answer = second.get("/v1/open")
    assert answer.status_code == 200
    assert int(answer.headers["Strict-Transport-Security"].removeprefix("max-age=")) >= 180 * 86_400


def test_the_services_of_the_composition_run_a_collection(postgresql_scene: Scene, tmp_path: Path) -> None:
    """PostgreSQL, the proxy, one intake, two workers and one conductor, with the arguments of the file."""
    scene, services = postgresql_scene, {}
    exports = ("--exports", str(tmp_path / "exports"))
    for name, one in OURS.items():
        for number in range(one.get("deploy", {}).get("replicas", 1)):
            services[f"{name} {number}"] = scene.service(*one["command"], *exports, *UNLIMITED)
    assert len(services) == 4
    intake = services["intake 0"]
    with proxied(intake, tmp_path) as address:
        collection = scene.open(intake, **ADAPTIVE)
        scene.fleet(address, collection, range(16)).wait()
        until(lambda: scene.progress(intake, collection)["state"] == "done", "it has ended")
        if address != intake.url:
            assert httpx.get(f"{address}/metrics").status_code == 404
            assert httpx.get(f"{address}/v1/open").status_code == 200
    for service in services.values():
        assert httpx.get(f"{service.url}/metrics").status_code == 200
        assert httpx.get(f"{service.url}/healthz").status_code == 200
    found = outcome_of(scene, intake, collection)
    assert (found.state, found.included) == ("done", (16, 16))
