"""Kernel methods for data too large for a full kernel matrix, with the interface of scikit-learn.

Public names are imported at first use, so that `import gramless` is fast and needs no optional dependency.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from gramless._version import __version__

# Module that defines each public name.
_EXPORTS: dict[str, str] = {
    "CUDA": "gramless._core.device",
    "BudgetLSSVC": "gramless.estimators.budget",
    "BudgetLSSVR": "gramless.estimators.budget",
    "FourierFeatures": "gramless.estimators.kernel_features",
    "FourierLSSVC": "gramless.estimators.fourier",
    "FourierLSSVR": "gramless.estimators.fourier",
    "ImageClassifier": "gramless.estimators.image",
    "KernelOneClassSVM": "gramless.estimators.svm",
    "KernelSVC": "gramless.estimators.svm",
    "KernelSVR": "gramless.estimators.svm",
    "LSSVC": "gramless.estimators.lssvm",
    "LSSVR": "gramless.estimators.lssvm",
    "MKLClassifier": "gramless.estimators.mkl",
    "NystromFeatures": "gramless.estimators.kernel_features",
    "NystromLSSVC": "gramless.estimators.nystrom",
    "NystromLSSVR": "gramless.estimators.nystrom",
    "NystromNovelty": "gramless.estimators.novelty",
    "PatchClassifier": "gramless.estimators.patches",
    "PrototypeLSSVC": "gramless.estimators.prototypes",
    "RiSVOClassifier": "gramless.estimators.risvo",
    "SphericalKMeans": "gramless.estimators.spherical_kmeans",
    "Stream": "gramless.streaming",
    "TableClassifier": "gramless.estimators.table",
    "TableRegressor": "gramless.estimators.table",
    "compiled": "gramless.deployment.compiled",
    "compress": "gramless.deployment.compress",
    "estimate": "gramless.linalg.planning.plan",
    "load": "gramless.deployment.model_files",
    "save": "gramless.deployment.model_files",
    "to_onnx": "gramless.deployment.onnx.convert",
}

# Former public names, which issue a FutureWarning when they are called.
_DEPRECATED = {"LSSVCCV": "gramless.estimators.lssvm", "LSSVRCV": "gramless.estimators.lssvm"}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name) or _DEPRECATED.get(name)
    if module is None:
        # The arguments `name` and `obj` make Python suggest similar names in its error message.
        raise AttributeError(f"module 'gramless' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
