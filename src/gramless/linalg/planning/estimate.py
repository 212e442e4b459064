"""How much memory a fit will take, before it is started."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier

from gramless._core import arrays as xa
from gramless._core.memory import MemoryEstimate, loading_bytes


def estimate(estimator: Any, n: int, d: int, n_classes: int = 2, *, dtype: Any = None) -> MemoryEstimate:
    """Peak bytes of `estimator.fit` on `n` rows of `d` features, part by part.

    The data are in it, as the fit sees them. What is not is the library itself: compiled loops are loaded when a fit first
    needs them, once in the life of a process, and `loading` says what that may take beside.

    Parameters
    ----------
    estimator : estimator
        Any of this package, with its settings; it need not be fitted.
    n, d : int
        Rows and features; pixels of an image, where rows are images.
    n_classes : int, default=2
        Classes (or outputs, for a regressor).
    dtype : default=None
        Of the computation; the estimator's own, else float32.

    Returns
    -------
    MemoryEstimate
        With `nbytes`, `parts` by name, `loading`, `device`; its `str` is a sentence.

    Raises
    ------
    MemoryError
        Where no way of fitting stays within `memory_budget`.

    See Also
    --------
    LSSVC : Plans within its `memory_budget`, and says in `solver_reason_` what it chose.

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
    memory.loading = loading_bytes() if memory.device == "cpu" else 0
    return memory
