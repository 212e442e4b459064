"""Constructor parameters that several estimators share, their order and constraints, and links to the documentation.

Parameters marked "no_validation" are validated where they are parsed: `as_kernel`, `read_callbacks`, `parse_budget`,
`check_device` and `working_dtype` raise errors that list the accepted values.
"""

from __future__ import annotations

import inspect
import re
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

from sklearn.utils._param_validation import Interval, StrOptions

_Class = TypeVar("_Class", bound=type)

DOCUMENTATION = "https://gramless.readthedocs.io/en/stable"

POSITIVE = Interval(Real, 0, None, closed="neither")
NON_NEGATIVE = Interval(Real, 0, None, closed="left")
POSITIVE_INTEGER = Interval(Integral, 1, None, closed="left")
FRACTION = Interval(Real, 0, 1, closed="right")

CONSTRAINTS: dict[str, Any] = {
    "kernel": "no_validation",
    "C": [POSITIVE],
    "gamma": [NON_NEGATIVE, StrOptions({"scale", "auto", "weighted_scale"})],
    "degree": [NON_NEGATIVE],
    "coef0": [Real],
    "nu": [FRACTION, None],
    "n_landmarks": [POSITIVE_INTEGER, FRACTION],
    "landmarks": "no_validation",
    "n_components": [POSITIVE_INTEGER],
    "Cs": ["array-like"],
    "tol": [POSITIVE],
    "max_iter": [POSITIVE_INTEGER],
    "forgetting_factor": [FRACTION],
    "epochs": [POSITIVE_INTEGER],
    "batch_size": [POSITIVE_INTEGER, None],
    "multi_class": [StrOptions({"ovo", "ovr"})],
    "decision_function_shape": [StrOptions({"ovo", "ovr"})],
    "class_weight": [dict, StrOptions({"balanced"}), None],
    "positive_weight": [POSITIVE],
    "patch_size": [POSITIVE_INTEGER, "array-like", None],
    "shape": "no_validation",
    "n_jobs": [Integral, None],
    "dtype": "no_validation",
    "device": "no_validation",
    "memory_budget": "no_validation",
    "callback": "no_validation",
    "verbose": ["verbose"],
    "random_state": ["random_state"],
}
"""Constraints of parameters that several estimators have; an estimator declares only constraints that differ from these."""

_FIRST = ("kernel", "C", "gamma", "degree", "coef0", "nu")
_LAST = ("shrinking", "cache_size", "dtype", "device", "memory_budget", "callback", "verbose", "random_state")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def estimator(cls: _Class) -> _Class:
    """Decorate an estimator class whose annotated attributes are its constructor parameters.

    The class becomes a dataclass. In the signature `kernel`, `C` and `gamma` are first, and computational settings, such
    as `dtype` and `device`, are last. Parameters, constraints and descriptions are inherited from base classes. A parameter
    without a declared constraint has the constraint in `CONSTRAINTS`, and a parameter of type `bool` must be boolean. The
    HTML representation of an estimator links to the page of its class in the reference documentation.
    """
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)
    signature = inspect.signature(made.__init__)
    ordered = sorted(signature.parameters.values(), key=_position)
    made.__init__.__signature__ = signature.replace(parameters=ordered)
    flags = {name: ["boolean"] for name, parameter in made.__dataclass_fields__.items() if parameter.type == "bool"}
    declared = ChainMap(*(vars(base).get("_parameter_constraints", {}) for base in cls.__mro__), CONSTRAINTS, flags)
    made._parameter_constraints = {name: declared[name] for name in signature.parameters if name in declared}
    if any(_entries(base, "Parameters") for base in cls.__mro__[1:]):
        made.__doc__ = _merged_docstring(made)
    made._doc_link_module = "gramless"
    made._doc_link_template = f"{DOCUMENTATION}/reference/generated/{{public_name}}.html"
    made._doc_link_url_param_generator = _url_parameters
    return cls


def inherit_parameter_docs(documented: type) -> Callable[[_Class], _Class]:
    """Return a class decorator that copies descriptions from `documented` for parameters that both classes have."""

    def insert(cls: _Class) -> _Class:
        cls.__doc__ = _merged_docstring(cls, documented)
        return cls

    return insert


def _merged_docstring(cls: type, *documented: type) -> str:
    """Return the docstring of `cls` with missing descriptions from base classes and, for parameters, from `documented`."""
    described = ChainMap(*(_entries(source, "Parameters") for source in (*cls.__mro__, *documented)))
    attributes = ChainMap(*(_entries(base, "Attributes") for base in cls.__mro__))
    sections = {
        "Parameters": [described[name] for name in inspect.signature(cls).parameters if name in described],
        "Attributes": list(attributes.values()),
    }
    first, *others = re.split(r"\n\n(?=[A-Z][A-Za-z ]+\n---)", inspect.cleandoc(cls.__doc__ or ""))
    made = ["\n".join([section, "-" * len(section), *entries]) for section, entries in sections.items() if entries]
    kept = [text for text in others if text.split()[0] not in sections]
    return "\n\n".join([first, *made, *kept]) + "\n"


def _entries(cls: type, section: str) -> dict[str, str]:
    """Return a dict of the descriptions in the section Parameters or Attributes of a class docstring, by name."""
    body = re.search(rf"\n{section}\n-+\n(.*?)(?=\n\n[A-Z]|$)", inspect.cleandoc(cls.__doc__ or ""), re.DOTALL)
    entries = re.findall(r"^\w.*(?:\n .*)*", body[1], re.MULTILINE) if body else []
    return {re.split(r"\W", entry)[0]: entry for entry in entries}


def _position(parameter: inspect.Parameter) -> int:
    """Return the sort key of a constructor parameter; parameters with equal keys keep their order in the class."""
    if parameter.kind is not parameter.KEYWORD_ONLY:
        return -1
    if parameter.name in _LAST:
        return len(_FIRST) + 1 + _LAST.index(parameter.name)
    return _FIRST.index(parameter.name) if parameter.name in _FIRST else len(_FIRST)


def _url_parameters(estimator: Any) -> dict[str, str]:
    """Return the public name of the class for its URL: `gramless.<class>` for estimators, else `<package>.<class>`."""
    cls = type(estimator)
    package = cls.__module__.rpartition(".")[0]
    return {"public_name": f"{'gramless' if package == 'gramless.estimators' else package}.{cls.__name__}"}
