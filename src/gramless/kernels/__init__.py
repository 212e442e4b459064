"""Kernels: functions of two points, evaluated in blocks, that can be added and multiplied.

>>> from gramless.kernels import RBF, Linear, Columns
>>> kernel = Columns(RBF(gamma=0.1), slice(0, 8)) * (Linear() + 1.0 * RBF(gamma=2.0))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np

from gramless._core.validation import check_choice
from gramless.kernels.base import Callable_, Columns, Kernel, Power, Product, Scaled, ScaledColumns, Sum
from gramless.kernels.dot import Cosine, Linear, Polynomial, Sigmoid
from gramless.kernels.histogram import Chi2, ExpChi2, Intersection
from gramless.kernels.invariant import Invariant, Reflected
from gramless.kernels.precomputed import Precomputed
from gramless.kernels.stationary import RBF, Equality, Exponential, Laplacian, Matern32, Matern52

KERNELS: dict[str, type[Kernel]] = {
    "linear": Linear,
    "cosine": Cosine,
    "poly": Polynomial,
    "sigmoid": Sigmoid,
    "rbf": RBF,
    "laplacian": Laplacian,
    "exponential": Exponential,
    "matern32": Matern32,
    "matern52": Matern52,
    "equality": Equality,
    "chi2": Chi2,
    "exp_chi2": ExpChi2,
    "intersection": Intersection,
    "precomputed": Precomputed,
}
"""The names that estimators accept as `kernel=`."""

__all__ = [
    "KERNELS",
    "RBF",
    "Callable_",
    "Chi2",
    "Columns",
    "Cosine",
    "Equality",
    "ExpChi2",
    "Exponential",
    "Intersection",
    "Invariant",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern32",
    "Matern52",
    "Polynomial",
    "Power",
    "Precomputed",
    "Product",
    "Reflected",
    "Scaled",
    "ScaledColumns",
    "Sigmoid",
    "Sum",
    "as_kernel",
]


def as_kernel(kernel: str | Kernel | Callable[[Any, Any], Any], **settings: Any) -> Kernel:
    """Convert the argument `kernel` of an estimator to a kernel.

    Parameters
    ----------
    kernel : str, Kernel or callable
        A key of `KERNELS`, a kernel, which is returned unchanged, or a function `f(X, Y)` that returns the kernel matrix.
    **settings : dict
        Settings such as gamma, degree and coef0; a kernel given by name uses the settings that are its parameters.

    Returns
    -------
    Kernel
        The kernel, whose `gamma` may be a name such as `"scale"`.

    See Also
    --------
    Kernel : Base class of all kernels.

    Examples
    --------
    >>> from gramless.kernels import as_kernel
    >>> as_kernel("rbf", gamma=0.5, degree=3)
    RBF(gamma=0.5)
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        cls = KERNELS[check_choice("kernel", kernel, KERNELS)]
        known = cls._get_param_names()
        return cls(**{name: value for name, value in settings.items() if name in known})
    if callable(kernel):
        return Callable_(kernel)
    raise TypeError(f"kernel must be a name, a Kernel or a callable, got {type(kernel).__name__}")


def kernel_from_parameters(parameters: Mapping[str, Any]) -> Kernel:
    """Return the kernel that the parameters `kernel`, `gamma`, `degree` and `coef0` of an estimator specify."""
    settings = {name: parameters[name] for name in ("gamma", "degree", "coef0") if name in parameters}
    return as_kernel(parameters["kernel"], **settings)


def kernel_candidates(parameters: Mapping[str, Any]) -> list[tuple[dict[str, Any], Kernel]]:
    """Return `(selected values, kernel)` for every combination of values, where parameters may be lists of values."""
    names = ("kernel", "gamma", "degree", "coef0")
    lists = {name: parameters[name] for name in names if isinstance(parameters[name], list | tuple | np.ndarray)}
    found: list[tuple[dict[str, Any], Kernel]] = []
    for values in product(*lists.values()):
        selected = {"kernel": parameters["kernel"], **dict(zip(lists, values, strict=True))}
        kernel = kernel_from_parameters({**parameters, **selected})
        known = kernel.get_params(deep=False) if isinstance(selected["kernel"], str) else {}
        selected = {name: value for name, value in selected.items() if name == "kernel" or name in known}
        if all(selected != other for other, _ in found):
            found.append((selected, kernel))
    if not found:
        raise ValueError(f"{' and '.join(lists)} must have at least one value")
    return found


def is_pairwise(kernel: Any) -> bool:
    """Return whether the parameter `kernel` (or one kernel of a list) means that `X` is a matrix of kernel values."""
    if isinstance(kernel, list | tuple):
        return any(map(is_pairwise, kernel))
    return kernel == "precomputed" if isinstance(kernel, str) else isinstance(kernel, Kernel) and not kernel.uses_points


def set_input_tags(tags: Any, kernel: Any) -> Any:
    """Set the scikit-learn tags of an estimator that accepts sparse rows, and kernel values if the kernel is precomputed."""
    tags.input_tags.pairwise = is_pairwise(kernel)
    tags.input_tags.sparse = True
    return tags
