"""Which way an estimator is fitted on many machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gramless._runtime.validation import all_or_nothing
from gramless.distributed.cluster import active_client
from gramless.distributed.collections import describe
from gramless.distributed.lssvm import check_least_squares, fit_least_squares
from gramless.distributed.one_pass import check_one_pass, fit_one_pass
from gramless.distributed.risvo import check_risvo, fit_risvo
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
    check, work = _check_and_fit(estimator)
    check(estimator)
    with active_client(client) as connected:
        return _fit(estimator, work, connected, X, y, sample_weight)


@all_or_nothing
def _fit(estimator: Any, work: Callable[[Any, Any, Any], None], client: Any, X: Any, y: Any, sample_weight: Any) -> Any:
    work(client, estimator, describe(client, estimator, X, y, sample_weight))
    return estimator


def _check_and_fit(estimator: Any) -> tuple[Callable[[Any], None], Callable[[Any, Any, Any], None]]:
    if isinstance(estimator, OnePassRidge):
        return check_one_pass, fit_one_pass
    if isinstance(estimator, RiSVOClassifier):
        return check_risvo, fit_risvo
    if isinstance(estimator, LeastSquaresMachine):
        return check_least_squares, fit_least_squares
    raise TypeError(
        f"{type(estimator).__name__} cannot be fitted to dask collections; NystromLSSVC, FourierLSSVC, RiSVOClassifier and "
        "LSSVC(solver='cg') can"
    )
