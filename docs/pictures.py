"""The pictures in the documentation, from committed records and from an example: `make pictures`.

Needs the dev extra and a Chromium (Debian: apt-get install chromium).
"""

from __future__ import annotations

import runpy
import shutil
import sys
import tempfile
from pathlib import Path

import made_pages
import matplotlib.pyplot
from PIL import Image
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


def draw(example: Path, picture: Path) -> None:
    """The figure of an example."""
    matplotlib.use("agg")
    runpy.run_path(str(example))
    matplotlib.pyplot.gcf().savefig(picture, dpi=110)


def shrink(picture: Path) -> None:
    """The same picture with 192 colours: a third of the bytes."""
    with Image.open(picture) as image:
        image.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = HERE.parent / "benchmarks" / "results"
        made_pages.report(*made_pages.read_records(results), results, Path(folder) / "report.html")
        photograph(Path(folder) / "report.html", HERE / "images" / "report.png")
    draw(HERE.parent / "examples" / "plot_1_decision_borders.py", HERE / "images" / "borders.png")
    for made in (HERE / "images").glob("*.png"):
        shrink(made)
