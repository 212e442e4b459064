"""Constraints of constructor parameters that several estimators share, in the format of `_parameter_constraints`.

Parameters marked "no_validation" are validated where they are parsed: `as_kernel`, `read_callbacks`, `parse_budget`,
`check_device` and `working_dtype` raise errors that list the accepted values.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import Interval, StrOptions

POSITIVE = Interval(Real, 0, None, closed="neither")
POSITIVE_INTEGER = Interval(Integral, 1, None, closed="left")
FRACTION = Interval(Real, 0, 1, closed="right")

KERNEL: dict[str, Any] = {
    "kernel": "no_validation",
    "gamma": [Interval(Real, 0, None, closed="left"), StrOptions({"scale", "auto", "weighted_scale"})],
    "degree": [Interval(Real, 0, None, closed="left")],
    "coef0": [Real],
}
COMPUTE: dict[str, Any] = {
    "dtype": "no_validation",
    "device": "no_validation",
    "memory_budget": "no_validation",
    "callback": "no_validation",
    "verbose": ["verbose"],
    "random_state": ["random_state"],
}
CLASS_WEIGHT: dict[str, Any] = {"class_weight": [dict, StrOptions({"balanced"}), None]}
