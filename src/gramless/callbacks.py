"""What a long fit can be asked to do beside fitting, passed to an estimator as `callback=`.

A callback is a function `callback(estimator, record) -> bool`, called after each iteration with an estimator that can
already predict and the iteration's record of the history; a true answer stops the fit. `Checkpoint` and `EarlyStopping`
are settings for what a function cannot do: save the state of the solve, and hold out rows before it begins. A list
combines them.

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
    """Save the state of a fit, so that a killed process can go on.

    A fit that finds such a file of its own goes on from there, to the same model bit for bit; the file is removed when the
    fit ends. A file of another problem (other data or settings) is refused. Without a `random_state` the data is the seed.

    Parameters
    ----------
    path : str or path
        The file, in a folder that exists.
    every : int, default=10
        Iterations (batches, for the estimators that read a stream) from one saved state to the next.

    See Also
    --------
    EarlyStopping : Stop on the error of held-out rows.

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
    """Stop on the error of held-out rows, and return the best model met.

    Parameters
    ----------
    validation_fraction : float, default=0.1
        Share of the rows that is held out, of each class its share.
    n_iter_no_change : int, default=5
        Stop after so many iterations without a better error.

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
    """An estimator's `callback`, sorted by what the fit has to do with it."""

    checkpoint: Checkpoint | None = None
    early_stopping: EarlyStopping | None = None
    functions: tuple[Callable[..., Any], ...] = ()

    def __call__(self, estimator: Any, record: dict[str, Any]) -> bool:
        """Call every function; whether one of them wants the fit to stop."""
        answers = [bool(function(estimator, record)) for function in self.functions]
        return any(answers)


def read_functions(estimator: Any) -> Callbacks:
    """The callbacks of an estimator that calls functions and has neither a state to save nor rows to hold out.

    Examples
    --------
    >>> from gramless import SphericalKMeans
    >>> from gramless.callbacks import read_functions
    >>> len(read_functions(SphericalKMeans(callback=[print])).functions)
    1
    """
    callbacks = read_callbacks(estimator.callback)
    for refused in (callbacks.checkpoint, callbacks.early_stopping):
        if refused is not None:
            raise TypeError(f"{type(estimator).__name__} takes functions as callback, not {type(refused).__name__}")
    return callbacks


def read_callbacks(callback: Any) -> Callbacks:
    """Sort what a user passed as `callback=`: None, a callable, a `Checkpoint`, an `EarlyStopping`, or a list of them.

    Examples
    --------
    >>> from gramless.callbacks import Checkpoint, read_callbacks
    >>> read_callbacks([Checkpoint("fit.npz"), print]).checkpoint
    Checkpoint(path='fit.npz')
    """
    given = list(callback) if isinstance(callback, list | tuple) else [] if callback is None else [callback]
    kinds: dict[type, Any] = {}
    functions: list[Callable[..., Any]] = []
    for one in given:
        if isinstance(one, Checkpoint | EarlyStopping):
            if type(one) in kinds:
                raise ValueError(f"callback has more than one {type(one).__name__}; give one")
            kinds[type(one)] = one
        elif callable(one):
            functions.append(one)
        else:
            raise TypeError(
                "callback must be callable(estimator, record), gramless.callbacks.Checkpoint or EarlyStopping, or a list of "
                f"these; got {one!r}"
            )
    checkpoint, early_stopping = kinds.get(Checkpoint), kinds.get(EarlyStopping)
    if checkpoint is not None:
        check_positive("Checkpoint's every", checkpoint.every, integer=True)
        if not Path(checkpoint.path).parent.is_dir():
            raise FileNotFoundError(f"the folder of the checkpoint does not exist: {Path(checkpoint.path).parent}")
    if early_stopping is not None:
        check_positive("n_iter_no_change", early_stopping.n_iter_no_change, integer=True)
    return Callbacks(checkpoint, early_stopping, tuple(functions))
