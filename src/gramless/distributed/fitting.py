"""Which way an estimator is fitted on many machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gramless.distributed.cluster import active_client
from gramless.distributed.collections import describe
from gramless.distributed.lssvm import fit_least_squares
from gramless.distributed.one_pass import fit_one_pass
from gramless.distributed.risvo import fit_risvo
from gramless.estimators.least_squares import LeastSquaresMachine
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
    work = _way(estimator)
    with active_client(client) as connected:
        return work(connected, estimator, describe(connected, estimator, X, y, sample_weight))


def _way(estimator: Any) -> Callable[[Any, Any, Any], Any]:
    if isinstance(estimator, OnePassRidge):
        return fit_one_pass
    if isinstance(estimator, RiSVOClassifier):
        return fit_risvo
    if isinstance(estimator, LeastSquaresMachine):
        return fit_least_squares
    raise TypeError(
        f"{type(estimator).__name__} cannot be fitted to dask collections; NystromLSSVC, FourierLSSVC, RiSVOClassifier and "
        "LSSVC(solver='cg') can"
    )
