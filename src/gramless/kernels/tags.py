"""scikit-learn's input tags of an estimator with a kernel."""

from __future__ import annotations

from typing import Any

from gramless.kernels.base import Kernel


def is_pairwise(kernel: Any) -> bool:
    """Return whether the parameter `kernel` (or one kernel of a list) means that `X` is a matrix of kernel values."""
    if isinstance(kernel, list | tuple):
        return any(map(is_pairwise, kernel))
    return kernel == "precomputed" if isinstance(kernel, str) else isinstance(kernel, Kernel) and not kernel.uses_points


def set_input_tags(tags: Any, kernel: Any) -> Any:
    """Set the tags of an estimator that accepts sparse rows, and kernel values if the kernel is precomputed."""
    tags.input_tags.pairwise = is_pairwise(kernel)
    tags.input_tags.sparse = True
    return tags
