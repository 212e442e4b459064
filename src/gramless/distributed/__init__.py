"""Fits on more than one machine, with dask.

`fit` of `NystromLSSVC`, `FourierLSSVC`, `RiSVOClassifier` and `LSSVC(solver="cg")` (and of the regressors) takes dask arrays
and dataframes and calls `fit` here. The rows stay on the workers; what comes to the client is the model and small sums.

- Landmark and Fourier models: each partition is reduced to its normal equations, these are merged in a tree on the workers.
- `RiSVOClassifier`: the same, again for the rows that leave the active set; or one fit for each partition, averaged.
- `LSSVC`: conjugate gradients with an operator whose tiles are computed, and kept where they fit, on the workers.

Everything is a graph of tasks without side effects: what a lost worker held is computed again by the others.

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
