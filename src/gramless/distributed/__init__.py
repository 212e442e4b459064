"""Fits and predictions on Dask clusters.

`fit` of `NystromLSSVC`, `FourierLSSVC`, `RiSVOClassifier` and `LSSVC(solver="cg")` (and of the regressors) takes dask arrays
and dataframes and calls `fit` of this package. The rows stay on the workers; the client receives the model and small sums.

- Landmark and Fourier models: the normal equations of the partitions are computed and added in a tree on the workers.
- `RiSVOClassifier`: the same, repeated for the rows that leave the active set, or the mean of one fit for each partition.
- `LSSVC`: conjugate gradients with an operator whose tiles are computed, and cached if they fit, on the workers.

Tasks have no side effects, so the other workers recompute the results of a lost worker.

Examples
--------
>>> from dask.distributed import Client                                     # doctest: +SKIP
>>> import dask.array as da, gramless                                       # doctest: +SKIP
>>> client = Client("scheduler:8786")                                       # doctest: +SKIP
>>> model = gramless.NystromLSSVC(n_landmarks=2000).fit(da_X, da_y)         # doctest: +SKIP
>>> model.predict(da_X_test)                                                # lazy  # doctest: +SKIP
"""

from gramless.distributed.fitting import fit
from gramless.distributed.prediction import predict_partitions, predict_rows

__all__ = ["fit", "predict_partitions", "predict_rows"]
