"""The docstring of every public name is complete numpydoc; exported names are tested automatically.

Public are the names in `__all__` of the modules in `PUBLIC_MODULES`, and the public methods and properties that those
classes
define in this library. A method that overrides another without a docstring inherits the docstring of the class that declares
it, which is checked there: `Kernel.diag` documents every kernel. Internal code needs one sentence for each function.
"""

import importlib
import inspect
import re
from enum import Enum
from functools import cache
from pathlib import Path

import pytest
from numpydoc.validate import validate

ROOT = Path(__file__).parents[2]
PUBLIC_MODULES = (
    "gramless",
    "gramless.approximation.landmarks",
    "gramless.callbacks",
    "gramless.images",
    "gramless.kernels",
    "gramless.linalg.solvers",
)

CHECKED = {
    "GL02": "closing quotes have a line of their own",
    "GL03": "no double blank lines",
    "GL05": "no tabs",
    "GL06": "no section that numpydoc does not know",
    "GL07": "sections in numpydoc's order",
    "GL08": "there is a docstring",
    "SS01": "there is a summary",
    "SS02": "it starts with a capital letter",
    "SS03": "it ends with a full stop",
    "SS04": "it has no spaces in front",
    "SS06": "it fits on one line",
    "PR01": "every parameter is documented",
    "PR02": "nothing is documented that is no parameter",
    "PR03": "parameters stand in the order of the signature",
    "PR04": "every parameter has a type",
    "PR05": "a type does not end with a full stop",
    "PR07": "every parameter is described",
    "PR08": "its description starts with a capital letter",
    "PR09": "its description ends with a full stop",
    "PR10": "a space stands before the colon",
    "RT01": "what is returned is documented",
    "RT03": "and described",
    "RT04": "its description starts with a capital letter",
    "RT05": "its description ends with a full stop",
    "YD01": "what is yielded is documented",
}
# Left out: GL01 (the summary may follow the quotes, as everywhere in this library), GL09 (nothing is deprecated), SS05 (a
# summary may be a noun: "The rows of a file"), ES01 (one sentence is often enough), PR06 (a matter of spelling), RT02 (a
# single result may have a name), SA02 to SA04 (a name in See Also speaks for itself), EX02 to EX04 (examples are run).
ALSO_OF_EXPORTED_NAMES = {"SA01": "there is a See Also", "EX01": "there is an example"}


@cache
def public():
    """Return all public objects by dotted name."""
    found = {}
    for package in PUBLIC_MODULES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not inspect.isclass(value) and not inspect.isfunction(value):
                continue
            found[f"{package}.{name}"] = value
            if inspect.isclass(value):
                found |= {f"{package}.{name}.{member}": held for member, held in written_here(value)}
    return found


def written_here(cls):
    """Return the public methods and properties that are defined by a class of this library."""
    for name, _ in inspect.getmembers(cls):
        owner = next((parent for parent in cls.__mro__ if name in vars(parent)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith("gramless"):
            continue
        held = inspect.getattr_static(cls, name)
        if held.__doc__ is None and _declared_above(owner, name):
            continue
        # Methods and the descriptors of `available_if` are callable; properties are not.
        if isinstance(held, property) or (hasattr(held, "__get__") and callable(getattr(cls, name, None))):
            yield name, held


def _declared_above(owner, name):
    """Return True if a public base class of `owner` documents the member that `owner` overrides without a docstring."""
    declared = [(parent, vars(parent)[name]) for parent in owner.__mro__[1:] if name in vars(parent)]
    described = [
        parent for parent, held in declared if (inspect.isfunction(held) or isinstance(held, property)) and held.__doc__
    ]
    return any(parent.__module__.startswith("gramless.") and _is_public(parent) for parent in described)


def _is_public(cls):
    """Return True if a class is in the `__all__` of a public module that contains it."""
    containing = [name for name in PUBLIC_MODULES if cls.__module__.startswith(name)]
    return any(cls.__name__ in importlib.import_module(name).__all__ for name in containing)


def complaints(name):
    """Return the errors that numpydoc reports for a docstring, of those that are checked here."""
    checked = {*CHECKED, *(ALSO_OF_EXPORTED_NAMES if is_exported(name) else ())}
    if inspect.isclass(public()[name]) and issubclass(public()[name], Enum):
        checked.remove("PR01")  # the signature of an enumeration is that of Python
    return [f"{code} {words}" for code, words in validate(name)["errors"] if code in checked]


def is_exported(name):
    """Return True if a name is exported by `gramless` itself and is not a member of a class."""
    return name.rpartition(".")[0] == "gramless"


@pytest.mark.parametrize("name", list(public()))
def test_numpydoc_reports_no_error(name):
    assert complaints(name) == []


SPEAKS_OF_A_PAPER = re.compile(r"\b(the|this|a|each|five|every) documents?\b|\bdocuments?'s?\b", re.IGNORECASE)
ENDINGS = {"src": (".py", ".html", ".svg"), "docs": (".md", ".py"), "benchmarks": (".py",)}
TEXTS = [
    *(path for folder, endings in ENDINGS.items() for path in sorted((ROOT / folder).rglob("*")) if path.suffix in endings),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]


@pytest.mark.parametrize("name", [str(path.relative_to(ROOT)) for path in TEXTS])
def test_papers_are_cited_by_name(name):
    path = ROOT / name
    vague = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if SPEAKS_OF_A_PAPER.search(line)]
    assert vague == []
