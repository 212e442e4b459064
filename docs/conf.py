"""Sphinx settings; `make docs` builds the documentation in docs/_build/html."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generated_pages  # noqa: E402

import gramless  # noqa: E402

project = "gramless"
author = "The gramless developers"
copyright = author
release = gramless.__version__
version = release

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
templates_path = ["_templates"]
nitpicky = True
# References to other projects are not resolved, so that the documentation builds without a network connection.
nitpick_ignore_regex = [(r"py:.*", r"(sklearn|numpy|scipy|torch|dask|pandas|onnx|fastapi)\b.*")]
default_role = "code"

# Types in docstrings are prose, so they are not converted to links.
autodoc_typehints = "none"
autodoc_inherit_docstrings = True
autosummary_generate = True
autosummary_ignore_module_all = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 4

html_theme = "pydata_sphinx_theme"
html_title = f"gramless {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_generated"]
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"papers": [], "performance": [], "index": []}
html_theme_options = {
    "logo": {"text": "gramless"},
    "show_prev_next": False,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "plot_gallery": "True",
    "abort_on_example_error": True,
    "show_memory": False,
    "min_reported_time": 20,
    "doc_module": ("gramless",),
    "backreferences_dir": None,
    "image_scrapers": ("matplotlib",),
    "show_signature": False,
}

generated_pages.write(HERE)


def skip_inherited_members(app, what, name, thing, skip, options):
    """Skip members inherited from scikit-learn, whose docstrings refer to pages that are not part of this site."""
    module = getattr(thing, "__module__", "") or ""
    return True if module.startswith("sklearn") or name.endswith("_request") else None


def setup(app):
    app.connect("autodoc-skip-member", skip_inherited_members)
