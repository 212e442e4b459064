"""Requirements of a release: valid links, consistent citations of papers, one version number."""

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import gramless
from gramless.images import PatchDictionary
from gramless.papers.experiments.declarations import PAPERS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
MADE = {"guide.md", "papers.md", "performance.md", "gallery/index", "reference/gramless.kernels.rst"}  # by `make docs`
ESTIMATORS = [name for name in gramless.__all__ if name != "__version__"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in MADE], ids=lambda path: path.name)
def test_links_to_files_are_valid(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    lost = [
        link
        for link in links
        if not link.startswith(("http", "mailto")) and link not in MADE and not (page.parent / link).exists()
    ]
    assert not lost


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimator_links_to_reference_page(name):
    made = getattr(gramless, name)
    if not (inspect.isclass(made) and issubclass(made, BaseEstimator)):
        pytest.skip("no estimator")
    estimator = made.__new__(made)
    assert estimator._get_doc_link().endswith(f"/reference/generated/gramless.{name}.html")


def test_transformer_links_to_module_page():
    assert PatchDictionary()._get_doc_link().endswith("/reference/generated/gramless.images.PatchDictionary.html")


def test_documentation_has_one_address():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    reference = importlib.import_module("gramless._core.constraints")
    assert reference.DOCUMENTATION.startswith(urls["Documentation"])


@pytest.mark.parametrize("paper", PAPERS.values(), ids=list(PAPERS))
def test_papers_are_cited_in_readme_and_citation_file(paper):
    for place in ("README.md", "CITATION.cff"):
        text = " ".join((ROOT / place).read_text(encoding="utf-8").split())
        assert paper.title in text, place
        assert all(author.split()[-1] in text for author in paper.authors), place


def test_oldest_constraints_equal_lowest_allowed_versions():
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    allowed = dict(requirement.split(">=") for requirement in needed)
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    tried = dict(line.split("==") for line in lines if "==" in line)
    assert set(tried) == set(allowed)
    for name, version in allowed.items():
        assert (tried[name] + ".").startswith(version + "."), name


def test_at_least_ten_examples_with_figures():
    examples = sorted((ROOT / "examples").glob("plot_*.py"))
    assert len(examples) == 10
    for example in examples:
        text = example.read_text(encoding="utf-8")
        assert "plt.show()" in text
        compile(text, example.name, "exec")


def test_documented_types_contain_no_accidental_links():
    """In reStructuredText, a word with a trailing underscore outside of backticks is a link."""
    types = re.compile(r"^ +\w+ : .*[( ]\w+_[,)]", re.MULTILINE)
    found = {path.name: types.findall(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_version_is_consistent():
    version = gramless.__version__
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    dated = re.search(
        rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M
    )
    assert dated
    assert f"date-released: {dated.group(1)}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
