"""Which way an estimator is fitted on many machines."""

from __future__ import annotations

from typing import Any

from gramless.distributed.cluster import active_client
from gramless.distributed.collections import describe
from gramless.estimators.lssvm import LeastSquaresMachine
from gramless.estimators.one_pass import OnePassRidge
from gramless.estimators.risvo import RiSVOClassifier


def fit(estimator: Any, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Any:
    """Fit `estimator` to dask collections.

    Parameters
    ----------
    estimator : NystromLSSVC, FourierLSSVC, RiSVOClassifier, LSSVC, or one of the regressors
    X : dask array of shape (n, d), or dask dataframe
    y : dask array or series with the partitions of `X`, or an array where the partitions' lengths are known
    sample_weight : like `y`, optional
    client : distributed.Client or str, optional
        A client, or a scheduler's address; by default the active client.

    Returns
    -------
    estimator
        Fitted.
    """
    with active_client(client) as connected:
        data = describe(connected, estimator, X, y, sample_weight)
        if isinstance(estimator, OnePassRidge):
            from gramless.distributed.one_pass import fit_one_pass

            return fit_one_pass(connected, estimator, data)
        if isinstance(estimator, RiSVOClassifier):
            from gramless.distributed.risvo import fit_risvo

            return fit_risvo(connected, estimator, data)
        if isinstance(estimator, LeastSquaresMachine):
            from gramless.distributed.lssvm import fit_least_squares

            return fit_least_squares(connected, estimator, data)
    raise TypeError(
        f"{type(estimator).__name__} cannot be fitted to dask collections; NystromLSSVC, FourierLSSVC, RiSVOClassifier and "
        "LSSVC(solver='cg') can"
    )
