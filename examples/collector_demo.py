"""A collection by two operators on one machine: a leader, a helper, 2,000 devices, the finished map in a page.

Run by ``make demo-collector``. Every device is one person of the example check-ins; it draws its own keys, divides its
contribution into secret shares, and sends one message over HTTP. On one machine nobody is kept apart: a real helper is
run by somebody else.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import numpy as np
import pyarrow.parquet as pq

CHECKINS = Path(__file__).parent / "checkins_nyc.parquet"
REGION = [-74.03, 40.69, -73.90, 40.83]
MAPVEIL = Path(sys.executable).with_name("mapveil")
PATIENCE_SECONDS = (
    900  # nobody goes silent here, so the reports are in when all have sent theirs, on a slow machine too
)
POLL_SECONDS = 0.1  # as often as the server reads a collection's progress
USUAL_PORT = 8321


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, default=Path("demo"), help="for the store, the log and the fleet"
    )
    parser.add_argument("--devices", type=int, default=2000)
    parser.add_argument("--port", type=int, help=f"{USUAL_PORT}, or a free one, by default")
    parser.add_argument("--exit", action="store_true", help="check the page and end, as without a terminal")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # ends the servers on its way
    stays = not (given.exit or os.environ.get("DEMO_EXIT") == "1") and sys.stdout.isatty()

    given.folder.mkdir(parents=True, exist_ok=True)
    store, other = given.folder / "collector.sqlite", given.folder / "helper.sqlite"
    for old in (*given.folder.glob("collector.sqlite*"), *given.folder.glob("helper.sqlite*")):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    shared = given.folder / "peer.key"
    shared.unlink(missing_ok=True)
    shared.touch(mode=0o600)
    shared.write_text(secrets.token_hex(32), encoding="utf-8")
    fleet = write_fleet(given.folder / "fleet.parquet", given.devices)
    token = run_serve(store, "--new-operator", "operator:demo")
    helps = ("--operator", "helper", "--peer-key", shared)
    with (
        serving(other, free_port(0), given.folder / "helper.log", *helps) as helper,
        serving(
            store,
            given.port or free_port(),
            given.folder / "collector.log",
            *("--operator", "leader", "--peer-key", shared, "--peer", helper),
        ) as address,
    ):
        client = httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=30)
        with client:
            identifier = open_collection(client, given.devices)
            page = f"{address}/#token={token}&/collections/{identifier}"
            say(f"A collection of {given.devices:,} devices is open. Watch it, if you like, at\n  {page}")
            run_fleet(client, identifier, fleet, given.devices, helper_key(given.folder / "helper.log"))
            check(client, identifier, page)
        if stays:
            say(f"\nThe map is at\n  {page}\nCtrl-C ends the servers.")
            wait_for_interrupt()
        else:
            say(
                "\nThe page answers, and so does the map. On a terminal the servers stay, for you to look at it."
            )


def write_fleet(path: Path, devices: int) -> Path:
    """The rows of some people of the example, drawn at random: each of them is one device."""
    table = pq.read_table(CHECKINS)
    users = table["user_id"].to_numpy()
    chosen = np.random.default_rng(7).choice(np.unique(users), devices, replace=False)
    pq.write_table(table.filter(np.isin(users, chosen)), path)
    return path


def open_collection(
    client: httpx.Client, devices: int, title: str = "Check-ins in Manhattan", epsilon: str = "1"
) -> str:
    """The identifier of a collection that devices may join."""
    draft = {
        "title": title,
        "trust": "operators",
        "epsilon": epsilon,
        "region": REGION,
        "tiling": "quadtree:5",
        "devices": devices,
        "join_seconds": PATIENCE_SECONDS,
    }
    identifier = str(ask(client, "POST", "/v1/collections", draft)["id"])
    ask(client, "POST", f"/v1/collections/{identifier}/open")
    return identifier


def helper_key(log: Path) -> str:
    """The helper's key, as it says when it starts: a device's owner has it from the helper, never from the leader."""
    found = re.search(r"of two operators; its key: ([0-9a-f]{64})", log.read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit(f"the helper does not say its key in {log}")
    return found[1]


def run_fleet(client: httpx.Client, identifier: str, fleet: Path, devices: int, helper: str) -> None:
    """Let the devices come and report, until the collection is done."""
    enrolment = ask(client, "POST", "/v1/enrolment-tokens", {"name": "demo fleet", "uses": devices})["token"]
    command = ["device", "--fleet", fleet, "--server", client.base_url, "--collection", identifier]
    command += ["--helper", helper]
    # A progress bar on a terminal, a line for every step elsewhere.
    told = [] if sys.stderr.isatty() else ["-v"]
    with subprocess.Popen(
        [MAPVEIL, *map(str, command), *told], env={**os.environ, "MAPVEIL_ENROL": enrolment}
    ) as run:
        waited = watch(client, identifier, run)
    record = ask(client, "GET", f"/v1/collections/{identifier}")
    if run.returncode or record["state"] != "done":
        raise SystemExit(f"the collection is {record['state']}: {record['reason']}")
    account = ask(client, "GET", f"/v1/collections/{identifier}/account")
    spent = float(Fraction(record["spent"]))
    say(f"Done: epsilon {spent:.6g} spent; {account['accepted']:,} of {devices:,} devices in the sums.")
    say(f"From the last report to the map: {waited:.1f} s.")


def watch(client: httpx.Client, identifier: str, fleet: subprocess.Popen[bytes]) -> float:
    """Seconds from the last report to the map, to 0.2 s; until the fleet or the collection ends."""
    last = None
    while True:
        gone = fleet.poll() is not None
        progress = ask(client, "GET", f"/v1/collections/{identifier}/progress")
        now = time.monotonic()
        if last is None and (progress["state"] != "open" or progress["present"] >= progress["wanted"]):
            last = now
        if gone or progress["state"] in ("done", "aborted"):
            return now - (now if last is None else last)
        time.sleep(POLL_SECONDS)


def ask(client: httpx.Client, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """One request of an operator; its error's words on failure."""
    answer = client.request(method, path, json=body)
    if answer.is_error:
        raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text}")
    return answer.json() if answer.content else None


