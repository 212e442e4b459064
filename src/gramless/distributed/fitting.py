"""Select the distributed fit of an estimator and run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import is_classifier
from sklearn.utils.validation import validate_data

from gramless._core.validation import atomic_fit
from gramless.distributed.cluster import active_client
from gramless.distributed.collections import describe, example_rows
from gramless.distributed.lssvm import check_least_squares, fit_least_squares
from gramless.distributed.one_pass import check_one_pass, fit_one_pass
from gramless.distributed.risvo import check_risvo, fit_risvo
from gramless.estimators.lssvm import LSSVC, LSSVR
from gramless.estimators.one_pass import OnePassEstimator
from gramless.estimators.risvo import RiSVOClassifier


def fit(estimator: Any, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> Any:
    """Fit an estimator to dask collections.

    `estimator.fit(X, y)` calls this function with the active client.

    Parameters
    ----------
    estimator : NystromLSSVC, FourierLSSVC, RiSVOClassifier, LSSVC or one of the regressors
        A parameter that a cluster does not support raises a `ValueError` that names it.
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
    check = _settings_check(estimator)
    check(estimator)
    with active_client(client) as connected:
        return _fit(estimator, connected, X, y, sample_weight)


@atomic_fit
def _fit(estimator: Any, client: Any, X: Any, y: Any, sample_weight: Any) -> Any:
    classification = is_classifier(estimator)
    rows = describe(client, X, y, sample_weight, dtype=getattr(estimator, "dtype", None), classification=classification)
    validate_data(estimator, example_rows(X), skip_check_array=True, reset=True)
    if isinstance(estimator, OnePassEstimator):
        return estimator.set_pass(fit_one_pass(client, estimator, rows))
    estimator._set_outputs(rows.classes, single=not rows.target_shape)
    if isinstance(estimator, RiSVOClassifier):
        fit_risvo(client, estimator, rows)
    else:
        estimator._store_fit(fit_least_squares(client, estimator, rows))
    return estimator


def _settings_check(estimator: Any) -> Callable[[Any], None]:
    """Return the function that raises an error for settings that a cluster does not support."""
    if isinstance(estimator, OnePassEstimator):
        return check_one_pass
    if isinstance(estimator, RiSVOClassifier):
        return check_risvo
    if isinstance(estimator, LSSVC | LSSVR):
        return check_least_squares
    raise TypeError(
        f"{type(estimator).__name__} cannot be fitted to dask collections; NystromLSSVC, FourierLSSVC, RiSVOClassifier and "
        "LSSVC(solver='cg') can"
    )
