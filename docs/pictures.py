"""The picture of the report in the documentation, from committed records: `make pictures`.

Needs the dev extra and a Chromium (Debian: apt-get install chromium).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import made_pages
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent


def photograph(report: Path, picture: Path) -> None:
    """The top of the report."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium on this machine (Debian: apt-get install chromium)")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1280, "height": 860}, device_scale_factor=1.25).new_page()
        page.goto(report.as_uri())
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = HERE.parent / "benchmarks" / "results"
        made_pages.report(*made_pages.read_records(results), results, Path(folder) / "report.html")
        photograph(Path(folder) / "report.html", HERE / "images" / "report.png")
