"""Callbacks of long fits, passed to an estimator as `callback`.

A callback is a function `callback(estimator, record) -> bool`, called after each iteration with the partially fitted
estimator and the record of the iteration; returning True stops the fit. Two tasks need an object instead of a function:
`Checkpoint` saves the state of the solver, and `EarlyStopping` holds out validation rows. A list combines several callbacks.

>>> from gramless import LSSVC
>>> from gramless.callbacks import Checkpoint, EarlyStopping
>>> model = LSSVC(solver="cg", callback=[Checkpoint("fit.npz", every=5), EarlyStopping(validation_fraction=0.2)])
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator

from gramless._core.validation import check_positive

__all__ = ["Checkpoint", "EarlyStopping"]


class Checkpoint(BaseEstimator):
    """Save the state of a fit so that a killed process can continue.

    If the file exists, `fit` continues from the saved state and returns the bit-identical model of an uninterrupted fit. The
    file is removed when the fit ends. `fit` raises `ValueError` if the file was saved with other data or parameters. If
    `random_state` is None, the seed is derived from the data.

    Parameters
    ----------
    path : str or path
        Path of the file, in an existing folder.
    every : int, default=10
        Number of iterations between two saved states; for estimators that learn in one pass, number of batches.

    See Also
    --------
    EarlyStopping : Stop when the validation error no longer decreases.

    Examples
    --------
    >>> import tempfile, os
    >>> from sklearn.datasets import load_wine
    >>> from gramless import LSSVC
    >>> from gramless.callbacks import Checkpoint
    >>> X, y = load_wine(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = LSSVC(solver="cg", callback=Checkpoint(os.path.join(folder, "fit.npz"))).fit(X, y)
    """

    def __init__(self, path: str | os.PathLike[str], *, every: int = 10):
        self.path = path
        self.every = every


class EarlyStopping(BaseEstimator):
    """Stop the fit when the error on held-out rows no longer decreases, and use the model with the smallest error.

    Parameters
    ----------
    validation_fraction : float, default=0.1
        Fraction of the rows that is held out, stratified by class.
    n_iter_no_change : int, default=5
        The fit stops after this number of iterations without a smaller validation error.

    See Also
    --------
    Checkpoint : Save the state of a fit.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from gramless import LSSVC
    >>> from gramless.callbacks import EarlyStopping
    >>> X, y = load_wine(return_X_y=True)
    >>> model = LSSVC(solver="cg", callback=EarlyStopping(), random_state=0).fit(X, y)
    >>> "validation" in model.history_[0]
    True
    """

    def __init__(self, *, validation_fraction: float = 0.1, n_iter_no_change: int = 5):
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change


@dataclass(frozen=True)
class Callbacks:
    """Parsed parameter `callback` of an estimator."""

    checkpoint: Checkpoint | None = None
    early_stopping: EarlyStopping | None = None
    functions: tuple[Callable[..., Any], ...] = ()

    def __call__(self, estimator: Any, record: dict[str, Any]) -> bool:
        """Call all functions of the user, and return True if one of the functions requests a stop."""
        requests = [bool(function(estimator, record)) for function in self.functions]
        return any(requests)


def read_functions(estimator: Any) -> Callbacks:
    """Parse the parameter `callback` of an estimator that supports functions only; raise TypeError for other callbacks."""
    callbacks = read_callbacks(estimator.callback)
    for unsupported in (callbacks.checkpoint, callbacks.early_stopping):
        if unsupported is not None:
            raise TypeError(f"{type(estimator).__name__} takes functions as callback, not {type(unsupported).__name__}")
    return callbacks


def read_callbacks(callback: Any) -> Callbacks:
    """Parse `callback`: None, a callable, a `Checkpoint`, an `EarlyStopping`, or a list of these."""
    given = list(callback) if isinstance(callback, list | tuple) else [] if callback is None else [callback]
    settings: dict[type, Any] = {}
    functions: list[Callable[..., Any]] = []
    for item in given:
        if isinstance(item, Checkpoint | EarlyStopping):
            if type(item) in settings:
                raise ValueError(f"callback has more than one {type(item).__name__}; give one")
            settings[type(item)] = item
        elif callable(item):
            functions.append(item)
        else:
            raise TypeError(
                "callback must be callable(estimator, record), gramless.callbacks.Checkpoint or EarlyStopping, or a list of "
                f"these; got {item!r}"
            )
    checkpoint, early_stopping = settings.get(Checkpoint), settings.get(EarlyStopping)
    if checkpoint is not None:
        check_positive("Checkpoint's every", checkpoint.every, integer=True)
        if not Path(checkpoint.path).parent.is_dir():
            raise FileNotFoundError(f"the folder of the checkpoint does not exist: {Path(checkpoint.path).parent}")
    if early_stopping is not None:
        check_positive("n_iter_no_change", early_stopping.n_iter_no_change, integer=True)
    return Callbacks(checkpoint, early_stopping, tuple(functions))
