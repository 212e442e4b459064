"""The pictures of the README: `make pictures` runs the quick experiments and photographs their report.

Needs the dev extra and a Chromium (Debian: apt-get install chromium).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parent / "images"


def open_page(browser: Browser, report: Path, width: int, height: int, scheme: Any) -> Page:
    """The report in a window of the given size."""
    page = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1.5
    ).new_page()
    page.goto(report.as_uri())
    return page


def photograph(report: Path) -> None:
    """Three views of the report: its top, one experiment, and a phone in the dark."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium on this machine (Debian: apt-get install chromium)")
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = open_page(browser, report, 1180, 860, "light")
        page.screenshot(path=IMAGES / "report.png")
        page.add_style_tag(content="nav, #randomized-mnist-solvers details { display: none }")
        page.locator("#randomized-mnist-solvers").screenshot(path=IMAGES / "experiment.png")
        page = open_page(browser, report, 390, 844, "dark")
        page.locator("#prototypes-mnist-whole").scroll_into_view_if_needed()
        page.evaluate("document.querySelector('#prototypes-mnist-whole').scrollIntoView()")
        page.wait_for_timeout(800)
        page.screenshot(path=IMAGES / "phone.png")
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gramless", "reproduce", "all", "--quick", "--out", folder]
        subprocess.run(command, check=True)
        photograph(Path(folder) / "report.html")
