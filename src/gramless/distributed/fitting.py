"""Select and run the distributed fit of an estimator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from dask.distributed import Client
from sklearn.base import is_classifier

from gramless.distributed.cluster import active_client
from gramless.distributed.collections import Rows, describe
from gramless.distributed.lssvm import check_least_squares, fit_least_squares
from gramless.distributed.one_pass import check_one_pass, fit_one_pass
from gramless.distributed.risvo import check_risvo, fit_risvo
from gramless.estimators.lssvm import LSSVC, LSSVR
from gramless.estimators.one_pass import OnePassEstimator
from gramless.estimators.risvo import RiSVOClassifier


def fit(estimator: Any, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Any:
    """Fit an estimator to dask collections.

    `estimator.fit(X, y)` does the same with the active client.

    Parameters
    ----------
    estimator : NystromLSSVC, FourierLSSVC, RiSVOClassifier, LSSVC or one of the regressors
        Estimator to fit; a parameter that a cluster does not support raises `ValueError`.
    X : dask array of shape (n_samples, n_features) or dask dataframe
        Training rows, which stay on the workers.
    y : dask array, series or ndarray
        Labels or values, partitioned like `X`; an ndarray is accepted if the lengths of the partitions are known.
    sample_weight : dask array, series or ndarray, optional
        One weight for each row, partitioned like `y`.
    client : distributed.Client or str, optional
        Client or scheduler address; None uses the active client.

    Returns
    -------
    estimator
        The fitted estimator.

    See Also
    --------
    predict_partitions : Predict lazily for a collection.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from gramless import NystromLSSVC
    >>> from gramless.distributed import fit
    >>> X = da.random.default_rng(0).normal(size=(400, 3), chunks=(100, 3))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     model = fit(NystromLSSVC(n_landmarks=50, random_state=0), X, y, client=client)
    >>> model.points_.shape
    (50, 3)
    """
    _family(estimator)
    with ExitStack() as stack:
        if isinstance(client, str):
            client = stack.enter_context(Client(client, set_as_default=False))
        if client is not None:
            stack.enter_context(client.as_current())
        return estimator.fit(X, y, sample_weight)


def prepare_fit(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Rows, Callable[..., Any]]:
    """Return the rows of dask collections on the workers, and a function that solves for the model of the estimator.

    `fit` of the estimator stores the classes and the feature names, calls the returned function and stores its result.
    """
    check, solve = _family(estimator)
    check(estimator)
    dtype, classification = getattr(estimator, "dtype", None), is_classifier(estimator)
    rows = describe(active_client(), X, y, sample_weight, dtype=dtype, classification=classification)
    return rows, partial(solve, estimator, rows)


def _family(estimator: Any) -> tuple[Callable[[Any], None], Callable[..., Any]]:
    """Return the function that rejects settings that a cluster does not support, and the function that fits the model."""
    if isinstance(estimator, OnePassEstimator):
        return check_one_pass, fit_one_pass
    if isinstance(estimator, RiSVOClassifier):
        return check_risvo, fit_risvo
    if isinstance(estimator, LSSVC | LSSVR):
        return check_least_squares, fit_least_squares
    raise TypeError(
        f"{type(estimator).__name__} cannot be fitted to dask collections; NystromLSSVC, FourierLSSVC, RiSVOClassifier and "
        "LSSVC(solver='cg') can"
    )
