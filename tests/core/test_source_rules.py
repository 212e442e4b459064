"""Rules for the source that no linter checks: explicit data flow, unique class names, no dependence on import history."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "gramless"
SOURCES = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
UNTYPED = {"", "Any", "object"}


def writes_to_untyped_parameters(tree):
    """Return "function: parameter.attribute" for each attribute that a function assigns to a parameter without a type."""
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        untyped = {a.arg for a in arguments if (ast.unparse(a.annotation) if a.annotation else "") in UNTYPED}
        untyped -= {"self", "cls"}
        found += [f"{function.name}: {one}" for node in ast.walk(function) for one in _written(node, untyped)]
    return found


def _written(node, names):
    """Yield the attributes of variables in `names` that a statement assigns."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in (part for whole in targets for part in ast.walk(whole)):
            stored = isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
            if stored and isinstance(target.value, ast.Name) and target.value.id in names:
                yield f"{target.value.id}.{target.attr}"
    calls_setattr = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr"
    if calls_setattr and isinstance(node.args[0], ast.Name) and node.args[0].id in names:
        yield ast.unparse(node)


def module_lookups(tree):
    """Return the expressions that look a module up in `sys.modules` by a key that is not the module's own name."""
    found = []
    for node in ast.walk(tree):
        key = None
        if isinstance(node, ast.Compare) and any(ast.unparse(one) == "sys.modules" for one in node.comparators):
            key = ast.unparse(node.left)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules":
            key = ast.unparse(node.slice)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "sys.modules.get":
            key = ast.unparse(node.args[0])
        if key not in (None, "__name__"):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_functions_do_not_assign_attributes_to_untyped_parameters(name):
    assert writes_to_untyped_parameters(SOURCES[name]) == []


@pytest.mark.parametrize("name", SOURCES)
def test_no_lookup_in_sys_modules(name):
    assert module_lookups(SOURCES[name]) == []


def test_class_names_are_unique():
    places = defaultdict(list)
    for name, tree in SOURCES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_violations_are_detected():
    """Each rule detects an example of a violation."""
    written = ast.parse("def f(model, n: int, e: Any):\n    model.coef_ = n\n    setattr(e, 'a', 1)\n")
    assert writes_to_untyped_parameters(written) == ["f: model.coef_", "f: setattr(e, 'a', 1)"]
    assert writes_to_untyped_parameters(ast.parse("def f(state: State):\n    state.n = 1")) == []
    asked = ast.parse("import sys\nif 'torch' in sys.modules:\n    sys.modules.get('torch')\nsys.modules[__name__]")
    assert module_lookups(asked) == ["'torch' in sys.modules", "sys.modules.get('torch')"]
