"""What a command of this library imports first, in the order that takes the least processor time.

For a process of this library's own, where seconds of starting count.

* skops looks for every estimator of scikit-learn, and so imports all of it, and torch besides. Here its list stays empty:
  `gramless.load` looks up the estimators that a file names.
* skops finds the module of each function of `scipy.special` by asking all modules in the order of their import: that one
  comes early.
* Python looks for cycles whenever it has made some hundreds of objects, and imports make hundreds of thousands that stay.
"""

from __future__ import annotations

import gc
import sys


def quick_start() -> None:
    """Import SciPy, scikit-learn and skops; nothing where skops is there already."""
    if "skops.io" in sys.modules:
        return
    collecting = gc.isenabled()
    gc.disable()
    try:
        import scipy.special  # noqa: F401
        import sklearn.utils

        search = sklearn.utils.all_estimators
        sklearn.utils.all_estimators = lambda type_filter=None: []
        try:
            import skops.io  # noqa: F401
        finally:
            sklearn.utils.all_estimators = search
    finally:
        gc.freeze()  # what was imported stays, and is not looked through again
        if collecting:
            gc.enable()