def check(client: httpx.Client, identifier: str, page: str) -> None:
    """Check that the page, all it loads, and the map answer."""
    answers = [client.get(page.partition("#")[0]), client.get(f"/v1/collections/{identifier}/map")]
    for path in sorted(set(re.findall(r"(?:src|href)=\"([^\"#:]+)\"", answers[0].text))):
        answers.append(client.get(urljoin(str(answers[0].url), path)))
    for answer in answers:
        if answer.is_error:
            raise SystemExit(f"{answer.request.url} answers {answer.status_code}")


def run_serve(store: Path, *options: str) -> str:
    """Output of ``mapveil serve`` with these options."""
    command: Sequence[Any] = [MAPVEIL, "serve", "--store", store, *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def serving(store: Path, port: int, log: Path, *options: Any) -> Iterator[str]:
    """A server for as long as the block runs; its address."""
    address = f"http://127.0.0.1:{port}"
    with log.open("wb") as lines:
        command: Sequence[Any] = [
            MAPVEIL,
            "serve",
            "--store",
            store,
            "--port",
            str(port),
            "--enrol-minute",
            "0",
            *options,
        ]
        # A session of its own: Ctrl-C is for this program, which then ends the server in good order.
        server = subprocess.Popen(command, stdout=lines, stderr=lines, start_new_session=True)
        try:
            wait_until_healthy(server, address, log)
            yield address
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def wait_until_healthy(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Return once the server answers; end with its log where it does not."""
    for _ in range(300):
        try:
            if httpx.get(f"{address}/healthz").is_success:
                return
        except httpx.TransportError:
            pass
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit(f"the server does not answer; {log} says:\n{log.read_text(encoding='utf-8')}")


def free_port(wanted: int = USUAL_PORT) -> int:
    """A port, or another where that is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SystemExit("no port is free")


def wait_for_interrupt() -> None:
    """Do nothing until Ctrl-C."""
    try:
        signal.pause()
    except KeyboardInterrupt:
        say("")


def say(line: str) -> None:
    """A line at once, before what the commands print themselves."""
    print(line, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
