"""Draws the images of the documentation from committed records and an example: `make pictures`.

Names given as arguments select images. Needs the dev extra and Chromium (Debian: apt-get install chromium).
"""

from __future__ import annotations

import json
import runpy
import shutil
import sys
import tempfile
from pathlib import Path

import generated_pages
import matplotlib.pyplot
from matplotlib.figure import Figure
from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent


def screenshot(report: Path, picture: Path) -> None:
    """Save a screenshot of the top of the report."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1280, "height": 860}, device_scale_factor=1.25).new_page()
        page.goto(report.as_uri())
        page.screenshot(path=picture)
        browser.close()


def draw(example: Path, picture: Path) -> None:
    """Save the figure of an example."""
    matplotlib.use("agg")
    runpy.run_path(str(example))
    matplotlib.pyplot.gcf().savefig(picture, dpi=110)


def curve(records: Path, picture: Path) -> None:
    """Plot fit time against the number of rows for two problems (records of `benchmarks/svm_cpu.py --curve`)."""
    found = json.loads(records.read_text(encoding="utf-8"))["records"]
    titles = {"noisy": "hard: a third of all rows are support vectors", "clean": "easy: no label is wrong"}
    styles = {
        "scikit-learn-intelex": ("tab:orange", "o", "SVC of scikit-learn-intelex"),
        "gramless": ("tab:blue", "s", "KernelSVC"),
        "gramless LSSVC": ("tab:green", "^", "LSSVC"),
    }
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axis, (case, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        for method, (color, marker, label) in styles.items():
            line = sorted((r["n_train"], r["fit_cpu_seconds"]) for r in found if (r["case"], r["method"]) == (case, method))
            axis.plot(*zip(*line, strict=True), color=color, marker=marker, markersize=4, label=label)
        axis.set(xscale="log", yscale="log", title=title, xlabel="training rows")
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("processor seconds to fit")
    figure.axes[0].legend(frameon=False)
    figure.savefig(picture, dpi=110)


def shrink(picture: Path) -> None:
    """Reduce an image to 192 colors, which takes a third of the bytes."""
    with Image.open(picture) as image:
        image.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(picture, optimize=True)


def main(names: list[str]) -> None:
    """Draw the images with the given names, or all."""
    results, images = HERE.parent / "benchmarks" / "results", HERE / "images"
    names = names or ["report", "borders", "svm_curve"]
    if "report" in names:
        with tempfile.TemporaryDirectory() as folder:
            generated_pages.report(*generated_pages.read_records(results), results, Path(folder) / "report.html")
            screenshot(Path(folder) / "report.html", images / "report.png")
    if "borders" in names:
        draw(HERE.parent / "examples" / "plot_1_decision_borders.py", images / "borders.png")
    if "svm_curve" in names:
        curve(results / "svm_curve.json", images / "svm_curve.png")
    for name in names:
        shrink(images / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
