"""Make the pictures of how-to/console.md: two collections by two operators on this machine, seen by chromium.

Needs Debian's package chromium.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "_static" / "collector"
DEVICES = 5000
BUDGETS = {"Check-ins in Manhattan": "1", "The same at twice the budget": "2"}

sys.path.insert(0, str(DOCS.parent / "examples"))
import collector_demo as demo  # noqa: E402


@contextmanager
def operators(folder: Path) -> Iterator[tuple[httpx.Client, str]]:
    """A leader and its helper, until the block ends: an operator's client of the leader, and its token."""
    shared, store = folder / "peer.key", folder / "leader.sqlite"
    shared.touch(mode=0o600)
    shared.write_text("5a" * 32, encoding="utf-8")
    token = demo.run_serve(store, "--new-operator", "operator:Ada")
    helps = ("--operator", "helper", "--peer-key", shared)
    with demo.serving(folder / "helper.sqlite", demo.free_port(0), folder / "helper.log", *helps) as helper:
        leads = ("--operator", "leader", "--peer-key", shared, "--peer", helper)
        with (
            demo.serving(store, demo.free_port(0), folder / "leader.log", *leads) as address,
            httpx.Client(
                base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=300
            ) as client,
        ):
            yield client, token


def opened(browser: Browser, client: httpx.Client, place: str, *, ready: str, phone: bool = False) -> Page:
    """A page of the console, drawn."""
    size = {"width": 390, "height": 860} if phone else {"width": 1200, "height": 900}
    page = browser.new_page(viewport=size, color_scheme="dark" if phone else "light")
    page.goto(f"{client.base_url}{place}")
    page.locator(ready).wait_for(timeout=300_000)
    page.wait_for_load_state("networkidle")
    return page


def main() -> None:
    """Collect twice, and take the pictures."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        fleet = demo.write_fleet(folder / "fleet.parquet", DEVICES)
        with operators(folder) as (client, token):
            made = [demo.open_collection(client, DEVICES, title, each) for title, each in BUDGETS.items()]
            signed_in = f"/#token={token}&"
            page = opened(browser, client, f"{signed_in}/collections/{made[0]}", ready="progress")
            helper = demo.helper_key(folder / "helper.log")
            with ThreadPoolExecutor(1) as pool:
                fleets = [pool.submit(demo.run_fleet, client, each, fleet, DEVICES, helper) for each in made]
                page.wait_for_function(
                    "() => document.querySelector('progress')?.position > 0.5", timeout=300_000
                )
                page.screenshot(path=PICTURES / "console-running.png")
            for each in fleets:
                each.result()
            page = opened(browser, client, f"{signed_in}/collections/{made[0]}", ready="#map[data-ready=yes]")
            page.locator("#map").hover()
            page.screenshot(path=PICTURES / "console-map.png")
            page = opened(
                browser,
                client,
                f"{signed_in}/collections/{made[0]}",
                ready="#map[data-ready=yes]",
                phone=True,
            )
            page.screenshot(path=PICTURES / "console-phone.png")
            compared = f"{signed_in}/compare?left={made[0]}&right={made[1]}"
            page = opened(browser, client, compared, ready="#swipe[data-ready=yes]")
            page.screenshot(path=PICTURES / "console-compare.png")
        browser.close()


if __name__ == "__main__":
    main()
