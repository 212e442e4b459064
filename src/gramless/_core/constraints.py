"""Constructor parameters that several estimators share, their order and constraints, and links to the documentation.

Parameters marked "no_validation" are validated where they are parsed: `as_kernel`, `read_callbacks`, `parse_budget`,
`check_device` and `working_dtype` raise errors that list the accepted values.
"""

from __future__ import annotations

import inspect
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
    "normalise": ["boolean"],
    "dtype": "no_validation",
    "device": "no_validation",
    "memory_budget": "no_validation",
    "callback": "no_validation",
    "verbose": ["verbose"],
    "random_state": ["random_state"],
}
"""Constraints of the parameters of several estimators; an estimator declares only those that differ."""

_FIRST = ("kernel", "C", "gamma", "degree", "coef0", "nu")
_LAST = ("shrinking", "cache_size", "dtype", "device", "memory_budget", "callback", "verbose", "random_state")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def estimator(cls: _Class) -> _Class:
    """Decorate an estimator class whose annotated attributes are its constructor parameters.

    The class becomes a dataclass. Its signature begins with the kernel and ends with the settings of the computation, which
    it may inherit from a base class. Parameters without a constraint of the class have that of `CONSTRAINTS`. The HTML
    representation links to the page of the class in the reference.
    """
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)
    signature = inspect.signature(made.__init__)
    ordered = sorted(signature.parameters.values(), key=_position)
    made.__init__.__signature__ = signature.replace(parameters=ordered)
    declared = {**CONSTRAINTS, **getattr(cls, "_parameter_constraints", {})}
    made._parameter_constraints = {name: declared[name] for name in signature.parameters if name in declared}
    made._doc_link_module = "gramless"
    made._doc_link_template = f"{DOCUMENTATION}/reference/generated/{{public_name}}.html"
    made._doc_link_url_param_generator = _url_parameters
    return cls


def _position(parameter: inspect.Parameter) -> int:
    """Return a number by which the parameters of a constructor are sorted; equal numbers keep the order of the class."""
    if parameter.kind is not parameter.KEYWORD_ONLY:
        return -1
    if parameter.name in _LAST:
        return len(_FIRST) + 1 + _LAST.index(parameter.name)
    return _FIRST.index(parameter.name) if parameter.name in _FIRST else len(_FIRST)


def _url_parameters(estimator: Any) -> dict[str, str]:
    """Return the public name: estimators are exported by `gramless`, other classes by their package."""
    cls = type(estimator)
    package = cls.__module__.rpartition(".")[0]
    return {"public_name": f"{'gramless' if package == 'gramless.estimators' else package}.{cls.__name__}"}
