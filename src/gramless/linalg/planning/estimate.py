"""The memory of a fit, estimated before the fit starts."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier

from gramless._core import arrays as xa
from gramless._core.memory import COMPILED_LOOPS, MemoryEstimate


def estimate(estimator: Any, n: int, d: int, n_classes: int = 2, *, dtype: Any = None) -> MemoryEstimate:
    """Return the peak memory of `estimator.fit` on `n` rows of `d` features, part by part.

    The estimate includes the data as the fit stores them. It excludes loaded libraries: compiled loops are loaded once in a
    process, when a fit first needs them, and `loading` is an upper bound on their memory.

    Parameters
    ----------
    estimator : estimator
        An estimator of this package, fitted or not.
    n, d : int
        Number of rows and of features; if rows are images, `d` is the number of pixels.
    n_classes : int, default=2
        Number of classes, or of outputs of a regressor.
    dtype : dtype, default=None
        Floating-point precision of the computation; None is that of the estimator, else float32.

    Returns
    -------
    MemoryEstimate
        With `nbytes`, `parts` by name, `loading` and `device`; `str` of it is a sentence.

    Raises
    ------
    MemoryError
        If no solver stays within `memory_budget`.

    See Also
    --------
    LSSVC : Plans its fit within `memory_budget` and gives the reason in `solver_reason_`.

    Examples
    --------
    >>> from gramless import LSSVC, estimate
    >>> estimate(LSSVC(solver="cg", memory_budget="12GB"), n=60_000, d=784, n_classes=10).nbytes < 12e9
    True
    """
    if isinstance(estimator, type):
        raise TypeError(f"estimate() takes an estimator with its settings: {estimator.__name__}(...), not the class itself")
    if not hasattr(estimator, "plan"):
        raise TypeError(f"estimate() takes an estimator of gramless, such as LSSVC, got {type(estimator).__name__}")
    own = getattr(estimator, "dtype", None)
    chosen = np.dtype(dtype if dtype is not None else own if own is not None else np.float32)
    outputs = 1 if n_classes <= 2 and is_classifier(estimator) else n_classes
    device = xa.resolve_device(getattr(estimator, "device", None))
    memory: MemoryEstimate = estimator.plan(n, d, outputs, chosen, device).memory
    memory.loading = sum(COMPILED_LOOPS.values()) if memory.device == "cpu" else 0
    return memory
