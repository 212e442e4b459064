"""`fit` and `partial_fit` of the machines that read their data in batches: for classes and for values."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._runtime.dask_hooks import fits_collections
from gramless._runtime.validation import (
    all_or_nothing,
    check_choice,
    check_class_factors,
    check_labels,
    check_outputs,
    check_weights,
    forget_names,
)
from gramless.calibration.platt import fit_sigmoids
from gramless.estimators.one_pass import OnePassRidge
from gramless.streaming import Stream, is_stream_like
from gramless.targets.streamed import LabelTargets, ValueTargets


class ClassesFromStream(OnePassRidge):
    """Labels as targets."""

    classes_: np.ndarray
    class_weight: Any
    probability: Any
    _targets: LabelTargets

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.probability is not False:
            check_choice("probability", self.probability, {"softmax", "sigmoid"})

    @all_or_nothing
    @fits_collections
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit in one pass.

        Parameters
        ----------
        X : array, path, iterable or Stream
            An array (a `np.memmap` is read in batches); the path of a CSV, Parquet or npz file; an iterable of `(X, y)` or
            `(X, y, sample_weight)` batches; or a `Stream`.
        y : array, or the name of the target column of a file
        sample_weight : array, optional
            With an array, one weight for each row: weight 2 equals two copies.
        """
        self._check_settings()
        forget_names(self)
        if is_stream_like(X) and not isinstance(X, np.memmap):
            stream, targets = self._stream(X, y, sample_weight), LabelTargets(None, self._class_factors())
        else:
            X = self._array(X, reset=True)
            classes, codes = check_labels(y, X.shape[0])
            weights = check_weights(sample_weight, X, codes, classes, self.class_weight)
            if weights is not None and len(np.unique(codes[weights > 0])) < 2:
                raise ValueError(
                    "The number of classes with a positive sample weight has to be greater than one; got 1 class"
                )
            stream, targets = Stream(X, classes[codes], weights), LabelTargets(classes)
        self._fit_stream(stream, targets)
        targets.open = False  # the classes of the model are known now: partial_fit refuses others
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Any:
        """Add rows to the model; the result is that of one `fit` on all rows together.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        classes : array, optional
            All labels that will ever come; needed in the first call.
        """
        self._check_settings()
        first = not hasattr(self, "_targets")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if not first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={list(classes)!r} is not the same as on the first call: {list(self.classes_)!r}")
        targets = LabelTargets(np.unique(classes)) if first else self._targets
        # Also after a fit on arrays, which multiplies the classes' weights into those of its rows.
        targets.class_weight = self._class_factors()
        self._add(X, y, sample_weight, targets, first)
        if first:
            self.classes_ = np.unique(classes)
        return self

    def _class_factors(self) -> dict[Any, float] | None:
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, dict):
            return check_class_factors(self.class_weight)
        raise ValueError(
            f"class_weight={self.class_weight!r} needs all labels beforehand: pass arrays to fit, or a dict of weights"
        )

    def _solve(self) -> None:
        self.classes_ = self._targets.sorted()[0]
        if len(self.classes_) < 2:
            raise ValueError(f"The number of classes has to be greater than one; got {len(self.classes_)} class")
        super()._solve()

    def _keep_scores(self, scores: np.ndarray, compact: np.ndarray, weights: np.ndarray) -> None:
        if self.probability == "sigmoid":
            rank = np.argsort(self._targets.sorted()[1])
            self.sigmoids_ = fit_sigmoids(scores, rank[compact], len(self.classes_), weights)


class ValuesFromStream(OnePassRidge):
    """Numbers as targets."""

    _single_output: bool
    _targets: ValueTargets

    @all_or_nothing
    @fits_collections
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit in one pass.

        Parameters
        ----------
        X : array, path, iterable or Stream
            An array (a `np.memmap` is read in batches); the path of a CSV, Parquet or npz file; an iterable of `(X, y)` or
            `(X, y, sample_weight)` batches; or a `Stream`.
        y : array of shape (n,) or (n, n_outputs), or the name of the target column of a file
        sample_weight : array, optional
            With an array, one weight for each row: weight 2 equals two copies.
        """
        self._check_settings()
        forget_names(self)
        if is_stream_like(X) and not isinstance(X, np.memmap):
            stream = self._stream(X, y, sample_weight)
        else:
            X = self._array(X, reset=True)
            stream = Stream(X, check_outputs(y, X.shape[0]), check_weights(sample_weight, X))
        self._fit_stream(stream, ValueTargets())
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Add rows to the model; the result is that of one `fit` on all rows together. Parameters as in `fit`."""
        self._check_settings()
        first = not hasattr(self, "_targets")
        self._add(X, y, sample_weight, ValueTargets() if first else self._targets, first)
        return self

    def _solve(self) -> None:
        self._single_output = self._targets.single
        super()._solve()
