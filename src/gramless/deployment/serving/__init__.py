"""HTTP servers for models: predictions of saved models, and a page on which digits are drawn and recognised."""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "Limits": "gramless.deployment.serving.limits",
    "drawing_app": "gramless.deployment.serving.drawing",
    "scoring_app": "gramless.deployment.serving.app",
    "serve": "gramless.deployment.serving.server",
}

__all__ = ["Limits", "drawing_app", "scoring_app", "serve"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
