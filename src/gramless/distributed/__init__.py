"""Fits and predictions on Dask clusters.

`fit` of `NystromLSSVC`, `FourierLSSVC`, `RiSVOClassifier` and `LSSVC(solver="cg")` (and of the regressors) accepts dask
arrays and dataframes. The rows stay on the workers, and the client receives the model and small sums.

- Landmark and Fourier models: the normal equations of the partitions are computed and added in a tree on the workers.
- `RiSVOClassifier`: normal equations, from which discarded rows are subtracted, or the mean of one model per partition.
- `LSSVC`: the workers compute the tiles of the kernel matrix for conjugate gradients, and cache the tiles if memory allows.

Tasks have no side effects, so if a worker is lost, other workers recompute its results.

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
