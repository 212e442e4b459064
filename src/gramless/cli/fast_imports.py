"""Import SciPy, scikit-learn and skops in a third of the usual time, for processes that the command line starts.

`import skops.io` lists every scikit-learn estimator, which imports all of scikit-learn and, through its array API wrappers,
torch and dask: 3.6 s of processor time against 1.1 s without (`gramless predict`, two cores at 2.5 GHz). `gramless.load`
does not need the list because it looks up each estimator that a file names. scikit-learn has no setting to skip the search,
so `all_estimators` is replaced while skops is imported, and restored afterwards. Only the command does this, because the
library must not change modules of a process that it did not start.
"""

from __future__ import annotations

import gc


def import_skops() -> None:
    """Import skops without its list of scikit-learn estimators."""
    collecting = gc.isenabled()
    gc.disable()  # the imports create hundreds of thousands of objects, which garbage collection would search repeatedly
    try:
        # skops looks up functions of scipy.special in the order of imports, so scipy.special is imported first.
        import scipy.special  # noqa: F401
        import sklearn.utils

        all_estimators = sklearn.utils.all_estimators
        sklearn.utils.all_estimators = lambda type_filter=None: []
        try:
            import skops.io  # noqa: F401
        finally:
            sklearn.utils.all_estimators = all_estimators
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
