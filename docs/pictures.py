"""The pictures in the documentation, from committed records and from an example: `make pictures`, or some of them by name.

Needs the dev extra and a Chromium (Debian: apt-get install chromium).
"""

from __future__ import annotations

import json
import runpy
import shutil
import sys
import tempfile
from pathlib import Path

import made_pages
import matplotlib.pyplot
from matplotlib.figure import Figure
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


def curve(records: Path, picture: Path) -> None:
    """Seconds to fit against rows, of a hard problem and an easy one (`benchmarks/svm_cpu.py --curve`)."""
    found = json.loads(records.read_text(encoding="utf-8"))["records"]
    titles = {"noisy": "hard: a third of all rows are support vectors", "clean": "easy: no label is wrong"}
    looks = {
        "scikit-learn-intelex": ("tab:orange", "o", "SVC of scikit-learn-intelex"),
        "gramless": ("tab:blue", "s", "KernelSVC"),
        "gramless LSSVC": ("tab:green", "^", "LSSVC"),
    }
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axis, (case, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        for method, (colour, marker, label) in looks.items():
            line = sorted((r["n_train"], r["fit_cpu_seconds"]) for r in found if (r["case"], r["method"]) == (case, method))
            axis.plot(*zip(*line, strict=True), color=colour, marker=marker, markersize=4, label=label)
        axis.set(xscale="log", yscale="log", title=title, xlabel="training rows")
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("processor seconds to fit")
    figure.axes[0].legend(frameon=False)
    figure.savefig(picture, dpi=110)


def shrink(picture: Path) -> None:
    """The same picture with 192 colours: a third of the bytes."""
    with Image.open(picture) as image:
        image.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(picture, optimize=True)


def main(wanted: list[str]) -> None:
    """Draw the pictures that are asked for by name, or all."""
    results, images = HERE.parent / "benchmarks" / "results", HERE / "images"
    wanted = wanted or ["report", "borders", "svm_curve"]
    if "report" in wanted:
        with tempfile.TemporaryDirectory() as folder:
            made_pages.report(*made_pages.read_records(results), results, Path(folder) / "report.html")
            photograph(Path(folder) / "report.html", images / "report.png")
    if "borders" in wanted:
        draw(HERE.parent / "examples" / "plot_1_decision_borders.py", images / "borders.png")
    if "svm_curve" in wanted:
        curve(results / "svm_curve.json", images / "svm_curve.png")
    for name in wanted:
        shrink(images / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
